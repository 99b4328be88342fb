"""Published corpora by name: a card says how each lies there, and how that is read."""
