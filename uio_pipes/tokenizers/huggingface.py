"""The tokenizer for models of Hugging Face's package ``tokenizers``: byte-pair, WordPiece, unigram."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.tokenizers.base import digest, import_extra


class HuggingFaceTokenizer:
    """Use a tokenizer of Hugging Face's package ``tokenizers``, with its own tokens and ids.

    Special and added tokens that stand in the text stay whole. No special token is put around the text, and nothing
    is cut or padded, whatever the file says.

    Args:
        tokenizer: path of a ``tokenizer.json``, a ``tokenizers.Tokenizer``, or a fast tokenizer of the package
            ``transformers``.

    Raises:
        PipelineError: the package is not installed, or ``tokenizer`` is none of these.
        ListError: the file cannot be read.
    """

    def __init__(self, tokenizer: str | os.PathLike[str] | Any) -> None:
        package = import_extra("tokenizers", "HuggingFaceTokenizer")
        tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if isinstance(tokenizer, (str, os.PathLike)):
            given = _read(package, os.fspath(tokenizer))
        elif isinstance(tokenizer, package.Tokenizer):
            given = package.Tokenizer.from_str(tokenizer.to_str())  # a copy: the user may change theirs
        else:
            raise PipelineError(
                "HuggingFaceTokenizer: tokenizer must be the path of a tokenizer.json, a tokenizers.Tokenizer or a "
                f"fast tokenizer of transformers, not {tokenizer!r}; .tokenize(…) takes any function, too"
            )
        given.no_padding()
        given.no_truncation()
        self._tokenizer = given
        self.unk_id = _unk_id(given)
        self.vocab_size = max(given.get_vocab(with_added_tokens=True).values()) + 1
        self._digest = digest(given.to_str())

    @property
    def has_blank(self) -> bool:
        """False if a blank becomes an unknown token. (Models that drop blanks, or split words there, know them.)"""
        encoding = self._tokenizer.encode("一 一", add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return not any(i == self.unk_id and start <= 1 < end for i, (start, end) in spans)

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into tokens (unknown ones as they are written), and return them and their labels."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        tokens, ids = encoding.tokens, encoding.ids
        if self.unk_id in ids:
            written = zip(tokens, ids, encoding.offsets, strict=True)
            tokens = [text[start:end] if i == self.unk_id else token for token, i, (start, end) in written]
        return tokens, ids

    def detokenize(self, labels: Sequence[int]) -> str:
        """Return the text that ``labels`` stand for, without special tokens."""
        return str(self._tokenizer.decode([int(label) for label in labels], skip_special_tokens=True))

    def __repr__(self) -> str:
        return f"HuggingFaceTokenizer({self.vocab_size} tokens {self._digest})"


def _read(package: Any, path: str) -> Any:
    if not os.path.isfile(path):
        raise ListError(f"cannot read the tokenizer {path}: there is no such file; save one with Tokenizer.save(path)")
    try:
        return package.Tokenizer.from_file(path)
    except Exception as error:  # the package raises no narrower class
        raise ListError(f"{path} is not a tokenizer.json of the package tokenizers: {error}") from error


def _unk_id(tokenizer: Any) -> int | None:
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:  # unigram
        return int(model["unk_id"])
    token = model.get("unk_token")
    return tokenizer.token_to_id(token) if token is not None else None
