"""Packing: the placement of utterances in shards, and packing on a cluster."""
