"""How every pipeline begins: items are listed, dealt to lanes, opened and loaded."""
