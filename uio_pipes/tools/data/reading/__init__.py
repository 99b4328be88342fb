"""Reading the data to be prepared: lists, Kaldi folders, texts."""
