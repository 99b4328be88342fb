"""The protocol of tokenizers, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from uio_pipes.base.errors import PipelineError

BLANK = "▁"  # U+2581, which stands for a blank in symbol tables and byte-pair models
_BLANKS = frozenset([BLANK, " ", "Ġ"])  # Ġ: byte-level models


@runtime_checkable
class Tokenizer(Protocol):
    """The protocol of ``pipeline.tokenize``: any object with this method can be given to it.

    A tokenizer may have two attributes: ``unk_id``, its label for unknown tokens (their share is then watched), and
    ``has_blank``, whether it has a symbol for a blank (if not, blanks in Mandarin text are removed). For WeNet's own
    tokenizers both are read from their ``symbol_table``.
    """

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Return the tokens and the labels of ``text``."""


def unk_id(tokenizer: object) -> int | None:
    """Return the label of ``tokenizer`` for unknown tokens, None if it has none or does not say."""
    label = getattr(tokenizer, "unk_id", None)
    if label is None:
        label = _wenet_table(tokenizer).get(str(getattr(tokenizer, "unk", "<unk>")))
    return label if isinstance(label, int) else None


def has_blank(tokenizer: object) -> bool:
    """Return whether ``tokenizer`` has a symbol for a blank; also True if it treats them itself, or does not say."""
    known = getattr(tokenizer, "has_blank", None)
    if known is not None:
        return bool(known)
    table = _wenet_table(tokenizer)
    return not table or bool(_BLANKS & table.keys()) or bool(getattr(tokenizer, "split_with_space", False))


def _wenet_table(tokenizer: object) -> Mapping[str, int]:
    table = getattr(tokenizer, "symbol_table", None)
    return table if isinstance(table, Mapping) else {}


def tokens_and_labels(tokenizer: Any, text: str) -> tuple[list[str], list[int]]:
    """Return what ``tokenizer``, which may be a function of the text, makes of ``text``; without tokens if it gives
    labels only."""
    result: Any = getattr(tokenizer, "tokenize", tokenizer)(text)  # isinstance of a protocol takes 6 µs
    both = isinstance(result, tuple) and len(result) == 2 and not isinstance(result[1], int)
    tokens, labels = result if both else ([], result)
    return list(tokens), [int(label) for label in labels]


def digest(*parts: object) -> str:
    """Return a short hash of content, for the ``repr`` that goes into the fingerprint of a graph."""
    return blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def import_extra(package: str, user: str, extra: str = "tokenizers") -> Any:
    """Import the optional ``package`` that ``user`` needs. Raises: PipelineError with the remedy if it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        raise PipelineError(f"{user} needs the package {package}: pip install 'uio_pipes[{extra}]'") from error
