"""Tables of utterances, joined to the files or archive members that contain their audio."""
