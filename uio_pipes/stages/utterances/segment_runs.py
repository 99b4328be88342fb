"""The spans to cut out of a recording, and ``random_crop``, which keeps a random piece of an utterance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.length import ROUNDING, TICKS, Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import in_words, is_number
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.roles import OfStream, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.formats.lists.json_lines import as_seconds
from uio_pipes.stages.features.grid import frame_shift
from uio_pipes.stages.utterances.concat import check_bounds, join_text

_MANIFEST = frozenset(["duration", "recording_id", "channel", "custom"])  # of a supervision, no field of the utterance
_SEGMENT = {"id": "key", "text": "txt"}
_DIGITS = 8  # of seconds, as Lhotse rounds ends: sums of floats have errors
_OWN = frozenset(["start", "end", "duration", "wav", "feat", "sample_rate"])  # a segment cannot change these


class SegmentRun(NamedTuple):
    """A stretch of the recording with its transcripts ``texts`` and the other ``fields`` that its segments agree on.

    ``channel``: one or a list of those of the recording; None: all of them.
    """

    start: float
    end: float
    texts: Mapping[str, str]
    fields: Mapping[str, Any]
    channel: int | list[int] | None = None


def parse_segments(
    listed: Any,
    seconds: float | None,
    fail: Callable[[DataError], None],
    texts: Sequence[str] = ("txt",),
    needs_text: bool = True,
    beyond: float = TOLERANCE,
) -> list[SegmentRun]:
    """Return segments ``{"start", "end", "txt"}`` in the order of time; call ``fail`` for each that cannot be used.

    ``seconds``: length of the recording, if known; ``texts``: fields of transcripts, of which each needs at least one,
    if it ``needs_text``; ``beyond``: seconds by which one may end after the recording.
    Raises: DataError ``missing_segments``.
    """
    if not isinstance(listed, list):
        what = "no segments" if listed is None else f"{type(listed).__name__} for a list of segments"
        message = f'the utterance has {what}; name their field (field="info.segments"), or use of="recording"'
        raise DataError("missing_segments", message)
    runs = []
    for number, one in enumerate(listed):
        try:
            runs.append(_segment(one, seconds, texts, needs_text, beyond))
        except DataError as error:
            fail(error.within(f"segment {number}"))
    return sorted(runs, key=lambda run: (run.start, run.end))


def _segment(one: Any, seconds: float | None, texts: Sequence[str], needs_text: bool, beyond: float) -> SegmentRun:
    if not isinstance(one, dict):
        raise DataError("bad_segment", f'{one!r:.80} is not a segment: segments are {{"start", "end", "txt"}}')
    channel = one.get("channel")
    if "end" not in one and "duration" in one:
        one = _of_supervision(one, seconds)
    start, end = as_seconds(one.get("start")), as_seconds(one.get("end"))
    if not (is_number(start) and is_number(end)) or not 0 <= start < end:
        raise DataError(
            "bad_segment", f"start and end must be seconds with 0 <= start < end, not {start!r} and {end!r}"
        )
    if seconds is not None and end > seconds + beyond:
        raise DataError("bad_segment", f"{start} to {end} s does not lie inside the {seconds:.3f} s of audio")
    said = {name: one[name] for name in texts if isinstance(one.get(name), str)}
    if needs_text and not said:
        message = f"{start} to {end} s has no {in_words(texts, 'or')}; texts=None takes segments without transcripts"
        raise DataError("missing_text", message)
    others = {name: value for name, value in one.items() if name not in _OWN and name not in texts}
    return SegmentRun(float(start), float(end), said, others, channel if _are_numbers(channel) else None)


def _are_numbers(channel: Any) -> bool:
    """Return whether it is the number of a channel, or several; a segment's own field may be anything else."""
    several = channel if isinstance(channel, list) else [channel]
    return bool(several) and all(type(one) is int for one in several)


def _of_supervision(said: dict[str, Any], seconds: float | None) -> dict[str, Any]:
    """Return a supervision of Lhotse's, which has ``duration`` and ``text``, as a segment; its ``id`` is the key.

    Of one that overlaps the edge of the cut, only what lies inside. Raises: DataError ``bad_segment``.
    """
    start, duration = cast(Any, said.get("start")), said["duration"]
    if not (is_number(start) and is_number(duration) and duration > 0):
        message = f"start and duration must be seconds, the duration above 0, not {start!r} and {duration!r}"
        raise DataError("bad_segment", message)
    end = round(start + duration, _DIGITS)
    first, last = max(0.0, start), end if seconds is None else min(end, seconds)
    if first >= last:
        cut = "the cut" if seconds is None else f"the {seconds:.3f} s of the cut"
        raise DataError("bad_segment", f"the supervision, {start} to {end} s, lies outside of {cut}")
    if said.get("channel") is not None and not _are_numbers(said["channel"]):
        message = f"channel must be the number of a channel, counted from 0, or several, not {said['channel']!r:.40}"
        raise DataError("bad_segment", message)
    named = {_SEGMENT.get(name, name): value for name, value in said.items() if name not in _MANIFEST}
    return {**(said.get("custom") or {}), **named, "start": first, "end": last}


def merged(runs: list[SegmentRun], most: float, first: int, separator: str | None) -> list[SegmentRun]:
    """Join adjacent runs to at most ``most`` seconds, as long as they have a transcript in common and are of the same
    channel. Joining begins anew at run ``first``."""
    out: list[SegmentRun] = []
    group: list[SegmentRun] = []
    end = 0.0
    for number, run in enumerate(runs):
        alike = any(all(name in other.texts for other in group) for name in run.texts)
        alike = alike or not any(other.texts for other in [run, *group])
        alike = alike and all(run.channel == other.channel for other in group[:1])
        if group and (number == first or max(end, run.end) - group[0].start > most or not alike):
            out.append(_join(group, separator))
            group, end = [], 0.0
        group.append(run)
        end = max(end, run.end)
    return [*out, _join(group, separator)] if group else out


def _join(group: list[SegmentRun], separator: str | None) -> SegmentRun:
    if len(group) == 1:
        return group[0]
    said = {n: [run.texts[n] for run in group] for n in group[0].texts if all(n in run.texts for run in group)}
    texts = {n: join_text(each) if separator is None else separator.join(each) for n, each in said.items()}
    first = group[0].fields
    agreed = {n: v for n, v in first.items() if n != "key" and all(run.fields.get(n) == v for run in group)}
    return SegmentRun(group[0].start, max(run.end for run in group), texts, agreed, group[0].channel)


def pieces(run: SegmentRun, low: int, high: int, draws: Draws, even: bool = False) -> Iterator[SegmentRun]:
    """Yield all of ``run`` in pieces of random ``low`` to ``high`` milliseconds; ``even``: of ``high``, but the last.

    The rest at the end is part of the last piece or a piece of its own, if the bounds allow it.
    """
    at, total = 0, milliseconds(run)
    while total - at >= low:
        left = total - at
        length = (
            left if left <= high else high if even else low + draws.below(max(low, min(high, left - low)) - low + 1)
        )
        yield _piece(run, at, length, total)
        at += length


def random_piece(run: SegmentRun, low: int, high: int, draws: Draws) -> SegmentRun | None:
    """Return a piece of random ``low`` to ``high`` milliseconds, anywhere in ``run``; None if that is shorter."""
    total = milliseconds(run)
    if total < low:
        return None
    length = low + draws.below(min(high, total) - low + 1)
    return _piece(run, draws.below(total - length + 1), length, total)


def milliseconds(run: SegmentRun) -> int:
    """Return the length of a run."""
    return int((run.end - run.start) * 1000 + 1e-6)


def _piece(run: SegmentRun, at: int, length: int, total: int) -> SegmentRun:
    """A whole run keeps its text; nobody knows what is said in a part of it."""
    if length == total:
        return run
    start = run.start + at / 1000
    end = run.end if at + length == total else start + length / 1000
    fields = {name: value for name, value in run.fields.items() if name != "key"}
    return SegmentRun(start, end, dict.fromkeys(run.texts, ""), fields, run.channel)


@dataclass(frozen=True)
class RandomCrop(OfStream):
    """Keep a random piece of each utterance that is longer than a bound; shorter ones stay as they are.

    Every position is equally likely. A timeline is cut along: by n / rate seconds at sample n, or n times the shift of
    the features at frame n. ``txt`` and labels stay as they are and no longer match the audio, so this is for speaker,
    codec and self-supervised training. Give exactly one of the two bounds.

    Args:
        max_seconds: seconds of ``wav`` to keep; use it before features are computed. Default: None.
        max_frames: frames of ``feat`` to keep; use it after a feature stage, or for precomputed features. Default:
            None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "random_crop"

    max_seconds: float | None = None
    max_frames: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "max_seconds is for waveforms, as 3.0, max_frames for features, as 300"
        check_bounds(self.name, self.max_seconds, self.max_frames, remedy)

    def check(self, before: Sequence[Stage]) -> None:
        if self.max_seconds is not None and have_features(before, self.of):
            raise PipelineError(
                "random_crop: max_seconds crops waveforms, but there are features here: put it before the stage that "
                "makes them, or give max_frames"
            )
        super().check(before)

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["feat"] if self.max_seconds is None else ["wav", "sample_rate"])

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["feat" if self.max_seconds is None else "wav"])

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        if (plan.frames is None) != (self.max_frames is None):
            raise PipelineError(
                "random_crop: max_seconds crops waveforms, before features; max_frames crops features, after "
                f".fbank(…), or precomputed ones. There are {'no features' if plan.frames is None else 'features'} here"
            )
        if self.max_frames is not None and plan.frames is not None:
            return plan._replace(frames=min(plan.frames, self.max_frames))
        most = self._samples(plan.sample_rate) + (ROUNDING if plan.sample_rate == TICKS else 0)
        return plan._replace(samples=min(plan.samples, most))

    @property
    def moves(self) -> frozenset[str]:  # type: ignore[override]
        return self.reads

    def move(self, timeline: Timeline, sample: Sample, draws: Draws) -> Timeline:
        fields = sample.fields
        if self.max_frames is not None:
            first, count = _place(len(fields["feat"]), self.max_frames, draws)
            shift = frame_shift(sample, self)
            return timeline.cut(first * shift, (first + count) * shift)
        rate = fields["sample_rate"]
        first, count = _place(fields["wav"].shape[-1], self._samples(rate), draws)
        return timeline.cut(first / rate, (first + count) / rate)

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        if self.max_frames is not None:
            fields["feat"] = _crop(fields["feat"], 0, self.max_frames, draws)
        else:
            fields["wav"] = _crop(fields["wav"], -1, self._samples(fields["sample_rate"]), draws)

    def _samples(self, sample_rate: int) -> int:
        assert self.max_seconds is not None
        return max(1, round(self.max_seconds * sample_rate))


def _place(length: int, most: int, draws: Draws) -> tuple[int, int]:
    """Return where what is kept of ``length`` entries begins, and how many they are."""
    return (0, length) if length <= most else (draws.below(length - most + 1), most)


def _crop(array: Any, axis: int, most: int, draws: Draws) -> Any:
    """Crop to ``most`` entries along the first (0) or last (-1) axis. The result is a copy: a view would keep, and
    send, the whole array."""
    first, count = _place(array.shape[axis], most, draws)
    if count == array.shape[axis]:
        return array
    piece = array[first : first + most] if axis == 0 else array[..., first : first + most]
    return piece.clone() if hasattr(piece, "clone") else piece.copy()
