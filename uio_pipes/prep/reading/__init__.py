"""Reading what is to be prepared: lists, Kaldi folders, texts."""
