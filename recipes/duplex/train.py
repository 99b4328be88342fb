"""Train a duplex model, in one process; the same command starts a training and continues one, bit by bit::

    python -m recipes.duplex.train DATA EXP --set train.epochs=30

DATA has dialogues and their codes (see ``speak`` and ``codec``). For EXP see ``recipes.common.alone``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..common.alone import PROBLEMS, Trainer
from ..common.problems import told
from ..common.ranks import hold
from .config import Settings, settings_of
from .data import TOKENIZER, batches
from .model import DuplexLM

__all__ = ["PROBLEMS", "main", "train"]


def train(data: Path, exp: Path, settings: Settings) -> None:
    """Train, or continue, in the folder ``exp``. Raises: any of ``PROBLEMS``."""
    graphs = (batches(data, "train", settings, shuffle=True), batches(data, "test", settings))
    with hold(exp):
        Trainer(exp, settings, *graphs, lambda: DuplexLM(settings.model, TOKENIZER.vocab_size)).train()


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the dialogues and their codes.")],
    exp: Annotated[Path, typer.Argument(help="Folder for the experiment.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Like train.epochs=3; repeat for more.")] = None,
) -> None:
    """Train a model that hears and speaks at once; continue from the newest intact checkpoint in EXP."""
    with told(*PROBLEMS):
        train(data, exp, settings_of(override or ()))


if __name__ == "__main__":
    typer.run(main)
