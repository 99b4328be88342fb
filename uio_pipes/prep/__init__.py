"""Preparing data: packing, indexing, verifying, converting, statistics. What the `uio` command does, as functions."""
