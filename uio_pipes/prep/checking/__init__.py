"""The checks of `uio verify`."""
