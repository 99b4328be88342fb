"""Published corpora by name: a card describes the layouts of each and how to read them."""
