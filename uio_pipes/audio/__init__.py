"""Audio files: headers, codecs, lengths, and checks that files are complete."""
