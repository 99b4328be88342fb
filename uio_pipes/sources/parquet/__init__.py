"""Parquet files with an utterance a row, as Hugging Face's data sets are stored."""
