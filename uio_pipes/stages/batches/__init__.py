"""Stages that make batches, and tensors of them."""
