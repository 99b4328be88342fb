"""``uio replay``: makes a batch of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, keep_inputs, print_json
from uio_pipes.cli.pipeline_argument import RanksOption, RunArgument, load_named
from uio_pipes.cli.tables import check_suffix, print_tables, say

KEYS = 8  # that are shown


def replay(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="Files of torch.save or JSON with the loader's state, or folders of them: the nearest one is taken.",
        ),
    ],
    pipeline: RunArgument,
    step: Annotated[int, typer.Option(min=0, help="Batch of the rank in its epoch, from 0.")],
    epoch: Annotated[int | None, typer.Option(min=0, help="Epoch; the last one of the states if not given.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="Rank that got it.")] = 0,
    world_size: RanksOption = None,
    save: Annotated[str | None, typer.Option(help="Write it by torch.save: a .pt file.")] = None,
    play: Annotated[bool, typer.Option("--play", help="Play the audio of a row, as it was in the batch.")] = False,
    plot: Annotated[str | None, typer.Option(help="Draw waveform and features of a row: a .png file.")] = None,
    row: Annotated[
        list[int] | None, typer.Option(min=0, help="Row to play or draw, or several; 0 if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, bit by bit, as on the machine that trained on it."""
    from uio_pipes.reports import replay as made
    from uio_pipes.reports.state_file import find_states
    from uio_pipes.seeing.play import play as sound
    from uio_pipes.seeing.plot import draw, finished

    if save is not None:
        keep_inputs(checkpoints, [save])
        if not Path(save).resolve().parent.is_dir():
            raise typer.BadParameter(f"--save {save}: there is no such folder")
    check_suffix(plot, ".png")
    found = made.Replay(load_named(pipeline), find_states(checkpoints), step, rank, world_size, epoch)
    loader, batch = found.loader, found.batch()
    if save is not None:
        made.save(batch, save)
    if plot is not None:
        draw([finished(one) for one in found.utterances(row or [0])], plot)
    for one in found.utterances(row or [0]) if play else ():
        sound(one)
    keys, rows = made.seen(batch)
    if as_json:
        fields = {name: {"is": what, "digest": digest} for name, what, digest in rows}
        print_json({"epoch": loader.epoch, "step": step, "rank": rank, "keys": keys, "fields": fields})
        return
    title = f"Epoch {loader.epoch}, step {step}, rank {rank} of {found.world_size}: {counted(len(keys), 'utterance')}"
    print_tables([(title, ("", "is", "digest"), rows)])
    say("keys: " + ", ".join(map(str, keys[:KEYS])) + (f", … ({len(keys)})" if len(keys) > KEYS else ""))
