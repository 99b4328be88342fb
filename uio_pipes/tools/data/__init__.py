"""Preparing data: packing, indexing, verifying, converting, statistics. These are the functions of `uio` commands."""
