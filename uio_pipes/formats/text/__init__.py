"""Text files: an utterance a line, and pairs of files line by line."""
