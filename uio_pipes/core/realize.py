"""The one place where everything deferred is run, when a batch is made of samples, and the memory that the batch gets.

``pad`` asks here and needs to know nothing of processes. Everything else in a batch is copied when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from uio_pipes.audio.length import Plan, measure
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import audio_names
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample
from uio_pipes.io.lookahead import fetch_early

Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


def _private(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


_make: Make = _private


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized tensor for a batch."""
    return _make(shape, dtype)


def use(make: Make) -> None:
    """Make this process allocate the tensors of its batches with ``make`` from now on."""
    global _make
    _make = make


SKIPPED = "skip"  # the reason under which utterances are counted that ``loader.skip`` leaves out


def realize(
    samples: list[Sample], lane: Lane, *, whole: bool = False, read: Sequence[str] = ()
) -> Iterator[tuple[Sample, int]]:
    """Run everything deferred, one sample after the other; a sample that fails is handled by the policy and left out.

    Yields each other sample with its length, for ``Ledger.delivered``. ``whole``: read what no stage has read, too,
    since the samples go to the trainer as they are; ``read``: the fields of which this is true otherwise.
    """
    samples = wanted(samples, lane)
    fetch_early(sample.fields for sample in samples)
    for sample in samples:
        try:
            length = compute(sample)
            if whole or read:
                sample.read(None if whole else read)
        except DataError as error:
            lane.ledger.fail(error, "realize")
        else:
            lane.ledger.fine("realize")
            lane.ledger.came_from(sample.origin.source)
            yield sample, length


def wanted(samples: list[Sample], lane: Lane) -> list[Sample]:
    """Return the samples without those that ``loader.skip`` leaves out; these are counted."""
    if not lane.left_out:
        return samples
    kept = [
        sample for sample in samples if not any(leave_out(key) for leave_out in lane.left_out for key in _keys(sample))
    ]
    for _ in range(len(samples) - len(kept)):
        lane.ledger.count(SKIPPED)
    return kept


def _keys(sample: Sample) -> list[str]:
    """Return the key, or those of the utterances that were joined."""
    return [part.key for part in getattr(sample, "parts", ())] or [sample.key]


def compute(sample: Sample) -> int:
    """Run everything deferred, and return the actual length; of an utterance whose audio is in streams, that of these.

    Raises: DataError, also if a length is above its plan.
    """
    planned = sample.planned()
    streams = [(of, sample.recordings(of)) for of in sample.chain.streams]
    sample.finish()
    try:
        actual, heard = measure(sample.fields), 0
        for of, plans in streams:
            for plan, view in zip(plans, sample.views(of, audio_names(of)), strict=True):
                made = measure(view.fields)
                heard += made.length if made is not None else 0
                if plan is not None and made is not None:
                    check_length(sample, made, plan, of)
    except Exception as error:
        raise sample._caused(error, "realize")  # noqa: B904
    if planned is not None and actual is not None:
        check_length(sample, actual, planned)
    return heard if actual is None else actual.length


def check_length(sample: Sample, actual: Plan, planned: Plan, of: str = "") -> None:
    """Raises: DataError ``length_mismatch`` if the realized length is above the plan."""
    framed = actual.frames is not None and planned.frames is not None
    if framed:
        longer = actual.frames > planned.frames  # type: ignore[operator]
    else:
        longer = actual.samples * planned.sample_rate > planned.samples * actual.sample_rate
    if longer:
        has, most = (_told(plan, framed) for plan in (actual, planned))
        name = audio_names(of)["duration"] if of else "duration"
        duration = sample.fields.get(name)
        told = "its header" if duration is None else f"`{name}`, {duration} in its entry,"
        why = f"{told} is too short, or a stage's length rule is wrong"
        message = f"{of or 'it'} has {has}, at most {most} were planned: {why}"
        raise sample.failure(DataError("length_mismatch", message), "realize")


def _told(plan: Plan, framed: bool) -> str:
    return f"{plan.frames} frames" if framed else f"{plan.samples / plan.sample_rate:.3f} s"
