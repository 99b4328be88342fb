"""Archives as they are published, whose members a table describes: tars, compressed ones too, and zips."""
