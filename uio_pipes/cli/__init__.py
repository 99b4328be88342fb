"""The ``uio`` command: one file for each of its commands, thin over ``uio_pipes.prep``."""
