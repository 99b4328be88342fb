"""The lengths of an utterance by name, by which filters keep, ``sort`` orders and batches are made."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import token_names
from uio_pipes.core.sample import Sample

_SILENT = Plan(0, 100)  # text without audio
_NAMES = ("frames", "samples", "seconds", "tokens")


class Lengths:
    """The planned lengths of an utterance, each found when it is asked for; nothing is decoded.

    ``lengths["prompt"]`` has the lengths of the stream ``prompt``, which is audio or text.
    """

    __slots__ = ("_at", "_of", "_sample")

    def __init__(self, sample: Sample, of: str = "", at: int | None = None) -> None:
        self._sample, self._of, self._at = sample, of, at

    def __getitem__(self, stream: str) -> Lengths:
        return Lengths(self._sample, stream)

    @property
    def each(self) -> list[Lengths]:
        """The lengths of each recording, if the stream is a list of them; otherwise only these. Raises: DataError."""
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
        """Labels, which takes a tokenization, but only one; or rows of a field that holds tokens. Raises: DataError."""
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
Pair = tuple[Length, Length]
Measure = Callable[[Sample], Any]
FRAMES_AND_TOKENS: Pair = ("frames", "tokens")


def check_measure(stage: str, length: object, pair: bool = False) -> None:
    """Raises: PipelineError unless ``length`` names a length or is a function (``pair``: two of these), or is None."""
    if pair and length is not None:
        two = length if isinstance(length, tuple) else ()
        rule = "length must be a pair of lengths, for pairs of boundaries"
        require(len(two) == 2, stage, rule, length, 'as in ("frames", "tokens")')
        for one in two:
            check_measure(stage, one)
        return
    named = isinstance(length, str) and length.rpartition(".")[2] in _NAMES
    rule = f"length must be a function of the lengths, or one of {', '.join(_NAMES)}, with its stream before a point"
    require(length is None or named or callable(length), stage, rule, length, 'as in "tokens" or "prompt.frames"')


def measure_of(length: Length | Pair) -> Measure:
    """Return the function that gives this length of an utterance, or a pair, rounded up. It raises DataError."""
    if isinstance(length, tuple):
        first, second = map(measure_of, length)
        return lambda sample: (first(sample), second(sample))
    exact = exactly(length)
    return lambda sample: ceil(exact(sample))


def names_of(length: Length | Pair | None) -> tuple[str, ...]:
    """Return what to call a length, or both of a pair, by different names: planned frames if it is None."""
    if isinstance(length, tuple):
        names = [name for one in length for name in names_of(one)]
        same = len(set(names)) < len(names)
        return tuple(f"{name} {number}" if same else name for number, name in enumerate(names, 1))
    name = getattr(length, "__name__", "") if callable(length) else length or "frames"
    return (name if name.rpartition(".")[2].isidentifier() else "length",)  # a lambda has none


def exactly(length: Length) -> Callable[[Sample], float]:
    """Return the function that gives this length of an utterance as it is. It raises DataError."""
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
