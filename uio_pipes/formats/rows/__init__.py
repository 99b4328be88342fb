"""Rows of files by number: lines of lists, of tables and of texts."""
