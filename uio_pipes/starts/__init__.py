"""The functions that begin a pipeline: `uio.from_…`, `list_files`, `open_index`, `mix`, `interleave`."""
