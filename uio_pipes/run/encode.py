"""``uio.encode``: runs a frozen model over whole batches, and stores its outputs for ``.encoded``.

Workers decode and pad as for a training, and only what had not been encoded when the run began; this process runs the
model and appends its results to the cache. Nothing else is to be remembered: a run that was killed is run again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from uio_pipes.base.errors import PipelineError, UioError
from uio_pipes.base.urls import redact
from uio_pipes.core.digests import Digest
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import COUNTED
from uio_pipes.core.statistics import Stats
from uio_pipes.formats.stored_fields import dumps
from uio_pipes.io.shelf import Shelf, now
from uio_pipes.run.epoch_end import EpochLength
from uio_pipes.run.loader import Loader
from uio_pipes.run.mixes import Mixes
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.trainers import to_device
from uio_pipes.stages.batches.pad import keeping
from uio_pipes.stages.utterances.encoded import MISS, UNLIMITED, Encoded, Miss, encoders_in, without_encoded

FrozenModel = Callable[[torch.Tensor, torch.Tensor], Any]
UPLOADS = 300  # seconds between two uploads to a cache that is no local folder
_INPUTS = {"feats": "feats_lengths", "pcm": "pcm_length"}  # of a model, and their lengths


def encode(loader: Loader, model: FrozenModel) -> Stats:
    """Run a frozen model over all utterances that it has not encoded yet, and store its outputs for ``.encoded``.

    The model is called with the padded waveforms ``pcm`` (B, S) float32, or, if the pipeline makes features, with
    ``feats`` (B, T, F) float32, and their lengths (B,) int32. It returns values (B, T, …) and lengths (B,), of which
    each utterance gets its row, cut to its length; or a dict of such pairs if ``.encoded`` has several fields. Of audio
    with C channels it gets each by itself, (B × C, S), and an utterance gets (T, C × K) of the values (B × C, T, K),
    those of its first channel before those of the next. It runs
    under ``torch.inference_mode``, and under ``torch.autocast`` if the caller does; a module is in evaluation mode
    meanwhile. Batches come on the device that ``uio.to_device(loader, "cuda")`` has chosen, where the model must be.

    What has been encoded is passed over, so that a run that was killed is simply run again. Ranks share the work as the
    loader deals it, and need no process group.

    Args:
        loader: of a pipeline with ``.encoded(…)``, a batch stage and ``.pad()``; it does not move. Its ranks and
            workers are used. ``uneven`` is not: each rank ends with its own batches.
        model: a module or function, whose weights (of a function those in its closure) are compared with those of
            earlier runs under the same name.

    Returns:
        What was counted: ``utterances`` that were encoded now, ``skipped["encoded"]`` that had been before, failures.

    Raises:
        PipelineError: the pipeline has no ``.encoded``, or another model has encoded under this name before; the model
            returned something else.
        UioError: what was made cannot be kept, or the data cannot be read.
    """
    stage = _encoded_in(loader)
    with _evaluating(model), torch.inference_mode(), contextlib.closing(_Results()) as results:
        run = _loader_of(loader, keeping(without_encoded(loader.pipeline, now(), _hash_of(model)), MISS, "encode"))
        for batch in run:
            name = next((name for name in _INPUTS if name in batch), None)
            if name is None:
                raise PipelineError("encode: the batches have neither pcm nor feats: leave their names as they are")
            misses, given, lengths = batch[MISS], batch[name], batch[_INPUTS[name]]
            if many := name == "pcm" and given.ndim == 3 and given.shape[1]:
                given, lengths = given.flatten(0, 1), lengths.repeat_interleave(many)
            made = model(given, lengths)
            for miss, row in zip(misses, _rows(made, stage.fields, len(misses), many or 1), strict=True):
                results.add(miss, row)
    return run.stats()


def encode_share(graph: Graph, model: FrozenModel, device: str, num_workers: int, rank: int, world_size: int) -> Stats:
    """Run :func:`encode` for a rank's share, on a GPU if there is one and ``device`` is "". Raises: as encode does."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    ranks: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": "join", "failures": COUNTED}
    loader = to_device(Loader(graph, num_workers=num_workers, **ranks), device)
    return encode(loader, model.to(device) if isinstance(model, torch.nn.Module) else model)


def _hash_of(model: Any) -> str:
    """Return a hash of the weights of a module, or of a function and what it names."""
    model = getattr(model, "_orig_mod", model)  # of a compiled one
    return Digest().add(model.state_dict() if isinstance(model, torch.nn.Module) else model).made().hex()


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Have a module in evaluation mode until the end of the block."""
    training = [one for one in model.modules() if one.training] if isinstance(model, torch.nn.Module) else []
    for one in training:
        one.training = False
    try:
        yield
    finally:
        for one in training:
            one.training = True


def _encoded_in(loader: Loader) -> Encoded:
    """Return the stage that takes what is made, or one of several alike. Raises: PipelineError."""
    if not isinstance(loader, Loader):
        raise PipelineError(
            f"encode: the first argument must be a Loader, not {type(loader).__name__}: uio.Loader(pipeline)"
        )
    stages = encoders_in(loader.pipeline)
    if not stages:
        raise PipelineError(
            'encode: the pipeline has no .encoded(…): add one, as in .encoded("cache", ["codes"], by=…)'
        )
    first = stages[0]
    if any((stage.by, list(stage.fields)) != (first.by, list(first.fields)) for stage in stages):
        names = ", ".join(sorted({stage.by for stage in stages}))
        raise PipelineError(f"encode: only one model at a time, not {names}: give a pipeline with the fields of one")
    if loader.pipeline._endless:
        raise PipelineError("encode: the pipeline is endless: remove repeat()")
    return first


def _loader_of(loader: Loader, graph: Graph) -> Loader:
    """Return a loader that runs another graph as this one would, through one epoch."""
    run = copy(loader)
    run._options = replace(run._options, pipeline=graph, mixes=Mixes.of(graph), uneven="join", steps_per_epoch=None)
    run.pipeline, run._fingerprints, run._asked = graph, None, None
    run._lengths = EpochLength(run._options)
    run._progress = EpochProgress.fresh(loader.epoch, run._options)
    return run


class _Results:
    """Where results are kept."""

    def __init__(self) -> None:
        self.shelves: dict[tuple[str, str], Shelf] = {}
        self.uploaded = time.monotonic()

    def add(self, miss: Miss, row: Mapping[str, Any]) -> None:
        """Keep what was made of an utterance. Raises: UioError if that cannot be."""
        place = miss.folder, miss.mark
        found = self.shelves.get(place) or self.shelves.setdefault(place, Shelf(*place, UNLIMITED, miss.about, True))
        found.add(miss.key, dumps({**row, "": miss.gone}), miss.lengths)
        _check(found)
        if time.monotonic() - self.uploaded > UPLOADS:
            self.close()
            self.uploaded = time.monotonic()

    def close(self) -> None:
        """Upload what has been kept, if it is not on a disk, and forget where it is."""
        for one in self.shelves.values():
            one.close()
            _check(one)
            one.refresh()


def _check(shelf: Shelf) -> None:
    """Raises: UioError if what was made could not be kept."""
    if not shelf.writes:
        raise UioError(f"encode: {redact(shelf.cache.url)} cannot be written any more, see the warning before")


def _rows(made: Any, fields: Sequence[str], count: int, channels: int) -> Iterator[dict[str, Any]]:
    """Yield what each of ``count`` utterances gets of what a model made. Raises: PipelineError if that does not fit."""
    named = made if isinstance(made, Mapping) else {fields[0]: made}
    if set(named) != set(fields):
        raise PipelineError(f"encode: the model returned {', '.join(map(str, named))}, not {', '.join(fields)}")
    columns = {name: _cut(name, pair, count * channels) for name, pair in named.items()}
    for first in range(0, count * channels, channels):
        each = {name: rows[first : first + channels] for name, rows in columns.items()}
        if channels > 1:  # side by side
            each = {
                name: [torch.cat([row if row.ndim > 1 else row.unsqueeze(1) for row in rows], 1)]
                for name, rows in each.items()
            }
        yield {name: rows[0] for name, rows in each.items()}


def _cut(name: str, pair: Any, count: int) -> list[torch.Tensor]:
    """Return the rows of a field, each cut to its length."""
    fits = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(one, torch.Tensor) for one in pair)
    values, lengths = pair if fits else (torch.empty(0), torch.empty(0))
    if values.ndim < 2 or len(values) != count or lengths.shape != (count,):
        shapes = [tuple(one.shape) for one in pair] if fits else type(pair).__name__
        raise PipelineError(
            f"encode: for {count} utterances the model must return values ({count}, T, …) and lengths ({count},) of "
            f"{name}, not {shapes}"
        )
    values, sizes = values.cpu(), lengths.tolist()
    if not all(0 <= size <= values.shape[1] for size in sizes):
        there = f"{values.shape[1]} values"
        raise PipelineError(f"encode: the model returned {there} of {name}, and lengths {min(sizes)} to {max(sizes)}")
    return [values[i, : int(size)] for i, size in enumerate(sizes)]
