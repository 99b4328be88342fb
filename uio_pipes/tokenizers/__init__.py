"""Tokenizers, which turn text into tokens and labels. :class:`Tokenizer` is the protocol; each kind has a file."""

from uio_pipes.tokenizers.base import Tokenizer
from uio_pipes.tokenizers.packages import HuggingFaceTokenizer, SentencePieceTokenizer, TiktokenTokenizer
from uio_pipes.tokenizers.symbols import CharTokenizer, JiebaSegmenter, read_symbols

__all__ = [
    "CharTokenizer",
    "HuggingFaceTokenizer",
    "JiebaSegmenter",
    "SentencePieceTokenizer",
    "TiktokenTokenizer",
    "Tokenizer",
    "read_symbols",
]
