"""The parts that all recipes share: files and shards, a small model, a trainer, a decoder, the error rate."""
