"""The recipe: ``recipes/wenetspeech/run.sh --corpus mini``, or ``--corpus /data/WenetSpeech --subset L``.

Stages: -1 corpus, 0 lists, 1 CMVN, 2 dictionary, 3 shards, 4 training, 5 averaging, decoding and scoring, 6 export.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from uio_pipes.prep.grouping import Group, parse_group

from ..common.data_types import DataType
from ..common.launch import Topology
from ..common.stages import check_order, run_stages
from .pack import GROUPS
from .recipe import HELD_OUT, Recipe

CONF = Path(__file__).parent / "conf"
MINI_GROUPS = ("10:150", "150:250", "250:1200")  # for its utterances of 2.5 s

Repeated = list[str] | None


def main(
    stage: Annotated[int, typer.Option(min=-1, max=6, help="First stage.")] = -1,
    stop_stage: Annotated[int, typer.Option(min=-1, max=6, help="Last stage.")] = 6,
    corpus: Annotated[str, typer.Option(help="mini (spoken here), or the folder with WenetSpeech.json.")] = "mini",
    subset: Annotated[
        Literal["S", "M", "L", "W"], typer.Option(help="To train on: 100 h, 1000 h, 10,000 h, weakly labelled.")
    ] = "L",
    data_type: Annotated[
        DataType, typer.Option(help="Segments cut on the fly, or packed in stage 3: shards, or TouchDatasets.")
    ] = "shard",
    source: Annotated[
        Literal["disk", "s3", "http"], typer.Option("--from", help="Where training reads shards: local servers.")
    ] = "disk",
    out: Annotated[
        Path | None, typer.Option(help="All goes here. Default: exp/wenetspeech-mini-l and the like.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Model and training: conf/mini.yaml or conf/full.yaml.")] = None,
    override: Annotated[Repeated, typer.Option("--set", help="Like train.epochs=3. Repeat for more.")] = None,
    group: Annotated[Repeated, typer.Option(help="Pack LOW:HIGH frames into a folder. Repeat for more.")] = None,
    train_group: Annotated[Repeated, typer.Option(help="Train on these of the groups. Repeat for more.")] = None,
    shard_size: Annotated[int, typer.Option(min=0, help="Utterances in a shard; 0: 2000, of the mini corpus 20.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes of stages -1 to 3; 0: one for each core.")] = 0,
    nproc: Annotated[int, typer.Option(min=0, help="Ranks on this machine. 0: its GPUs; without, 2.")] = 0,
    nnodes: Annotated[int, typer.Option(min=1, help="Machines that train (stage 4) or decode (5) together.")] = 1,
    rdzv_endpoint: Annotated[str, typer.Option(help="HOST:PORT where several machines meet.")] = "",
    num_workers: Annotated[int, typer.Option(min=-1, help="Of each rank. -1: as the configuration says.")] = -1,
    mode: Annotated[
        Repeated, typer.Option(help="Decode so; repeat for more. Without: two that the model can do.")
    ] = None,
    average: Annotated[int, typer.Option(min=1, help="Average so many of the best epochs.")] = 5,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses kept.")] = 10,
    bpe: Annotated[int, typer.Option(min=0, help="SentencePiece pieces. 0: characters.")] = 0,
    hours: Annotated[float, typer.Option(min=0.001, help="Of the mini corpus.")] = 0.5,
    minutes: Annotated[float, typer.Option(min=0.05, help="A recording of the mini corpus.")] = 3.0,
) -> None:
    """WenetSpeech, real or mini, from the corpus to an exported model. Every stage can be run again."""
    mini = corpus == "mini"
    out = out or Path("exp") / f"wenetspeech-{'mini' if mini else 'full'}-{subset.lower()}"
    try:
        check_order(stage, stop_stage)
        groups = tuple(map(parse_group, group or (MINI_GROUPS if mini else GROUPS)))
        chosen = tuple(map(parse_group, train_group)) if train_group else groups
        _check(groups, chosen, source, data_type)
        recipe = Recipe(
            out=out,
            corpus=None if mini else Path(corpus),
            config=config or CONF / ("mini.yaml" if mini else "full.yaml"),
            override=tuple(override or ()),
            data_type=data_type,
            subset=subset,
            source=source,
            groups=groups,
            train_groups=chosen,
            shard_size=shard_size or (20 if mini else 2000),
            jobs=jobs,
            topology=Topology(nproc or _gpus() or 2, nnodes, rdzv_endpoint),
            num_workers=num_workers,
            asked_modes=tuple(mode or ()),
            average=average,
            beam_size=beam_size,
            bpe=bpe,
            hours=hours,
            minutes=minutes,
        )
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    seconds = run_stages(recipe.stages(), stage, stop_stage, ["recipes/wenetspeech/run.sh", *sys.argv[1:]])
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
    typer.run(main)
