"""The sources of utterances, and the stages that list, open and load: one module per stage."""
