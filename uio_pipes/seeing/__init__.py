"""Looking at a pipeline and a loader: one utterance after every stage, plots, a live line on the terminal."""
