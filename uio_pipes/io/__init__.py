"""Where bytes come from: local files, fsspec URLs, compressed streams."""
