"""The reports of the ``uio`` command: on data, graphs, speed and saved states."""
