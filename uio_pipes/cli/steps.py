"""``uio steps`` and ``uio seen``: what steps were made of, and when an utterance came or will come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, keep_inputs, print_json, verdict
from uio_pipes.cli.pipeline_argument import RanksOption, RunArgument, load_named
from uio_pipes.cli.tables import print_tables, say

MOST = 40  # lines that a table shows
Checkpoint = Annotated[str, typer.Argument(help="A file of torch.save or JSON with the loader's state of the epoch.")]


def steps(
    checkpoint: Checkpoint,
    pipeline: RunArgument,
    first: Annotated[int, typer.Option("--from", min=0, help="First step.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last step; that of the epoch if not given.")] = None,
    world_size: RanksOption = None,
    keys: Annotated[str | None, typer.Option(help="Write all keys: a .jsonl file, a line for each batch.")] = None,
    as_json: Json = False,
) -> None:
    """Tell by plan which utterances the steps of an epoch were made of. Nothing has to have been logged."""
    from uio_pipes.reports import steps as planned
    from uio_pipes.reports.state_file import find_state

    keep_inputs([checkpoint], [keys])
    state = find_state(checkpoint)[1]
    found = list(planned.steps(load_named(pipeline), state, world_size, first, last))
    if not found:
        raise typer.BadParameter(f"there are no steps from {first} to {'the end' if last is None else last}")
    if keys is not None:
        from uio_pipes.prep.writing.files import write_lines

        write_lines(Path(keys), [json.dumps(step._asdict(), ensure_ascii=False) for step in found])
    if as_json:
        print_json({"steps": [step._asdict() for step in found]})
        return
    rows = [
        (s.step, s.rank, s.lane, s.k, len(s.keys), ", ".join(s.keys[:3]) + (", …" if len(s.keys) > 3 else ""))
        for s in found[:MOST]
    ]
    title = counted(len(found), "batch") if len(found) <= MOST else f"The first {MOST} of {len(found):,} batches"
    print_tables([(title, ("step", "rank", "lane", "k", "utterances", "keys"), rows)])
    if keys is not None:
        say(f"all keys: {keys}")


def seen(
    checkpoint: Checkpoint,
    pipeline: RunArgument,
    keys: Annotated[list[str], typer.Argument(help="Keys of utterances.")],
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last step to look at; that of the epoch.")] = None,
    world_size: RanksOption = None,
    as_json: Json = False,
) -> None:
    """Tell by plan when utterances came or will come in an epoch. The exit code is 1 if one never does."""
    from uio_pipes.reports import steps as planned
    from uio_pipes.reports.state_file import find_state

    state = find_state(checkpoint)[1]
    found = list(planned.seen(load_named(pipeline), state, world_size, keys, last))
    missing = [key for key in keys if key not in {one.key for one in found}]
    if as_json:
        print_json({"seen": [one._asdict() for one in found], "missing": missing})
    else:
        rows = [
            (
                s.key,
                s.epoch,
                s.step,
                s.rank,
                s.lane,
                s.row,
                "before the state" if s.before else "to be passed over" if s.over else "to come",
            )
            for s in found
        ]
        print_tables([("Utterances", ("key", "epoch", "step", "rank", "lane", "row", "is"), rows)])
        for key in missing:
            where = "this epoch" if last is None else f"the steps up to {last}"
            say(f"{key}: not in {where}; the list does not have it, a stage leaves it out, or it comes at other steps")
    verdict(not missing)
