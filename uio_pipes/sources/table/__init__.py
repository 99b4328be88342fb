"""Tables that describe utterances, joined to the audio that they name: files, or members of archives."""
