"""The recipe: ``recipes/wenetspeech/run.sh --corpus mini``, or ``--corpus /data/WenetSpeech --subset L``.

Stages: -1 corpus, 0 lists, 1 CMVN, 2 dictionary, 3 shards, 4 training, 5 averaging, decoding and scoring, 6 export.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from uio_pipes.prep.packing.grouping import Group, parse_group

from ..common.launch import Topology
from ..common.stages import check_order, run_stages
from .options import parser
from .pack import GROUPS
from .recipe import HELD_OUT, Recipe

CONF = Path(__file__).parent / "conf"
MINI_GROUPS = ("10:150", "150:250", "250:1200")  # for its utterances of 2.5 s


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the arguments say; those of the command line, if none are given."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _run(options: Namespace) -> None:
    mini = options.corpus == "mini"
    out = options.out or Path("exp") / f"wenetspeech-{'mini' if mini else 'full'}-{options.subset.lower()}"
    try:
        check_order(options.stage, options.stop_stage)
        groups = tuple(map(parse_group, options.group or (MINI_GROUPS if mini else GROUPS)))
        chosen = tuple(map(parse_group, options.train_group)) if options.train_group else groups
        _check(groups, chosen, options.source, options.data_type)
        recipe = Recipe(
            out=out,
            corpus=None if mini else Path(options.corpus),
            config=options.config or CONF / ("mini.yaml" if mini else "full.yaml"),
            override=tuple(options.override or ()),
            data_type=options.data_type,
            subset=options.subset,
            source=options.source,
            groups=groups,
            train_groups=chosen,
            shard_size=options.shard_size or (20 if mini else 2000),
            jobs=options.jobs,
            topology=Topology(options.nproc or _gpus() or 2, options.nnodes, options.rdzv_endpoint),
            num_workers=options.num_workers,
            asked_modes=tuple(options.mode or ()),
            average=options.average,
            beam_size=options.beam_size,
            bpe=options.bpe,
            hours=options.hours,
            minutes=options.minutes,
        )
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    seconds = run_stages(
        recipe.stages(), options.stage, options.stop_stage, ["recipes/wenetspeech/run.sh", *sys.argv[1:]]
    )
    _print_summary(recipe, seconds)


def _check(groups: tuple[Group, ...], chosen: tuple[Group, ...], source: str, data_type: str) -> None:
    unknown = [group.folder for group in chosen if group not in groups]
    if unknown:
        raise ValueError(f"--train-group {', '.join(unknown)} is none of the groups that are packed (--group)")
    if chosen != groups and data_type != "shard":
        what = f"with --data-type {data_type}, set data.max_frames instead"
        raise ValueError(f"--train-group chooses folders of shards; {what}")
    if chosen != groups and source == "http":
        raise ValueError("--train-group needs a glob, which HTTP has not: leave it out, or train --from disk or s3")
    if source != "disk" and data_type != "shard":
        raise ValueError(f"--from {source} serves shards, this list names what is on disk: take --data-type shard")


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _print_summary(recipe: Recipe, seconds: dict[str, float]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.rule("[bold]summary", align="left")
    if rates := recipe.error_rates():
        table = Table("set", *recipe.modes, title="character error rate")
        for part in HELD_OUT:
            table.add_row(part, *(rates.get((part, mode), "") for mode in recipe.modes))
        console.print(table)
    console.print("time: " + ", ".join(f"{title} {duration:.0f} s" for title, duration in seconds.items()))
    for path, what in ((recipe.data, "lists, shards, dictionary, CMVN"), (recipe.exp, "models, texts, TensorBoard")):
        if path.is_dir():
            console.print(f"{path}: {what}")


if __name__ == "__main__":
    main()
