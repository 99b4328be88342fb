"""Kaldi's tables and archives."""
