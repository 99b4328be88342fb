"""The character error rate: ``python -m recipes.common.score REF HYP``, both ``KEY text`` a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jiwer
import typer

from .files import read_lines


@dataclass(frozen=True)
class Score:
    """Characters of the reference, and what became of them."""

    correct: int
    substituted: int
    deleted: int
    inserted: int

    @property
    def characters(self) -> int:
        """In the reference."""
        return self.correct + self.substituted + self.deleted

    @property
    def cer(self) -> float:
        """Errors in percent of the reference's characters."""
        return 100 * (self.substituted + self.deleted + self.inserted) / self.characters

    def __str__(self) -> str:
        counts = f"C={self.correct} S={self.substituted} D={self.deleted} I={self.inserted}"
        return f"CER {self.cer:.2f} % N={self.characters} {counts}"


def read_texts(path: Path) -> dict[str, str]:
    """Key to text; a text may be empty, blanks do not count."""
    pairs = (line.split(maxsplit=1) for line in read_lines(path))
    return {pair[0]: "".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def score(reference: dict[str, str], hypothesis: dict[str, str]) -> Score:
    """Compare; an utterance that was not decoded counts as deleted.

    Raises: ValueError if there is nothing to compare with, or something that the reference does not know.
    """
    unknown = hypothesis.keys() - reference.keys()
    if not any(reference.values()) or unknown:
        what = f"not in the reference: {min(unknown)}" if unknown else "the reference has no text"
        raise ValueError(f"cannot score: {what}; use the same part for both")
    keys = [key for key in reference if reference[key]]
    out = jiwer.process_characters([reference[key] for key in keys], [hypothesis.get(key, "") for key in keys])
    extra = sum(len(hypothesis.get(key, "")) for key in reference if not reference[key])
    return Score(out.hits, out.substitutions, out.deletions, out.insertions + extra)


def main(
    reference: Annotated[Path, typer.Argument(help="`text` of the part.")],
    hypothesis: Annotated[Path, typer.Argument(help="What `decode` wrote.")],
) -> None:
    """Print the character error rate."""
    typer.echo(str(score(read_texts(reference), read_texts(hypothesis))))


if __name__ == "__main__":
    typer.run(main)
