"""The ``uio`` command: one thin file for each of its commands."""
