"""Writing shards and folders, completely or not at all."""
