"""Packing: which shard an utterance belongs to, and packing on a cluster."""
