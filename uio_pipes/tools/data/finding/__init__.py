"""What a folder holds: recordings, the texts that name them, and the join of both that covers most."""
