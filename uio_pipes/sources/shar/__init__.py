"""Lhotse Shar: cuts and their data in parallel shards."""
