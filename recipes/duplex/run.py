"""From nothing to answers: ``python -m recipes.duplex.run --help`` (``run.sh`` sets it up first).

OUT gets ``data/`` (see ``speak`` and ``codec``) and ``exp/`` (see ``train`` and ``evaluate``). Whatever is complete is
kept, what was interrupted continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from ..common.problems import told
from .codec import encode_all
from .config import settings_of
from .evaluate import evaluate
from .options import parser
from .speak import PROBLEMS as SPEAKING
from .speak import Settings, speak
from .train import PROBLEMS, train

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all steps with ``arguments``; by default those of the command line."""
    options = parser().parse_args(arguments)
    try:
        with told(*PROBLEMS, *SPEAKING):
            _run(options.out, Settings(options.seed, options.dialogues), options.override or ())
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _run(out: Path, spoken: Settings, override: Sequence[str]) -> None:
    data, exp, settings = out / "data", out / "exp", settings_of(override)
    speak(data, spoken)
    print(encode_all(data, settings))
    train(data, exp, settings)
    print(evaluate(data, exp))


if __name__ == "__main__":
    main()
