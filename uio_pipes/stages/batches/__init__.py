"""Stages that make batches, and turn them into tensors."""
