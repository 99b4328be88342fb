"""Draw a dialogue of the test: ``python -m recipes.duplex.picture DATA dialogue.png``.

With ``--exp EXP``, what the model has said by itself (``evaluate``) is above what was said in its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline

from ..common.problems import told
from .data import RATE, TOKENIZER, audio
from .script import CHANNELS, MODEL, USER

__all__ = ["main", "picture"]

LONGEST = 0.4  # seconds of a word of the model, which only has a beginning


@dataclass(frozen=True)
class Answers:
    """Adds the words that the model has said, by key of the dialogue, to its timeline."""

    words: dict[str, list[tuple[float, str]]]

    def __call__(self, sample: uio.Sample) -> uio.Sample:
        before: Timeline = sample["timeline"]
        times = pairwise([*self.words[sample["key"]], (float("inf"), "")])
        said = (
            Event(start, min(after, start + LONGEST), word, "trained model", len(CHANNELS))
            for (start, word), (after, _) in times
        )
        sample["timeline"] = replace(before, events=Timeline.of([*before.events, *said]).events)
        return sample


def picture(data: Path, exp: Path | None = None) -> uio.Pipeline:
    """The dialogues of the test, with words, activity and text stream."""
    graph = audio(data, "test").align(TOKENIZER, RATE).activity([MODEL, USER])
    if exp is None:
        return graph
    rows = map(json.loads, (exp / "test.jsonl").read_text(encoding="utf-8").splitlines())
    return graph.map(Answers({row["key"]: row["words"] for row in rows}), length="same")


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the dialogues.")],
    to: Annotated[Path, typer.Argument(help="The .png file.")],
    exp: Annotated[Path | None, typer.Option(help="Folder of the experiment, evaluated.")] = None,
    key: Annotated[str, typer.Option(help="Which dialogue.")] = "test/d0000",
) -> None:
    """Draw a dialogue: both channels, words, activity and text stream on one axis."""
    with told(uio.UioError, OSError):
        picture(data, exp).filter(lambda sample: sample["key"] == key).plot(to, count=1)


if __name__ == "__main__":
    typer.run(main)
