"""What utterances are measured by, and the one place where everything deferred is run: when a batch is made of samples.

By the lengths of an utterance filters keep, ``sort`` orders and batches are made. ``pad`` asks :func:`realize` and
needs to know nothing of processes or of the memory that a batch gets. Everything else in a batch is copied when sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import ceil, prod
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.containers import TRIMMED
from uio_pipes.audio.length import TICKS, Plan, measure
from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import audio_names, token_names
from uio_pipes.core.lane import Lane, RowOrigin
from uio_pipes.core.ledger import MAKING, Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.io.opening import fetch_early

_SILENT = Plan(0, 100)  # text without audio
_NAMES = ("frames", "samples", "seconds", "tokens")


class Lengths:
    """The planned lengths of an utterance, each computed on demand; nothing is decoded.

    ``lengths["prompt"]`` has the lengths of the stream ``prompt``, which is audio or text.
    """

    __slots__ = ("_at", "_of", "_sample")

    def __init__(self, sample: Sample, of: str = "", at: int | None = None) -> None:
        self._sample, self._of, self._at = sample, of, at

    def __getitem__(self, stream: str) -> Lengths:
        return Lengths(self._sample, stream)

    @property
    def each(self) -> list[Lengths]:
        """The lengths of each recording if the stream is a list of them; otherwise only this one. Raises: DataError."""
        if not self._of:
            return [self]
        return [Lengths(self._sample, self._of, at) for at in range(len(self._sample.recordings(self._of)))]

    @property
    def frames(self) -> int:
        """Feature frames, or units of 10 ms of audio if no stage has made features; 0 of text. Raises: DataError."""
        return self._plan.length

    @property
    def samples(self) -> int:
        """Samples of audio at :attr:`sample_rate`. Raises: DataError."""
        plan = self._audio
        return plan.samples if plan.sample_rate != TICKS or not plan.samples else self._unknown("seconds are known")

    @property
    def sample_rate(self) -> int:
        """The rate of :attr:`samples` in Hz. Raises: DataError."""
        return self._audio.sample_rate if self._plan.sample_rate != TICKS else self._unknown("seconds are known")

    @property
    def seconds(self) -> float:
        """Seconds of audio. Raises: DataError."""
        plan = self._audio
        return plan.samples / plan.sample_rate

    @property
    def tokens(self) -> int:
        """Number of labels, tokenizing at most once; or rows of a field that contains tokens. Raises: DataError."""
        sample, of = self._sample, self._of
        label = token_names(of)["label"] if of else "label"
        if label in sample.fields or sample.chain.names(label):
            return len(sample[label])
        value: Any = sample[of] if of in sample.fields or sample.chain.names(of) else None
        if isinstance(value, list) or getattr(value, "ndim", 0) > 0:
            return len(value)
        what = f"the stream {of!r}" if of else "it"
        message = f"{what} has no tokens here: put .tokenize(…{f', of={of!r}' if of else ''}) before"
        raise sample.failure(DataError("no_tokens", message), "lengths")

    @property
    def _audio(self) -> Plan:
        plan = self._plan
        return plan if plan.samples or not plan.frames else self._unknown("frames are known")

    def _unknown(self, known: str) -> Any:
        message = f"only {known} here: go by frames, or put .resample(16_000) before"
        raise self._sample.failure(DataError("no_length", message), "lengths")

    @property
    def _plan(self) -> Plan:
        if not self._of:
            return _SILENT if self._sample.text_only else self._sample.plan
        plan = self._sample.stream(self._of) if self._at is None else self._sample.recordings(self._of)[self._at]
        if plan is None:
            message = f"nothing gives a length of {self._of!r}: put .decode_audio(of={self._of!r}) before"
            raise self._sample.failure(DataError("no_length", message), "lengths")
        return plan


Length = str | Callable[[Lengths], float]
Pair = tuple[Length, ...]  # or more than two: what a cost takes
Measure = Callable[[Sample], Any]
FRAMES_AND_TOKENS: Pair = ("frames", "tokens")


def check_measure(stage: str, length: object, count: int = 1) -> None:
    """Raises: PipelineError unless ``length`` names a length or is a function, or a tuple of ``count`` of these, or is
    None."""
    if count > 1 and length is not None:
        several = length if isinstance(length, tuple) else ()
        rule = f"length must be {'a pair, as the boundaries are' if count == 2 else f'{count} lengths'}"
        require(len(several) == count, stage, rule, length, 'as in ("frames", "tokens")')
        for one in several:
            check_measure(stage, one)
        return
    named = isinstance(length, str) and length.rpartition(".")[2] in _NAMES
    rule = f"length must be a function of the lengths, or one of {', '.join(_NAMES)}, with its stream before a point"
    require(length is None or named or callable(length), stage, rule, length, 'as in "tokens" or "prompt.frames"')


def measure_of(length: Length | Pair) -> Measure:
    """Return the function that gives this length of an utterance, or several, rounded up. It raises DataError."""
    if isinstance(length, tuple):
        each = [measure_of(one) for one in length]
        return lambda sample: tuple([measured(sample) for measured in each])
    exact = exactly(length)
    return lambda sample: ceil(exact(sample))


def names_of(length: Length | Pair | None) -> tuple[str, ...]:
    """Return the name of a length, or different names for a pair; None means planned frames."""
    if isinstance(length, tuple):
        names = [name for one in length for name in names_of(one)]
        same = len(set(names)) < len(names)
        return tuple(f"{name} {number}" if same else name for number, name in enumerate(names, 1))
    name = getattr(length, "__name__", "") if callable(length) else length or "frames"
    return (name if name.rpartition(".")[2].isidentifier() else "length",)  # a lambda has none


def exactly(length: Length) -> Callable[[Sample], float]:
    """Return the function that gives this length of an utterance without rounding. It raises DataError."""
    if callable(length):
        return lambda sample: _called(length, sample)
    of, _, name = length.rpartition(".")
    return lambda sample: float(getattr(Lengths(sample, of), name))


def _called(length: Callable[[Lengths], float], sample: Sample) -> float:
    try:
        value: Any = length(Lengths(sample))
    except Exception as error:
        raise sample.failure(error, "length") from error
    if not is_number(value):
        message = f"the function given as length returned {value!r}, not a number"
        raise sample.failure(DataError("bad_length", message), "length")
    return float(value)


Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


SMALL = 1 << 16  # bytes: smaller tensors are not worth it
KEPT = 4  # tensors: two of the batch that the trainer has, and two of the next one


_Kept = npt.NDArray[Any]


class _Reused:
    """Memory of earlier batches, used again once nobody refers to them: of fresh memory each page costs a fault, and
    all of them more time than filling it."""

    def __init__(self) -> None:
        self._kept: deque[tuple[_Kept, ReferenceType[_Kept]]] = deque(maxlen=KEPT)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = prod(shape) * dtype.itemsize
        if size < SMALL:
            return torch.empty(shape, dtype=dtype)
        block = self._free(size)
        array = block[:size].view(str(dtype).removeprefix("torch.")).reshape(shape)
        self._kept.append((block, ref(array)))
        return torch.from_numpy(array)  # it keeps the array, as all its views do

    def _free(self, size: int) -> _Kept:
        """Return a block that nobody uses; what is free but too small is given up."""
        for _ in range(KEPT):
            try:
                block, array = self._kept.popleft()  # out of reach of other threads, as long as we look at it
            except IndexError:
                break
            if array() is not None:
                self._kept.append((block, array))
            elif len(block) >= size:
                return block
        return _block(size)


ALIGNED = 64  # bytes: a line of the cache


def _block(size: int) -> _Kept:
    """Return an aligned block of ``size`` bytes or up to a quarter more, so that the batches after it fit, too.

    It is NumPy's, who asks for huge pages, and torch does not: of these a block of 8 MB costs four faults, not 2,000.
    """
    step = max(ALIGNED, 1 << (size.bit_length() - 3))
    room = -(-size // step) * step
    block = np.empty(room + ALIGNED, np.uint8)
    first = -block.ctypes.data % ALIGNED
    return block[first : first + room]


_make: Make = _Reused().empty


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized tensor for a batch."""
    return _make(shape, dtype)


def dtype_of(row: torch.Tensor | _Kept) -> torch.dtype:
    """Return the type of a batch of such features or waveforms: features of whole numbers, such as codes, stay so."""
    whole = row.ndim > 1 and isinstance(row, torch.Tensor) and not row.is_floating_point()
    return torch.int64 if whole else torch.float32


def use(make: Make) -> None:
    """Make this process allocate the tensors of its batches with ``make`` from now on."""
    global _make
    _make = make


SKIPPED, EXCLUDED = "skip", "excluded"  # reasons under which utterances are counted that a loader leaves out


def realize(
    samples: list[Sample], lane: Lane, *, whole: bool = False, read: Sequence[str] = ()
) -> Iterator[tuple[Sample, int]]:
    """Run everything deferred, sample by sample; a sample that fails is handled by the policy and left out.

    Yields each other sample with its length, for ``Ledger.delivered``. ``whole``: read what no stage has read, too,
    since the samples go to the trainer as they are; ``read``: the fields of which this is true otherwise.
    """
    samples = wanted(samples, lane)
    fetch_early((sample.fields for sample in samples if not sample.is_found), needed=True)
    for sample in samples:
        try:
            length = compute(sample)
            if whole or read:
                sample.read(None if whole else read)
        except DataError as error:
            lane.ledger.fail(error, MAKING)
        else:
            lane.ledger.succeeded(MAKING)
            count_trimmed(sample, lane.ledger)
            lane.ledger.came_from(sample.origin.source)
            if lane.origins is not None:
                lane.origins.append(origin_of(sample, length))
            yield sample, length


def count_trimmed(sample: Sample, ledger: Ledger) -> None:
    """Count an utterance, which is delivered all the same, if audio of it was cut off as longer than its list says."""
    fields, streams = sample.fields, sample.chain.streams
    if TRIMMED in fields or (streams and any(audio_names(of)[TRIMMED] in fields for of in streams)):
        ledger.count(TRIMMED)


def origin_of(sample: Sample, length: int) -> RowOrigin:
    """Return the note of an utterance of a batch, with its length as the batch has it."""
    of, fields = sample.origin, sample.fields
    rate, speaker = fields.get("sample_rate"), fields.get("speaker")
    place = (sample.key, of.source, sample.url, of.item, of.offset, of.sub)
    spoken = None if speaker is None else str(speaker)
    return RowOrigin(*place, length, sample.labels, rate if isinstance(rate, int) else None, spoken)


def wanted(samples: list[Sample], lane: Lane) -> list[Sample]:
    """Return the samples without those that ``loader.skip`` and ``loader.exclude`` leave out; these are counted."""
    if not lane.key_filters and lane.excluded is None:
        return samples
    kept = []
    for sample in samples:
        if (reason := _left_out([sample, *getattr(sample, "parts", ())], lane)) is None:
            kept.append(sample)
        else:
            lane.ledger.count(reason)
    return kept


def _left_out(named: list[Sample], lane: Lane) -> str | None:
    """Return the reason to leave out an utterance, by its key or one of those that were joined; None if it stays."""
    if lane.excluded is not None and any(lane.excluded(one.url, one.key) for one in named):
        return EXCLUDED
    return SKIPPED if any(leave_out(one.key) for leave_out in lane.key_filters for one in named) else None


def compute(sample: Sample) -> int:
    """Run everything deferred, and return the actual length; of an utterance whose audio is in streams, that of these.

    Raises: DataError, also if a length is above its plan.
    """
    planned = sample.planned()
    streams = [(of, sample.recordings(of)) for of in sample.chain.streams]
    sample.finish()
    try:
        actual, streamed = measure(sample.fields), 0
        for of, plans in streams:
            for plan, view in zip(plans, sample.views(of, audio_names(of)), strict=True):
                made = measure(view.fields)
                streamed += made.length if made is not None else 0
                if plan is not None and made is not None:
                    check_length(sample, made, plan, of)
    except Exception as error:
        raise sample._caused(error, MAKING)  # noqa: B904
    if planned is not None and actual is not None:
        check_length(sample, actual, planned)
    return streamed if actual is None else actual.length


def check_length(sample: Sample, actual: Plan, planned: Plan, of: str = "") -> None:
    """Raises: DataError ``length_mismatch`` if the realized length is above the plan."""
    framed = actual.frames is not None and planned.frames is not None
    if framed:
        longer = actual.frames > planned.frames  # type: ignore[operator]
    else:
        longer = actual.samples * planned.sample_rate > planned.samples * actual.sample_rate
    if longer:
        has, most = (
            f"{p.frames} frames" if framed else f"{p.samples / p.sample_rate:.3f} s" for p in (actual, planned)
        )
        name = audio_names(of)["duration"] if of else "duration"
        duration = sample.fields.get(name)
        origin = "its header" if duration is None else f"`{name}`, {duration} in its entry,"
        why = f"{origin} is too short, or the length rule of a stage is wrong"
        why += "" if duration is None else '; give its source tolerance=… or longer="trim"'
        message = f"{of or 'it'} has {has}, at most {most} were planned: {why}"
        raise sample.failure(DataError("length_mismatch", message), MAKING)
