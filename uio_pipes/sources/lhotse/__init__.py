"""Lhotse's cuts, read without Lhotse: their recordings, features, arrays and texts."""
