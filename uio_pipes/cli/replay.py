"""``uio replay``: makes a batch of a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, keep_inputs, print_json
from uio_pipes.cli.pipeline_argument import load
from uio_pipes.cli.tables import print_tables, say

if TYPE_CHECKING:
    from uio_pipes.run.loader import Loader

KEYS = 8  # that are shown


def replay(
    checkpoint: Annotated[
        str, typer.Argument(help="A file of torch.save or JSON with the loader's state, from before the step or of it.")
    ],
    pipeline: Annotated[str, typer.Argument(help="The run's pipeline: train.py:pipeline or package.module:pipeline.")],
    step: Annotated[int, typer.Option(min=0, help="Batch of the rank in the state's epoch, from 0.")],
    rank: Annotated[int, typer.Option(min=0, help="Rank that got it.")] = 0,
    world_size: Annotated[int, typer.Option(min=1, help="Ranks of the run.")] = 1,
    save: Annotated[str | None, typer.Option(help="Write it by torch.save: a .pt file.")] = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, bit by bit, as on the machine that trained on it."""
    from uio_pipes.reports.state_file import find_state

    if save is not None:
        keep_inputs([checkpoint], [save])
    loader = _loader(pipeline, find_state(checkpoint)[1], rank, world_size)
    batch = loader.batch_at(step)
    if save is not None:
        import torch

        torch.save(batch, save)
    keys = batch.get("keys", []) if isinstance(batch, dict) else [sample["key"] for sample in batch]
    rows = [(name, *_seen(value)) for name, value in batch.items() if name != "keys"] if isinstance(batch, dict) else []
    if as_json:
        fields = {name: {"is": what, "digest": digest} for name, what, digest in rows}
        print_json({"epoch": loader.epoch, "step": step, "rank": rank, "keys": keys, "fields": fields})
        return
    title = f"Epoch {loader.epoch}, step {step}, rank {rank} of {world_size}: {counted(len(keys), 'utterance')}"
    print_tables([(title, ("", "is", "digest"), rows)])
    say("keys: " + ", ".join(map(str, keys[:KEYS])) + (f", … ({len(keys)})" if len(keys) > KEYS else ""))


def _loader(pipeline: str, state: dict[str, str], rank: int, world_size: int) -> Loader:
    from uio_pipes.run.loader import Loader
    from uio_pipes.run.state import read_meta

    meta = read_meta(state)
    steps = None if meta.step is None else 2**31  # longer than any epoch
    loader = Loader(
        load(pipeline, "shard", None, None, None), seed=meta.seed, lanes=meta.lanes, rank=rank, world_size=world_size,
        uneven="join", steps_per_epoch=steps,
    )  # fmt: skip
    loader.load_state_dict(state)
    return loader


def _seen(value: Any) -> tuple[str, str]:
    """Return what a value of the batch is, and a digest of a tensor's bytes."""
    from hashlib import blake2b

    import torch

    if not isinstance(value, torch.Tensor) or value.is_nested:
        return (counted(len(value), "value") if hasattr(value, "__len__") else str(value)), ""
    data = value.contiguous().view(torch.uint8) if value.ndim else value.reshape(1).view(torch.uint8)
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}", blake2b(
        data.numpy().tobytes(), digest_size=8
    ).hexdigest()
