"""Tokenizers, which turn text into tokens and labels. :class:`Tokenizer` is the protocol; each kind has a file."""

from uio_pipes.tokenizers.base import CharTokenizer, JiebaSegmenter, Tokenizer, read_symbols
from uio_pipes.tokenizers.packages import HuggingFaceTokenizer, SentencePieceTokenizer, TiktokenTokenizer

__all__ = [
    "CharTokenizer",
    "HuggingFaceTokenizer",
    "JiebaSegmenter",
    "SentencePieceTokenizer",
    "TiktokenTokenizer",
    "Tokenizer",
    "read_symbols",
]
