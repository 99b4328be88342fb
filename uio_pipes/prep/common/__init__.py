"""Helpers that all preparation shares: pools, progress bars, suggestions."""
