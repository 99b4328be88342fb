"""Tar shards: headers, members, utterances, and the indexes beside them."""
