"""A small full-duplex model, which hears and speaks at once, on dialogues of two voices made on the spot."""
