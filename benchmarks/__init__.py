"""Benchmarks: one script per claim. See README.md in this folder."""
