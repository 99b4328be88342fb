"""What every recipe shares: files and shards, a small model, a trainer, a decoder, the error rate."""
