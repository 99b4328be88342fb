"""AISHELL-1 from download to exported model: ``python -m recipes.aishell.run --help`` (``run.sh`` sets it up first).

Every stage can be run again and goes on where it was interrupted. OUT gets::

    OUT/corpus/          the mini corpus, if it is that        OUT/raw/, OUT/shard/    an experiment for each data type
    OUT/data/            what stages 0 to 3 write              (see recipes/common/experiment.py)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..common.launch import Topology
from ..common.stages import check_order, run_stages
from .recipe import Recipe
from .summary import print_summary

__all__ = ["app"]

CONF = Path(__file__).parent / "conf"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    stage: Annotated[int, typer.Option(min=-1, max=6, help="First stage.")] = -1,
    stop_stage: Annotated[int, typer.Option(min=-1, max=6, help="Last stage.")] = 6,
    corpus: Annotated[str, typer.Option(help="mini, or a folder: it has or gets the real data_aishell.")] = "mini",
    data_type: Annotated[str, typer.Option(help="What training reads: raw, shard or indexed.")] = "raw",
    out: Annotated[Path | None, typer.Option(help="Where all lands. Default: exp/aishell-mini or exp/aishell.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML. Default: conf/mini.yaml or conf/full.yaml.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Like train.epochs=3; again for more.")] = None,
    nproc: Annotated[int, typer.Option(min=0, help="Ranks on this machine. 0: its GPUs; without, 2.")] = 0,
    nnodes: Annotated[int, typer.Option(min=1, help="Machines that train (stage 4) or decode (5) together.")] = 1,
    rdzv_endpoint: Annotated[str, typer.Option(help="HOST:PORT where several machines meet.")] = "",
    num_workers: Annotated[int, typer.Option(min=-1, help="Of each rank. -1: as the configuration says.")] = -1,
    hours: Annotated[float, typer.Option(min=0.001, help="Training speech of the mini corpus.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of the mini corpus.")] = 1,
    mirror: Annotated[str, typer.Option(help="Where the real corpus is fetched from.")] = "",
    bpe: Annotated[int, typer.Option(min=0, help="SentencePiece pieces. 0: characters.")] = 0,
    average: Annotated[int, typer.Option(min=0, help="Best epochs to average. 0: 3 for mini, else 30.")] = 0,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses kept in decoding.")] = 10,
) -> None:
    """AISHELL-1: -1 data, 0 wav.scp and text, 1 global CMVN, 2 dictionary, 3 data.list and shards, 4 training,
    5 averaging, decoding, scoring, 6 export. Every stage can be run again and goes on where it was interrupted."""
    mini = corpus == "mini"
    out = out or Path("exp/aishell-mini" if mini else "exp/aishell")
    try:
        check_order(stage, stop_stage)
        recipe = Recipe(
            corpus=out / "corpus" if mini else Path(corpus),
            mini=mini,
            out=out,
            config=config or CONF / ("mini.yaml" if mini else "full.yaml"),
            overrides=tuple(override or ()),
            data_type=data_type,
            topology=Topology(nproc or _gpus() or 2, nnodes, rdzv_endpoint),
            num_workers=num_workers,
            hours=hours,
            seed=seed,
            mirror=mirror,
            bpe=bpe,
            average=average or (3 if mini else 30),
            beam_size=beam_size,
        )
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    seconds = run_stages(recipe.stages, stage, stop_stage, ["recipes/aishell/run.sh", *sys.argv[1:]])
    print_summary(recipe.out, seconds)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


if __name__ == "__main__":
    app()
