"""``concat``: joins short utterances into longer ones, whose fields are computed from their parts on access.

Each part keeps the chain that it came with: touching the joined label tokenizes the parts and decodes none of them. The
first links of the joined utterance join the fields of its parts; stages after ``concat`` add theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch

from uio_pipes.audio.containers import TRIMMED
from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.chain import TIMELINE, Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.origin import Origin
from uio_pipes.core.realize import compute, count_trimmed
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.stages.features.grid import frame_shift

T = TypeVar("T")
J = TypeVar("J", bound="Joined")


class Joined(Sample):
    """Several utterances as one.

    ``changed``: a function of the user's has set one of its fields; ``ran``: links that had run before those that run.
    """

    __slots__ = ("changed", "parts", "ran")
    parts: list[Sample]
    changed: bool
    ran: int

    def __setitem__(self, name: str, value: Any) -> None:
        self.changed = True
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self.changed = True
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        for link in self.chain.links:
            if getattr(link, "decides", False):  # only its values show which fields there are
                self.compute(link)
        return super().__iter__()

    def _like(self, origin: Origin) -> Sample:
        like = type(self)(dict(self.fields), origin, self._run_key, self.chain, self.url)
        like.done = self.done
        for name in {*Joined.__slots__, *type(self).__slots__}:
            setattr(like, name, getattr(self, name))
        return like

    def _run(self, bits: int) -> None:
        if self.done >= 0:  # within a link, those after it seem to have run
            self.ran = self.done
        super()._run(bits)

    def gather(self, get: Callable[[Sample], T], link: Joining) -> list[T]:
        """Return ``get(part)`` for each part. A part that fails is counted and removed. ``link``: the one that runs.

        Raises: DataError if no part is left, or if the user has changed fields that were joined from all parts.
        """
        values, good, errors = [], [], []
        for part in self.parts:
            try:
                values.append(get(part))
            except Exception as error:
                failure = part.failure(error, link.name)
                if not isinstance(failure, DataError):
                    raise failure from error
                errors.append(failure)
            else:
                good.append(part)
                link.ledger.succeeded(link.name)
        if errors:
            self._leave(good, errors, link)
        return values

    def _leave(self, good: list[Sample], errors: list[DataError], link: Joining) -> None:
        last = errors.pop() if not good else None
        if self.changed and last is None:
            first = errors[0]
            message = f"{first.message}; all of {self.key} is left out: a function after {link.name} has changed it"
            raise DataError(first.reason, message, url=first.url, member=first.member, offset=first.offset)
        for error in errors:
            link.ledger.fail(error, link.name)
        if last is not None:
            raise last
        self.parts = good
        self.fields["key"] = join_keys(good)
        later = -1 << self.chain.links.index(link)
        done, self.done = self.done & ~later | self.ran & later, 0
        self._run(done)  # compute again, in the order of the chain, what was made with the removed parts
        self.ran = done


def join(parts: list[Sample], chain: Chain, kind: type[J]) -> J:
    """Join ``parts`` to one utterance of the ``kind``, whose ``chain`` begins with links that join fields."""
    first = parts[0]
    origin = first.origin._replace(sub=(*first.origin.sub, -len(parts)))  # a number that flat_map never gives
    joined = kind({"key": join_keys(parts)}, origin, first._run_key, chain, first.url)
    joined.parts, joined.changed, joined.ran = parts, False, 0
    return joined


def join_keys(parts: list[Sample]) -> str:
    return "+".join(part.key for part in parts)


AUDIO = frozenset(["wav", "sample_rate", "feat"])
TEXT = frozenset(["txt"])
LABELS = frozenset(["tokens", "label"])
OWN = frozenset(["key", "start", "end", "duration"])  # they describe one recording
# Scripts written without blanks: Thai and Lao, Khmer, kana and CJK punctuation, ideographs, full-width forms
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


class Joining:
    """A link that joins fields of the parts of a :class:`Joined`."""

    name = "concat"
    of = ""
    reads: frozenset[str] = frozenset()

    def __init__(self, writes: frozenset[str], names: frozenset[str], ledger: Ledger) -> None:
        self.writes, self.names, self.ledger = writes, names, ledger

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        if not isinstance(sample, Joined):
            raise PipelineError(f"{self.name}: only the utterance that it gave can be computed, not a copy")
        self.join(sample)

    def join(self, sample: Joined) -> None:
        raise NotImplementedError


class _JoinText(Joining):
    def join(self, sample: Joined) -> None:
        sample.fields["txt"] = join_text(sample.gather(_text, self))


class _JoinLabels(Joining):
    def join(self, sample: Joined) -> None:
        labels = sample.gather(lambda part: {name: part[name] for name in self.writes}, self)
        for name in self.writes:
            sample.fields[name] = [item for part in labels for item in part[name]]


class _JoinOthers(Joining):
    """Keeps the fields that are equal in all parts (speaker, lang, …)."""

    decides = True

    def join(self, sample: Joined) -> None:
        values = sample.gather(lambda part: {n: part[n] for n in self.writes if n in part}, self)
        for name in self.writes:
            _keep_equal(sample, name, values)


class _JoinAudio(Joining):
    """Computes all fields of the parts, as :func:`~uio_pipes.core.realize.realize` would."""

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        if not isinstance(sample, Joined):
            return plan
        plans = [part.planned() for part in sample.parts]
        return total([p for p in plans if p is not None])

    def join(self, sample: Joined) -> None:
        first: dict[str, Any] = {}

        def get(part: Sample) -> dict[str, Any]:
            compute(part)
            _check(part.fields, first or part.fields, self.names)
            count_trimmed(part, self.ledger)
            part.fields.pop(TRIMMED, None)
            first.update({} if first else part.fields)
            return part.fields

        fields = sample.gather(get, self)
        if "feat" in first:
            sample.fields["feat"] = torch.cat([torch.as_tensor(f["feat"]) for f in fields])
        if _is_waveform(first):
            sample.fields["wav"] = torch.cat([torch.as_tensor(f["wav"]) for f in fields], dim=-1)
            sample.fields["sample_rate"] = first["sample_rate"]
        if TIMELINE in self.names:
            sample.fields[TIMELINE] = Timeline.joined(_timelines(sample.parts))
        for name in first.keys() - self.names:  # written by functions that do not declare it
            _keep_equal(sample, name, fields)


def _timelines(parts: list[Sample]) -> Iterator[tuple[Timeline | None, float, float]]:
    """Yield the timeline of each part, where it begins, and how long it is, in seconds."""
    at = 0.0
    for sample in parts:
        fields = sample.fields
        frames = len(fields["feat"]) * frame_shift(sample) if "feat" in fields else None
        seconds = fields["wav"].shape[-1] / fields["sample_rate"] if frames is None else frames
        yield fields.get(TIMELINE), at, seconds
        at += seconds


def total(plans: list[Plan]) -> Plan:
    """Return the plan of joined utterances."""
    frames = sum(p.length for p in plans) if any(p.frames is not None for p in plans) else None
    if len({p.sample_rate for p in plans}) == 1:
        return Plan(sum(p.samples for p in plans), plans[0].sample_rate, frames)
    return Plan(sum(map(ticks, plans)), TICKS, frames)


def ticks(plan: Plan) -> int:
    """Return the planned microseconds, rounded up."""
    return -(-plan.samples * TICKS // plan.sample_rate)


def _text(part: Sample) -> str:
    if not isinstance(part.get("txt"), str):
        raise DataError("missing_text", "the utterance has no text, but the others that it is joined with have one")
    return str(part["txt"])


def join_text(texts: list[str]) -> str:
    """Join texts with a blank, or without one next to a script without blanks (Chinese, Japanese, Thai, …)."""
    out = ""
    for text in texts:
        blank = out and text and not (_NO_BLANKS.match(out[-1]) or _NO_BLANKS.match(text[0]))
        out += f" {text}" if blank else text
    return out


def _is_waveform(fields: dict[str, Any]) -> bool:
    return hasattr(fields.get("wav"), "shape")


def _keep_equal(sample: Sample, name: str, parts: list[dict[str, Any]]) -> None:
    values = [part.get(name) for part in parts]
    if isinstance(values[0], (str, int, float)) and all(v == values[0] for v in values):
        sample.fields[name] = values[0]
    else:
        sample.fields.pop(name, None)


def _check(fields: dict[str, Any], first: dict[str, Any], names: frozenset[str]) -> None:
    """Raises: DataError if ``fields`` cannot follow those of the ``first`` part, PipelineError if nothing can."""
    if "feat" not in fields and not _is_waveform(fields):
        raise PipelineError("concat: the audio is not decoded; put .decode_audio() before concat")
    for name in (TEXT | LABELS) & names - fields.keys():
        raise DataError(f"missing_{'text' if name == 'txt' else name}", f"the utterance has no {name}; the first has")
    if ("feat" in fields) != ("feat" in first) or _is_waveform(fields) != _is_waveform(first):
        raise DataError("mixed_features", "some utterances have features and some have not; they cannot be joined")
    if "feat" in fields and fields["feat"].shape[1] != first["feat"].shape[1]:
        bins = f"{fields['feat'].shape[1]} bins, those of the first {first['feat'].shape[1]}"
        raise DataError("mixed_features", f"features of {bins}; they cannot be joined")
    if _is_waveform(fields):
        check_alike("concat", fields, first)


def check_alike(stage: str, fields: dict[str, Any], first: dict[str, Any]) -> None:
    """Raises: DataError if a waveform differs from that of the ``first`` part in rate or channels."""
    if fields["sample_rate"] != first["sample_rate"]:
        rates = f"{fields['sample_rate']} Hz, the first {first['sample_rate']} Hz"
        raise DataError("mixed_sample_rates", f"the utterance has {rates}; put .resample(…) before {stage}")
    if fields["wav"].shape[:-1] != first["wav"].shape[:-1]:
        raise DataError("mixed_channels", "the utterances have different numbers of channels; put .mono() before")


def check_bounds(stage: str, max_seconds: float | None, max_frames: int | None, remedy: str) -> None:
    """Raises: PipelineError unless exactly one of these is given, and above 0."""
    given = (max_seconds, max_frames)
    refuse(given.count(None) != 1, stage, "give either max_seconds or max_frames", remedy)
    for name, value in zip(("max_seconds", "max_frames"), given, strict=True):
        require(value is None or value > 0, stage, f"{name} must be above 0", value, remedy)


class Joins(Flow):
    """A stage that joins utterances. Subclasses are frozen dataclasses."""

    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "by the plan: nothing is decoded"

    def check(self, before: Sequence[Stage]) -> None:
        for stage in before:
            if isinstance(stage, Op) and stage.of:
                rule = f"{self.name} joins the usual audio and text only, but {stage.name} works on {stage.of!r}"
                raise PipelineError(f"{rule}: leave one of them out")


@dataclass(frozen=True)
class Concat(Joins):
    """Join consecutive utterances, as long as the result does not exceed a bound.

    The result is one utterance: ``wav``, ``feat``, ``label`` and ``tokens`` are put one after the other, keys are
    joined by "+", transcripts by a blank (by nothing next to a script without blanks: Chinese, Japanese, Thai, …),
    and other texts and numbers (``speaker``, ``lang``) stay if all parts agree. Timelines follow one another. Put
    ``shuffle`` before it, or the same neighbours meet in every epoch; put ``tokenize`` after it if the blanks between
    words are tokens. An utterance that exceeds the bound by itself passes unchanged. Give exactly one of the bounds.

    Lengths are planned ones, and the parts are decoded when the batch is made. A part that fails then is counted
    and left out of the joined utterance; so is one whose sample rate, channels or feature bins differ from those of
    the first part (``mixed_sample_rates``, ``mixed_channels``, ``mixed_features``). Statistics count a joined
    utterance as one.

    Args:
        max_seconds: longest result in seconds of audio. Default: None.
        max_frames: longest result in planned frames (10 ms of audio if there is no feature stage before). Default:
            None.
    """

    name: ClassVar[str] = "concat"

    max_seconds: float | None = None
    max_frames: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self.name, self.max_seconds, self.max_frames, "try max_seconds=20")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ConcatNode(source, lane, self, site)

    def size(self, plan: Plan) -> int:
        """Return the length that is bounded, in microseconds or frames."""
        if self.max_seconds is None:
            return plan.length
        if plan.frames is not None and not plan.samples:
            raise PipelineError("concat: precomputed features have no seconds; give max_frames instead of max_seconds")
        return ticks(plan)

    @property
    def most(self) -> int:
        """The bound, in the same unit."""
        return self.max_frames or round((self.max_seconds or 0) * TICKS)


class _ConcatNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Concat, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage = stage
        self.chains: dict[frozenset[str], Chain] = {}

    def order(self) -> list[int]:
        return self.first

    def rebuild(self, order: list[int]) -> None:
        self.first = order  # the utterance that did not fit after the ones before

    def next(self) -> Sample:
        numbers, self.first = self.first, []
        size = sum(self.stage.size(self.held[n].plan) for n in numbers)
        try:
            while not self.first:
                number, item = self.pull()
                if self.length(item) is None:
                    continue
                self.hold(number, item)
                size += self.stage.size(item.plan)
                if not numbers or size <= self.stage.most:
                    numbers.append(number)
                else:
                    self.first = [number]
        except StopIteration:
            if not numbers:
                raise
        parts = [self.release(n) for n in numbers]
        return parts[0] if len(parts) == 1 else join(parts, self._chain(parts), Joined)

    def _chain(self, parts: list[Sample]) -> Chain:
        names = frozenset(name for part in parts for name in part)
        if names not in self.chains:
            ledger = self.lane.ledger
            others = names - AUDIO - TEXT - LABELS - OWN - {TIMELINE}
            links: list[Joining] = [_JoinAudio(names & (AUDIO | {TIMELINE}), names, ledger)]
            links += [_JoinText(TEXT, names, ledger)] if "txt" in names else []
            links += [_JoinLabels(names & LABELS, names, ledger)] if names & LABELS else []
            links += [_JoinOthers(others, names, ledger)] if others else []
            self.chains[names] = Chain(tuple(links))
        return self.chains[names]
