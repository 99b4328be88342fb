"""What everything may use: errors, names for terminals, hashes, orders, processes. It knows nothing of speech."""
