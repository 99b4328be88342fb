"""Recipes from a corpus to a character error rate, with uio_pipes in the middle: read them, run them, copy them."""
