"""What the `uio` command reports of data, graphs, speed and saved states."""
