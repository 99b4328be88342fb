"""Writing shards and folders: complete, or not there at all."""
