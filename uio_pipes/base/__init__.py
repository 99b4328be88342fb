"""Errors, redaction, caches, permutations, processes: what every layer may use. Nothing here knows about speech."""
