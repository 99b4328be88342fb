"""AISHELL-1 from download to exported model: ``python -m recipes.aishell.run --help`` (``run.sh`` sets it up first).

Every stage can be run again and goes on where it was interrupted. OUT gets::

    OUT/corpus/          the mini corpus, if it is that        OUT/raw/, OUT/shard/    an experiment for each data type
    OUT/data/            what stages 0 to 3 write              (see recipes/common/experiment.py)
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import typer

from ..common.launch import Topology
from ..common.stages import check_order, run_stages
from .options import parser
from .recipe import Recipe
from .summary import print_summary

__all__ = ["main"]

CONF = Path(__file__).parent / "conf"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the arguments say; those of the command line, if none are given."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _run(options: Namespace) -> None:
    mini = options.corpus == "mini"
    out = options.out or Path("exp/aishell-mini" if mini else "exp/aishell")
    try:
        check_order(options.stage, options.stop_stage)
        recipe = Recipe(
            corpus=out / "corpus" if mini else Path(options.corpus),
            mini=mini,
            out=out,
            config=options.config or CONF / ("mini.yaml" if mini else "full.yaml"),
            overrides=tuple(options.override or ()),
            data_type=options.data_type,
            topology=Topology(options.nproc or _gpus() or 2, options.nnodes, options.rdzv_endpoint),
            num_workers=options.num_workers,
            hours=options.hours,
            seed=options.seed,
            mirror=options.mirror,
            bpe=options.bpe,
            average=options.average or (3 if mini else 30),
            beam_size=options.beam_size,
        )
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    seconds = run_stages(recipe.stages, options.stage, options.stop_stage, ["recipes/aishell/run.sh", *sys.argv[1:]])
    print_summary(recipe.out, seconds)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


if __name__ == "__main__":
    main()
