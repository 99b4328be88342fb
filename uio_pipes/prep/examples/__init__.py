"""The example folder of `uio example`."""
