"""Tools that show a pipeline or loader at work: one utterance after every stage, plots, a live line on the terminal."""
