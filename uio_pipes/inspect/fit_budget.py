"""``fit_budget``: estimates the memory of all batches from a few measured ones, and proposes batches that fill it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.urls import plural
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.realize import Lengths
from uio_pipes.run.loader import Loader
from uio_pipes.run.planning import plan_lanes
from uio_pipes.run.trainers import moved_as
from uio_pipes.stages.batches.buckets import index_of, longest_of, pairs_of

MARGIN = 1.01  # how far a forecast is above the peak that is furthest above the fit: others may be above that one
NOISE = (
    1.1  # what equal batches take beside the model differs by as much on a CPU, where malloc keeps some: room for that
)

FloatArray = npt.NDArray[np.float64]


def _features(shapes: npt.ArrayLike) -> FloatArray:
    """Return what the memory of each shape (B, T, U) is made of: a constant, and a sum over utterances. Its terms are a
    constant, frames and their square (attention), labels and their square, and frames × labels (a transducer's joint
    network)."""
    b, t, u = np.asarray(shapes, np.float64).T
    return np.stack([np.ones_like(b), b, b * t, b * t * t, b * u, b * u * u, b * t * u], axis=1)


@dataclass(frozen=True)
class MemoryModel:
    """Bytes of a step as a sum of features, none with a weight below 0: a smaller batch never needs more.

    Attributes:
        weights: bytes for each feature, so high that no measured peak is above its forecast.
        error: how much the highest of these forecasts is above its peak, as a share.
    """

    weights: tuple[float, ...]
    error: float

    @classmethod
    def fitted(cls, probes: Iterable[tuple[tuple[int, int, int], int]]) -> MemoryModel:
        """Fit to shapes and their peaks by non-negative least squares of the relative errors. The best subset of the
        features without a negative weight is taken, and among equally good ones the smallest."""
        shapes, peaks = zip(*probes, strict=True)
        table = _features(shapes) / np.asarray(peaks, np.float64)[:, None]
        scale = np.maximum(table.max(axis=0), np.finfo(float).tiny)
        best, weights = np.inf, np.zeros(len(scale))
        for some in (list(one) for n in range(1, len(scale) + 1) for one in combinations(range(len(scale)), n)):
            found = np.linalg.lstsq(table[:, some] / scale[some], np.ones(len(table)), rcond=None)[0] / scale[some]
            left = float(np.square(table[:, some] @ found - 1).sum())
            if (found >= 0).all() and left < best - 1e-9:
                best, weights = left, np.zeros(len(scale))
                weights[some] = found
        weights *= MARGIN / (table @ weights).min()
        return cls(tuple(weights.tolist()), float((table @ weights).max() - 1))

    def bytes(self, shapes: npt.ArrayLike) -> FloatArray:
        """Return the estimate for each shape (B, T, U)."""
        forecasts: FloatArray = _features(shapes) @ np.array(self.weights)
        return forecasts

    def cost(self, frames: int, labels: int) -> float:
        """Return the bytes that each utterance of a batch takes if it is padded to these lengths."""
        _, one, t, tt, u, uu, tu = self.weights
        return one + (t + tt * frames + tu * labels) * frames + (u + uu * labels) * labels

    def __str__(self) -> str:
        """The cost as a function in Python, rounded up."""
        names = ("", " * frames", " * frames**2", " * tokens", " * tokens**2", " * frames * tokens")
        parts = [f"{1.001 * w:.4g}{name}" for w, name in zip(self.weights[1:], names, strict=True) if w]
        return f"lambda frames, tokens: {' + '.join(parts) or 0}"


PROC = Path("/proc/self")


class Shape(NamedTuple):
    """The shape on which the memory of a batch depends: utterances, frames of the longest, labels of the longest."""

    utterances: int
    frames: int
    labels: int

    def __str__(self) -> str:
        return f"{self.utterances:,} × {self.frames:,} frames × {self.labels:,} labels"


def takes_gpu(run: Callable[[], object]) -> bool:
    """Return whether ``run()`` takes memory of the current GPU, so that the memory of that one counts: another part of
    the process may use a GPU, too."""
    before = 0
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    run()
    return bool(torch.cuda.is_initialized()) and torch.cuda.max_memory_allocated() > before  # type: ignore[no-untyped-call]


def peak(run: Callable[[], object], gpu: bool = False) -> int:
    """Return the peak memory in bytes while ``run()`` ran: by tensors on the current GPU, or resident in this process.

    What allocators keep of earlier steps is given back first, and the peak forgotten that the kernel knows (proc(5)).
    """
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated()
    if not PROC.exists():
        raise PipelineError("fit_budget: there is no /proc to measure the memory of this process; use Linux, or a GPU")
    ctypes.CDLL(None).malloc_trim(0)
    (PROC / "clear_refs").write_text("5")
    run()
    line = next(line for line in (PROC / "status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def template(loader: Loader) -> Callable[[Shape], dict[str, Any]]:
    """Return a function that makes batches of any shape, all rows alike: an utterance of the epoch's first batch, over
    and over. The loader does not move.

    A field with ``NAME_lengths`` (or ``NAME_length``) gets the labels of the shape if it is a target, else the frames.

    Raises: PipelineError if ``pad`` does not make the batches.
    """
    place: dict[str, Any] = {"rank": loader.rank, "world_size": loader.world_size, "uneven": "join"}
    own = Loader(loader.pipeline, seed=loader.seed, lanes=loader.lanes, **place)
    own.set_epoch(loader.epoch)
    batch = next(iter(own))
    fields = _lengths(batch) if isinstance(batch, Mapping) else {}
    count = len(batch["keys"]) if fields and "keys" in batch else 1
    frames = own.stats().padded // count
    if not fields or not frames:
        raise PipelineError("fit_budget: probes are made of padded batches; the pipeline must end with .pad()")
    batch = moved_as(loader, batch)
    row = next((i for i in range(count) if all(batch[lengths][i] > 0 for lengths in fields.values())), 0)

    def made(shape: Shape) -> dict[str, Any]:
        probe = {name: _repeated(value, row, count, shape.utterances) for name, value in batch.items()}
        for name, lengths in fields.items():
            value, last = batch[name], max(1, int(batch[lengths][row]))
            long = shape.labels if "target" in name else round(value.size(1) * shape.frames / frames)
            whole = value[row, torch.arange(long, device=value.device) % last]
            probe[name] = whole.expand(shape.utterances, *whole.shape).contiguous()
            probe[lengths] = torch.full_like(probe[lengths], long)
        return probe

    return made


def _lengths(batch: Mapping[str, Any]) -> dict[str, str]:
    """Return the padded fields of a batch, with the names of their lengths."""
    names = {name: of for name in batch for of in (f"{name}_lengths", f"{name}_length") if of in batch}
    return {name: of for name, of in names.items() if isinstance(batch[name], torch.Tensor)}


def _repeated(value: Any, row: int, count: int, times: int) -> Any:
    """Return one row ``times`` over, if the value has one for each of ``count`` utterances."""
    if isinstance(value, torch.Tensor) and value.ndim and len(value) == count:
        return value[row : row + 1].repeat(times, *[1] * (value.ndim - 1))
    return [value[row]] * times if isinstance(value, list) and len(value) == count else value


BUCKETS = ((20, 2), (10, 2), (10, 1), (5, 1), (2, 1))  # to choose from: by frames, and of each of them by labels
FIRST = 0.3  # share of the utterances that seem to fit, in the first probe after that of one utterance
FASTEST, ENOUGH = 64, 1.25  # probes grow at most so fast, as noise hides what is less, and end where it would be less
MOST = 4_096  # utterances of a probe
HEADROOM = 0.1  # of the memory, which is left free
SMALLER = 0.9  # of the room: a probe ran out of memory below the limit, as what is free lies in pieces
CONFIRMED = 12  # buckets of which a full batch is measured

WholeNumbers = npt.NDArray[np.int64]


def labels(lengths: Lengths) -> int:
    """Return the labels of an utterance; -1 if their tokenizer fails, as it will before the batch is made."""
    try:
        return lengths.tokens
    except DataError:
        return -1


LENGTHS = ("frames", labels)


@dataclass(frozen=True)
class BudgetFit:
    """The result of ``fit_budget``. Printed, it is a table.

    Attributes:
        options: arguments of ``bucket_batch``, for batches that fill the memory whatever their length: a budget in
            bytes, and buckets that suit it.
        limit: bytes that a batch may take, without the head-room.
        model: ``model.bytes([(B, T, U)])`` forecasts peaks in bytes; it is never below a measured one.
        probes: the shapes that were measured, with their peaks in bytes.
        planned: the shapes (N, 3) of the batches of this rank's epoch as it is.
    """

    options: dict[str, Any]
    limit: float
    model: MemoryModel
    probes: list[tuple[Shape, int]]
    planned: WholeNumbers

    def __str__(self) -> str:
        forecasts = self.model.bytes([shape for shape, _ in self.probes])
        rows = [
            f"{_gib(found):>10}  {_gib(forecast):>10}  {shape}"
            for (shape, found), forecast in zip(self.probes, forecasts, strict=True)
        ]
        largest = (
            f"{plural(len(self.planned), 'planned batch')} take at most {_gib(self.model.bytes(self.planned).max())}"
        )
        end = f"{largest} of {_gib(self.limit)}. Batches that fill it: {self.proposal}"
        return "\n".join([f"{'measured':>10}  {'forecast':>10}  utterances × longest", *rows, end])

    @property
    def proposal(self) -> str:
        """The options, as written in a pipeline."""
        arguments = self.options | {"cost": self.model}
        return f".bucket_batch({', '.join(f'{name}={value}' for name, value in arguments.items())})"


def fit_budget(step: Callable[[Any], object], loader: Loader, memory: float | None = None) -> BudgetFit:
    """Estimate the peak memory of every batch of the epoch, and propose batches that fill the memory.

    It runs some 35 steps on batches made of a real one, from one utterance to as many as fit. To their peaks it fits a
    bound by utterances, frames and labels. It plans the batches of this rank's epoch, without decoding, and compares
    them with the bound. A batch unlike the measured ones may be some percent above it: so a tenth of the memory is
    left free. The loader stays where it is.

    Args:
        step: a whole training step on a batch: forward, backward, optimizer. It trains the model on nonsense: load the
            weights, and wrap the model for several ranks, after this.
        loader: gives padded batches. Which ones does not matter to the proposal: ``.batch(1)`` will do.
        memory: bytes that a step may use: by tensors on the GPU, or on a CPU by this process (its resident size).
            Default: None, what the current GPU has free; for a CPU give a number.

    Raises:
        PipelineError: a planned batch would run out of memory, or one utterance does; the message names the longest.
            Also if the memory of the step does not depend on its batch, an argument breaks a rule, or batches are not
            padded.
    """
    name = "fit_budget"
    require(isinstance(loader, Loader), name, "loader must be a Loader", loader, "see uio.Loader(pipeline)")
    ok = memory is None or (is_number(memory) and memory > 0)
    require(ok, name, "memory must be a number of bytes above 0", memory, "try 8e9")
    progress, steps = loader._progress, loader.steps_per_epoch
    mine = lanes_of(progress.lanes, loader.rank, loader.world_size)
    most = None if steps is None else -(-steps // max(1, len(mine)))
    place = (loader.pipeline, progress.lanes, loader.seed, progress.stream, mine)
    plans = list(plan_lanes(*place, ranks=progress.ranks, most=most, by=LENGTHS))
    planned = np.concatenate([np.array([p.counts, *(one.longest for one in p.sizes)], np.int64).T for p in plans])
    lengths = np.concatenate([np.array([one.lengths for one in p.sizes], np.int64).T for p in plans])
    labelled = lengths[:, 1] >= 0
    planned, lengths = planned.clip(min=0), (lengths[labelled] if labelled.any() else lengths.clip(min=0))
    require(bool(lengths[:, 0].any()), name, "the epoch must have audio", len(lengths), "check it with uio simulate")
    places = [(p.lane, k, key) for p in plans for k, key in enumerate(p.longest)]
    with torch.random.fork_rng():
        probes, limit, usable = _measure(step, loader, lengths, places[planned[:, 1].argmax()][2], memory)
    model = MemoryModel.fitted(probes)
    fit = BudgetFit(_options(lengths, _lanes(loader), model, usable), limit, model, probes, planned)
    needs = model.bytes(planned)
    if needs.max() > limit:
        worst = int(needs.argmax())
        lane, k, key = places[worst]
        raise PipelineError(
            f"{name}: batch {k} of lane {lane} would need {_gib(needs[worst])} of {_gib(limit)}: "
            f"{Shape(*planned[worst].tolist())}. If its longest utterance, {key}, is too long for any batch, leave it "
            f"out by .filter(max_frames=…); batches that fit: {fit.proposal}"
        )
    return fit


def _corners(lengths: WholeNumbers) -> list[tuple[int, int]]:
    """Return frames and labels to measure: short, usual and long utterances, with few labels and with many. Long ones
    with the labels of usual ones tell frames × labels from labels² where most labels grow with the frames."""
    rising, least = longest_of(lengths[:, 0], BUCKETS[0][0]), int(lengths[:, 1].min())
    short, usual, long = rising[0], rising[len(rising) // 2], rising[-1]
    most = {t: int(lengths[lengths[:, 0] <= t, 1].max()) for t in (short, usual, long)}
    return sorted({(t, u) for t in most for u in (least, most[t])} | {(long, most[usual])})


def _measure(
    step: Callable[[Any], object],
    loader: Loader,
    lengths: WholeNumbers,
    longest: str,
    memory: float | None,
) -> tuple[list[tuple[Shape, int]], float, float]:
    """Return the peaks of probes, the limit, and what of it proposals use. ``longest``: the key of the longest
    utterance."""
    make, probes, corners = template(loader), list[tuple[Shape, int]](), _corners(lengths)

    def measured(shape: Shape, by: Callable[[Callable[[], object]], int]) -> int | None:
        """Return what ``by`` finds; None if the device ran out of memory."""
        try:
            return by(lambda: step(make(shape)))
        except torch.OutOfMemoryError as error:
            if shape.utterances > 1:
                return None
            raise PipelineError(
                f"fit_budget: out of memory with {shape}: if the longest utterance, {longest}, is too long, leave it "
                "out by .filter(max_frames=…)"
            ) from error

    gpu = bool(measured(Shape(1, *corners[0]), takes_gpu))  # which also takes what stays, as the optimizer's state does
    in_use = partial(peak, gpu=gpu)
    if memory is None and not gpu:
        raise PipelineError("fit_budget: give the bytes that the step may use on the CPU, as in memory=8e9")
    limit = (1 - HEADROOM) * (torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() if memory is None else memory)
    base = in_use(lambda: None)
    if base >= limit:
        raise PipelineError(
            f"fit_budget: {_gib(base)} are in use before the first batch, memory= allows {_gib(limit)}: raise it"
        )
    for corner in corners:
        count, most, wanted, share = 0, 0, 1, FIRST
        while count < wanted:
            found = measured(shape := Shape(wanted, *corner), in_use)
            if found is None:
                limit = base + SMALLER * (limit - base)
            else:
                share = 1.0 if count else FIRST
                count, most = wanted, found
                probes.append((shape, found))
            # Safe, as what a batch adds grows with it at most: temporaries of the optimizer may hide a small batch.
            reach = int(count * min(FASTEST, (limit - base) / max(1, most - base)))
            wanted = min(MOST, max(count + 1, int(share * reach))) if reach >= ENOUGH * count else count
    if max(found for _, found in probes) < base + (limit - base) / FASTEST:
        raise PipelineError(
            "fit_budget: the memory of the step does not grow with the batch: step must train on the batch it is given"
        )
    model = MemoryModel.fitted(probes)
    while True:
        usable = limit if gpu else base + (limit - base) / NOISE
        full = {shape: measured(shape, in_use) for shape in _full(lengths, _lanes(loader), model, usable)}
        probes += [(shape, found) for shape, found in full.items() if found is not None]
        if None not in full.values():
            return probes, limit, usable
        limit = base + SMALLER * (limit - base)


def _lanes(loader: Loader) -> int:
    return len(lanes_of(loader.lanes, loader.rank, loader.world_size))


def _full(lengths: WholeNumbers, lanes: int, model: MemoryModel, usable: float) -> list[Shape]:
    """Return full batches of a dozen of the buckets that would be proposed. These must not be above the limit, and what
    lies between the corners may need more than they let expect."""
    pairs = _options(lengths, lanes, model, usable)["bucket_boundaries"]
    pairs = [(t, u if lengths[:, 1].any() else 0) for t, u in pairs[:: -(-len(pairs) // CONFIRMED)]]
    room = usable - model.weights[0]
    return [Shape(min(MOST, int(room / max(1, model.cost(t, u)))), t, u) for t, u in pairs if model.cost(t, u) <= room]


def _options(lengths: WholeNumbers, lanes: int, model: MemoryModel, usable: float) -> dict[str, Any]:
    """Return a budget in bytes, and so many buckets that the lanes need the fewest steps: more leave less padding, but
    more batches that are not full at the end."""
    of = {} if lengths[:, 1].any() else {"length": ("frames", "frames")}
    lengths, most = lengths[:, [0, 0]] if of else lengths, int(usable - model.weights[0])
    different, counts = np.unique(lengths, axis=0, return_counts=True)

    def steps(pairs: list[tuple[int, int]]) -> float:
        index, costs = index_of(pairs, True), np.array([model.cost(*pair) for pair in pairs])
        held = np.bincount([index(tuple(one)) for one in different.tolist()], counts, len(pairs))
        return float(np.ceil(held / lanes * costs / most).sum())

    boundaries = min((pairs_of(lengths, many) for many in BUCKETS), key=steps)
    return {"bucket_boundaries": boundaries, "max_cost": most, "cost": model.cost, **of}


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
