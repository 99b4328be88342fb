"""Tokenizers, which turn text into tokens and labels. :class:`Tokenizer` is the protocol; each kind has a file."""

from uio_pipes.tokenizers.base import Tokenizer
from uio_pipes.tokenizers.characters import CharTokenizer
from uio_pipes.tokenizers.huggingface import HuggingFaceTokenizer
from uio_pipes.tokenizers.segmenters import JiebaSegmenter
from uio_pipes.tokenizers.sentencepiece import SentencePieceTokenizer
from uio_pipes.tokenizers.symbols import read_symbols
from uio_pipes.tokenizers.tiktoken import TiktokenTokenizer

__all__ = [
    "CharTokenizer",
    "HuggingFaceTokenizer",
    "JiebaSegmenter",
    "SentencePieceTokenizer",
    "TiktokenTokenizer",
    "Tokenizer",
    "read_symbols",
]
