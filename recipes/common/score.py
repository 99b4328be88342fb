"""Error rates by jiwer: ``python -m recipes.common.score REF HYP``; both files have ``KEY text`` a line.

Prints what WeNet's ``compute-wer.py`` prints: each utterance with its alignment, then the overall rate. Mandarin is
compared by characters, and words in Latin script by words (``--words``: everything by words). Case, punctuation and
tags such as ``<unk>`` do not count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import jiwer
import typer

from uio_pipes.io.files import write_lines

from .lists import read_lines

__all__ = ["Score", "Utterance", "align", "read_texts", "report", "score", "split", "write_report"]

TAG = re.compile(r"<[^<>\s]*>")
PUNCTUATION = "!,?、。！，；？：「」︰『』《》"
RULE = "=" * 75


@dataclass(frozen=True)
class Score:
    """Counts of the tokens of the reference, and of the errors."""

    correct: int
    substituted: int
    deleted: int
    inserted: int

    @property
    def tokens(self) -> int:
        """The number of tokens of the reference."""
        return self.correct + self.substituted + self.deleted

    @property
    def cer(self) -> float:
        """The errors in percent of the reference's tokens; 0 if it has none (as in WeNet)."""
        return 100 * (self.substituted + self.deleted + self.inserted) / self.tokens if self.tokens else 0.0

    def __add__(self, other: Score) -> Score:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Score(*(a + b for a, b in pairs))

    def __str__(self) -> str:
        counts = f"C={self.correct} S={self.substituted} D={self.deleted} I={self.inserted}"
        return f"{self.cer:.2f} % N={self.tokens} {counts}"


@dataclass(frozen=True)
class Utterance:
    """One utterance, as pairs of tokens of reference and hypothesis ("" where there is none)."""

    key: str
    score: Score
    columns: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """Return the lines that ``compute-wer.py`` prints."""
        sides = ("lab", "rec")
        rows = [" ".join(_filled(column[side], _width(column)) for column in self.columns) for side in range(2)]
        aligned = [f"{name}: {row}".rstrip() for name, row in zip(sides, rows, strict=True)]
        return [f"utt: {self.key}", f"WER: {self.score}", *aligned, ""]


def read_texts(path: Path) -> dict[str, str]:
    """Read key and text of each line; a text may be empty."""
    pairs = (line.split(maxsplit=1) for line in read_lines(path))
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs}


def split(text: str, words: bool = False) -> list[str]:
    """Return the tokens to compare: characters of scripts without letter case (Mandarin), words of others; with
    ``words``, words of all."""
    text = TAG.sub(" ", text).upper()
    if words:
        return text.split()
    spread = "".join(f" {c} " if _stands_alone(c) else c for c in text)
    return [token for word in spread.split() if (token := word.strip(PUNCTUATION))]


@lru_cache(100_000)
def _stands_alone(character: str) -> bool:
    return unicodedata.category(character) == "Lo"


def align(reference: dict[str, str], hypothesis: dict[str, str], words: bool = False) -> Iterator[Utterance]:
    """Align each utterance of the reference; one that was not decoded counts as deleted.

    Raises: ValueError if there is nothing to compare with, or a key that the reference does not have.
    """
    unknown = hypothesis.keys() - reference.keys()
    if not any(reference.values()) or unknown:
        what = f"not in the reference: {min(unknown)}" if unknown else "the reference has no text"
        raise ValueError(f"cannot score: {what}; use the same part for both")
    refs = [" ".join(split(text, words)) for text in reference.values()]
    hyps = [" ".join(split(hypothesis.get(key, ""), words)) for key in reference]
    out = jiwer.process_words(refs, hyps)
    for key, ref, hyp, chunks in zip(reference, out.references, out.hypotheses, out.alignments, strict=True):
        columns = tuple(column for chunk in chunks for column in _columns(chunk, ref, hyp))
        yield Utterance(key, _count(columns), columns)


def _columns(chunk: jiwer.AlignmentChunk, ref: list[str], hyp: list[str]) -> Iterator[tuple[str, str]]:
    above = ref[chunk.ref_start_idx : chunk.ref_end_idx]
    below = hyp[chunk.hyp_start_idx : chunk.hyp_end_idx]
    return zip_longest(above, below, fillvalue="")


def _count(columns: tuple[tuple[str, str], ...]) -> Score:
    correct = sum(above == below for above, below in columns)
    deleted = sum(not below for _, below in columns)
    inserted = sum(not above for above, _ in columns)
    return Score(correct, len(columns) - correct - deleted - inserted, deleted, inserted)


def score(reference: dict[str, str], hypothesis: dict[str, str], words: bool = False) -> Score:
    """Return the overall error rate. Raises: ValueError as :func:`align`."""
    return sum((utterance.score for utterance in align(reference, hypothesis, words)), Score(0, 0, 0, 0))


def report(reference: dict[str, str], hypothesis: dict[str, str], words: bool = False) -> Iterator[str]:
    """Yield the lines that ``compute-wer.py`` prints. Raises: ValueError as :func:`align`."""
    total = Score(0, 0, 0, 0)
    for utterance in align(reference, hypothesis, words):
        total += utterance.score
        yield from utterance.lines()
    yield from (RULE, f"Overall -> {total}", RULE)


def write_report(path: Path, reference: Path, hypothesis: Path, words: bool = False) -> Score:
    """Write the :func:`report` on two files of texts; return the overall score. Raises: ValueError as :func:`align`."""
    texts = read_texts(reference), read_texts(hypothesis)
    write_lines(path, report(*texts, words))
    return score(*texts, words)


def _width(column: tuple[str, str]) -> int:
    return max(map(_columns_of, column))


def _filled(token: str, width: int) -> str:
    return token + " " * (width - _columns_of(token))


def _columns_of(token: str) -> int:
    """Count the columns in a terminal: full-width characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "FW" else 1 for c in token)


def main(
    reference: Annotated[Path, typer.Argument(help="`text` of the part.")],
    hypothesis: Annotated[Path, typer.Argument(help="What `decode` wrote.")],
    words: Annotated[bool, typer.Option("--words/--char", help="Compare words, not Mandarin characters.")] = False,
    alignments: Annotated[bool, typer.Option(help="Print every utterance.")] = True,
) -> None:
    """Print the error rate, and the alignment of each utterance."""
    try:
        lines = list(report(read_texts(reference), read_texts(hypothesis), words))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines if alignments else lines[-3:]))


if __name__ == "__main__":
    typer.run(main)
