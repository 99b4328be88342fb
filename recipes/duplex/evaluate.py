"""Let the model talk with the users of a part: when does it begin to speak, and what does it say?

``python -m recipes.duplex.evaluate DATA EXP``. The user's channel is that of the recordings; text and codes of the
model are its own, the likeliest of each frame. EXP gets ``test.jsonl``: the words that it says, and when.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch import Tensor

import uio_pipes as uio
from uio_pipes.audio.timeline import Timeline
from uio_pipes.io.files import write_lines

from ..common import checkpoint
from ..common.experiment import NotTrained
from ..common.problems import told
from ..common.strict import read
from .config import Settings
from .data import EPAD, PAD, RATE, TOKENIZER, batches
from .model import DuplexLM
from .script import MODEL
from .train import PROBLEMS

__all__ = ["Said", "Score", "Turn", "evaluate", "in_one_go", "main", "turns", "words_in"]

SOON = 1.0  # seconds after the end of a question within which an answer is to begin
ANEW = 0.8  # seconds between the starts of two words after which a speaker begins anew


class Said(NamedTuple):
    """What the model says in one go from ``start``, in seconds."""

    start: float
    text: str


class Turn(NamedTuple):
    """A question that ends at ``end``, in seconds, and its answer."""

    end: float
    answer: Said


@dataclass
class Score:
    """Counts, over all dialogues."""

    turns: int = 0
    answered: int = 0  # turns soon after which the model begins
    right: int = 0  # of these, with all words right
    starts: int = 0  # how often the model begins
    meant: int = 0  # of these, soon after a turn
    soon: float = 0.0  # seconds that are soon after a turn
    seconds: float = 0.0
    words: Counter[int] = field(default_factory=Counter)  # of the text stream
    guessed: int = 0  # of these, predicted from all that is before them

    def add(self, asked: list[Turn], said: list[Said], seconds: float) -> None:
        """Count a dialogue: its turns, and what the model has said in it."""
        for turn in asked:
            answers = [one for one in said if turn.end <= one.start < turn.end + SOON]
            self.answered += bool(answers)
            self.meant += len(answers)
            self.right += turn.answer.text in [one.text for one in answers]
            self.soon += min(SOON, seconds - turn.end)
        self.turns, self.starts, self.seconds = self.turns + len(asked), self.starts + len(said), self.seconds + seconds

    def __str__(self) -> str:
        words = self.words.total()
        commonest = max(self.words.values()) / words
        return "\n".join(
            (
                f"questions after which the model speaks within {SOON:g} s: {_share(self.answered, self.turns)}",
                f"of its beginnings, those within {SOON:g} s after a question: {_share(self.meant, self.starts)}; "
                f"at random times they would be {self.soon / self.seconds:.0%}",
                f"questions to which it gives the right answer, word by word: {_share(self.right, self.turns)}",
                f"next words that it predicts, given what was said before: {_share(self.guessed, words)}; "
                f"the commonest word is {commonest:.0%}",
            )
        )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(1, whole):.0%})"


def in_one_go(words: Iterable[tuple[float, str]]) -> list[Said]:
    """Join words, each with its start, to what is said in one go."""
    found, last = list[Said](), float("-inf")
    for start, word in words:
        anew = start - last > ANEW
        found.append(Said(start, word) if anew else Said(found[-1].start, f"{found.pop().text} {word}"))
        last = start
    return found


def turns(timeline: Timeline) -> list[Turn]:
    """Return the questions of a dialogue: one ends with the last that a user has said before an answer."""
    users = [event.end for event in timeline.events if event.speaker != MODEL]
    answers = in_one_go((event.start, event.text) for event in timeline.events if event.speaker == MODEL)
    return [Turn(max(end for end in users if end <= answer.start), answer) for answer in answers]


def words_in(tokens: Tensor) -> list[tuple[float, str]]:
    """Return the words of a text stream (T,), each with its start in seconds."""
    said = ((at, token) for at, token in enumerate(tokens.tolist()) if token not in (PAD, EPAD, -1))
    return [(round(at / RATE, 2), TOKENIZER.detokenize([token])) for at, token in said]


@torch.no_grad()
def evaluate(data: Path, exp: Path, part: str = "test") -> Score:
    """Let the model of the newest checkpoint talk, and score it. Raises: NotTrained, and any of ``PROBLEMS``."""
    newest = checkpoint.newest(exp)
    if newest is None:
        raise NotTrained(f"{exp} has no complete checkpoint: train first (python -m recipes.duplex.train)")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    saved = checkpoint.load_model(newest, device)
    settings = read(Settings, saved["settings"])
    model = DuplexLM(settings.model, TOKENIZER.vocab_size).to(device).eval()
    model.load_state_dict(saved["model"])
    score, lines = Score(), list[str]()
    for batch in uio.to_device(uio.Loader(batches(data, part, settings)), device):
        codes = batch["codes"]
        wanted, found = codes[:, 0, 1:], model(codes[:, :, :-1])[0][0].argmax(-1)
        word = (wanted != PAD) & (wanted != EPAD) & (wanted >= 0)
        score.words.update(wanted[word].tolist())
        score.guessed += int((found == wanted)[word].sum())
        streams = model.converse(codes[:, 1 + model.codebooks :])[:, 0]
        rows = zip(batch["keys"], batch["timeline"], streams, batch["codes_lengths"].tolist(), strict=True)
        for key, timeline, stream, frames in rows:
            words = words_in(stream[:frames])
            score.add(turns(timeline), in_one_go(words), frames / RATE)
            lines.append(json.dumps({"key": key, "words": words}))
    write_lines(exp / f"{part}.jsonl", sorted(lines))
    return score


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the dialogues and their codes.")],
    exp: Annotated[Path, typer.Argument(help="Folder of the experiment.")],
    part: Annotated[str, typer.Option(help="List of DATA to talk with: test or train.")] = "test",
) -> None:
    """Let the newest model talk with the users of a part, and print when it speaks and whether it is right."""
    with told(*PROBLEMS, NotTrained):
        typer.echo(evaluate(data, exp, part))


if __name__ == "__main__":
    typer.run(main)
