"""The first stages of every pipeline: items are listed, dealt to lanes, opened and loaded."""
