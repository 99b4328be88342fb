"""The stages, one per file: parameters, length rule and node."""
