"""Indexing shards and folders of TouchDatasets."""
