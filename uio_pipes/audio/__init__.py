"""Audio files: their headers, codecs and lengths, and whether they are whole."""
