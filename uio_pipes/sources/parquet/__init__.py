"""Parquet files with one utterance per row, the format of Hugging Face data sets."""
