"""Whisper, fine-tuned by Hugging Face's ``Seq2SeqTrainer`` on log-mel features that are computed on the fly."""
