"""What all tokenizers share: the protocol, and what is asked of any of them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from uio_pipes.base.errors import PipelineError

__all__ = ["BLANK", "Tokenizer", "digest", "has_blank", "import_extra", "unk_id"]

BLANK = "▁"  # U+2581: how symbol tables and byte-pair models write a blank
_BLANKS = frozenset([BLANK, " ", "Ġ"])  # Ġ: byte-level models


@runtime_checkable
class Tokenizer(Protocol):
    """What ``pipeline.tokenize`` takes: anything with this method.

    Two attributes are looked at where a tokenizer has them: ``unk_id``, the label of what it does not know (then the
    share of such labels is watched), and ``has_blank``, whether it has a symbol for a blank (if not, blanks in Mandarin
    text are removed). For WeNet's own tokenizers both are read from their ``symbol_table``.
    """

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Tokens and labels of ``text``."""


def unk_id(tokenizer: object) -> int | None:
    """The label that ``tokenizer`` gives what it does not know; None: it has none, or does not tell."""
    label = getattr(tokenizer, "unk_id", None)
    if label is None:
        label = _wenet_table(tokenizer).get(str(getattr(tokenizer, "unk", "<unk>")))
    return label if isinstance(label, int) else None


def has_blank(tokenizer: object) -> bool:
    """Whether ``tokenizer`` has a symbol for a blank, or has its own way with them, or does not tell."""
    known = getattr(tokenizer, "has_blank", None)
    if known is not None:
        return bool(known)
    table = _wenet_table(tokenizer)
    return not table or bool(_BLANKS & table.keys()) or bool(getattr(tokenizer, "split_with_space", False))


def _wenet_table(tokenizer: object) -> Mapping[str, int]:
    table = getattr(tokenizer, "symbol_table", None)
    return table if isinstance(table, Mapping) else {}


def digest(*parts: object) -> str:
    """A short hash of content, for the ``repr`` that goes into a graph's fingerprint."""
    return blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def import_extra(package: str, user: str) -> Any:
    """The optional ``package`` that ``user`` needs. Raises: PipelineError naming the remedy if it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise PipelineError(f"{user} needs the package {package}: pip install 'uio_pipes[tokenizers]'") from error
