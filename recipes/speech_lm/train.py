"""Train on packed rows, in one process; the same command starts a training and continues one, bit by bit::

    python -m recipes.speech_lm.train DATA EXP --set train.epochs=10

DATA is what stages 0 to 3 of an ASR recipe wrote. For EXP see ``recipes.common.alone``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

import uio_pipes as uio

from ..common import alone
from ..common.alone import PROBLEMS, Batch
from ..common.experiment import read_tokenizer
from ..common.problems import told
from ..common.ranks import hold
from .config import Settings, settings_of
from .data import one_a_row, pipeline
from .model import SpeechLM

__all__ = ["PROBLEMS", "Trainer", "main", "train"]


class Trainer(alone.Trainer):
    """A trainer of the speech language model."""

    settings: Settings

    def __init__(self, data: Path, exp: Path, settings: Settings) -> None:
        graphs = (pipeline(data, "train", settings, shuffle=True), pipeline(data, "dev", settings))
        tokens = read_tokenizer(data / "dict").vocab_size
        super().__init__(exp, settings, *graphs, lambda: SpeechLM(settings.model, tokens))

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses of the batch as it is, or unpacked: they are the same."""
        return super().losses(batch if self.settings.train.packed else one_a_row(batch))

    def epoch_ended(self, loader: uio.Loader, valid: bool) -> None:
        """Tell how many utterances of the epoch were longer than a row."""
        part, row = ("dev" if valid else "train"), f"a row of data.max_tokens={self.settings.data.max_tokens}"
        dropped = loader.stats().skipped.get("overflow", 0)
        if dropped:
            print(f"epoch {self.epoch}: {dropped} utterances of {part} are longer than {row}: left out", flush=True)


def train(data: Path, exp: Path, settings: Settings) -> None:
    """Train, or continue, in the folder ``exp``. Raises: any of ``PROBLEMS``."""
    with hold(exp):
        Trainer(data, exp, settings).train()


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 of an ASR recipe wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder for the experiment.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Like train.epochs=3; repeat for more.")] = None,
) -> None:
    """Train a speech language model to transcribe; continue from the newest intact checkpoint in EXP."""
    with told(*PROBLEMS):
        train(data, exp, settings_of(override or ()))


if __name__ == "__main__":
    typer.run(main)
