"""Where utterances come from: one module per kind of source."""
