"""Reading bytes: local files, HTTP and fsspec URLs, compressed streams, commands, and a cache."""
