"""Loaders as other frameworks want them: Lightning, Accelerate, Hugging Face's Trainer, torch's own loaders."""
