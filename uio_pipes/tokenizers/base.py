"""The protocol of tokenizers and what they share: blanks in Chinese text, and the share of unknown tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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


# Chinese characters, their punctuation and full-width forms
_CHINESE = r"\u2e80-\u2fdf\u3001-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U000323af"
_BESIDE = re.compile(rf"(?<=[{_CHINESE}])\s+|\s+(?=[{_CHINESE}])")


def remove_blanks(text: str) -> str:
    """Return ``text`` without the blanks beside Chinese characters."""
    return _BESIDE.sub("", text)


ENOUGH = 1_000  # labels before a share is judged, unless the epoch ends before
EXAMPLES = 3
_CASES: tuple[tuple[str, Callable[[str], str]], ...] = (("lower", str.lower), ("upper", str.upper))


@dataclass
class UnknownShare:
    """Labels, and unknown labels among them: those of a lane, and then of all lanes (see ``core.ledger.Tally``).

    ``examples``: a few texts with unknown tokens; ``in_them``: the unknown labels in them as they are, in lower, and in
    upper case.
    """

    bound: float
    labels: int = 0
    unknown: int = 0
    examples: list[str] = field(default_factory=list)
    in_them: list[int] = field(default_factory=lambda: [0, 0, 0])
    reported: bool = False

    def show(
        self, key: str, text: str, tokens: Sequence[str], labels: Sequence[int], unk_id: int,
        labels_of: Callable[[str], Sequence[int]],
    ) -> None:  # fmt: skip
        """Add an example. ``labels_of``: what the tokenizer makes of a text."""
        pairs = zip(tokens, labels, strict=False)
        unknown = dict.fromkeys(token for token, label in pairs if label == unk_id)
        shown = f"{text[:60]}…" if len(text) > 60 else text
        self.examples.append(f"{key} {shown!r} ({' '.join(map(repr, list(unknown)[:5]))})")
        found = [labels, labels, labels]
        with suppress(Exception):  # of a tokenizer of the user's, which was not asked for these texts
            found[1:] = [labels_of(change(text)) for _, change in _CASES]
        self.in_them = [known + one.count(unk_id) for known, one in zip(self.in_them, found, strict=True)]

    def add(self, other: UnknownShare) -> None:
        """Count what ``other`` has counted, too."""
        self.labels += other.labels
        self.unknown += other.unknown
        if len(self.examples) < EXAMPLES:
            self.examples += other.examples
            self.in_them = [a + b for a, b in zip(self.in_them, other.in_them, strict=True)]

    def verdict(self, last: bool) -> str | None:
        """Return the warning if it is due, once. ``last``: no more is counted in this epoch."""
        enough = last or self.labels >= ENOUGH
        if self.reported or not enough or self.unknown <= self.bound * self.labels:
            return None
        self.reported = True
        share, first = self.unknown / self.labels, "" if last else "first "
        return (
            f"{share:.1%} of the {first}{self.labels} labels are unknown tokens (<unk>), above "
            f"max_unk_share={self.bound}: {'; '.join(self.examples[:EXAMPLES])}. {self._cause()}"
        )

    def _cause(self) -> str:
        as_it_is, *changed = self.in_them
        least = min(changed)
        if 2 * least > as_it_is:
            return "Check that the dictionary fits the texts, or normalize them with .normalize_text(…)"
        case = _CASES[changed.index(least)][0]
        return (
            f"The cause is the case of the letters: of the {as_it_is} unknown labels in these texts, {least} are left "
            f"in {case} case. Change it with .normalize_text(str.{case}), or use a dictionary of this case"
        )
