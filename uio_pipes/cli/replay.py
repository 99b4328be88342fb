"""``uio replay``: makes a batch of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, keep_inputs, print_json
from uio_pipes.cli.pipeline_argument import Ranks, Run, load_named
from uio_pipes.cli.tables import print_tables, say

KEYS = 8  # that are shown


def replay(
    checkpoint: Annotated[
        str, typer.Argument(help="A file of torch.save or JSON with the loader's state, from before the step or of it.")
    ],
    pipeline: Run,
    step: Annotated[int, typer.Option(min=0, help="Batch of the rank in the state's epoch, from 0.")],
    rank: Annotated[int, typer.Option(min=0, help="Rank that got it.")] = 0,
    world_size: Ranks = 1,
    save: Annotated[str | None, typer.Option(help="Write it by torch.save: a .pt file.")] = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, bit by bit, as on the machine that trained on it."""
    from uio_pipes.reports import replay as made
    from uio_pipes.reports.state_file import find_state

    if save is not None:
        keep_inputs([checkpoint], [save])
        if not Path(save).resolve().parent.is_dir():
            raise typer.BadParameter(f"--save {save}: there is no such folder")
    graph = load_named(pipeline)
    loader = made.loader_of(graph, find_state(checkpoint)[1], rank, world_size)
    batch = loader.batch_at(step)
    if save is not None:
        made.save(batch, save)
    keys, rows = made.seen(batch)
    if as_json:
        fields = {name: {"is": what, "digest": digest} for name, what, digest in rows}
        print_json({"epoch": loader.epoch, "step": step, "rank": rank, "keys": keys, "fields": fields})
        return
    title = f"Epoch {loader.epoch}, step {step}, rank {rank} of {world_size}: {counted(len(keys), 'utterance')}"
    print_tables([(title, ("", "is", "digest"), rows)])
    say("keys: " + ", ".join(map(str, keys[:KEYS])) + (f", … ({len(keys)})" if len(keys) > KEYS else ""))
