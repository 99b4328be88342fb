"""``mixture``: simulates overlapped speech of several speakers from single utterances.

Which utterances belong together and where each begins is decided by the plan: by planned lengths, and by draws of the
mixture, those of its first utterance. The parts are decoded when the batch is made. One that is shorter than planned,
or fails, moves no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from math import log
from typing import Any, ClassVar, NamedTuple

import torch

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.audio.recording import in_floats
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import refuse, require, require_counts
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.origin import Origin
from uio_pipes.core.realize import compute, count_trimmed
from uio_pipes.core.roles import check_there, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, least, must_be, within
from uio_pipes.stages.batches.rows import mono
from uio_pipes.stages.utterances.concat import Joined, Joining, Joins, check_alike, join

_LONE = "too_few_speakers"


@dataclass(frozen=True)
class Mixture(Joins):
    """Make overlapped speech of single utterances: for diarisation, separation and recognition of several speakers.

    Each mixture has as many speakers as is drawn. It begins with the utterance that has waited longest, and takes
    those that wait longest of its speaker, and of the other speakers. The result is one utterance: ``wav`` is the sum,
    and ``timeline`` has an event for each part with its text and ``speaker``, or the events of its own timeline; keys
    are joined by "+", and other fields are gone. Put ``shuffle`` before it, and ``reverberate`` for rooms; put noise
    and features after it. An utterance without ``speaker`` is the failure ``missing_speaker``.

    With ``pause``, each speaker speaks without regard to the others, as in the recipe of EEND (Fujita et al. 2019,
    "End-to-end neural speaker diarization with permutation-free objectives", algorithm 1). With ``overlap``, speakers
    take turns, and each turn begins before the last one ends, as in LibriMix (Cosentino et al. 2020) with (1, 1), or
    SparseLibriMix with (0, 1). Give exactly one of the two.

    Lengths are planned ones, and the parts are decoded when the batch is made. A part that fails then is counted and
    left out; so is one whose sample rate or channels differ from those of the first (``mixed_sample_rates``,
    ``mixed_channels``). Where too few speakers wait, at the end, an utterance is left out (``too_few_speakers``).

    Args:
        speakers: (fewest, most) speakers of a mixture; each number in between has equal chances. Default: (1, 4).
        pause: mean seconds of the pause before each utterance of a speaker, the first included. Pauses are drawn from
            an exponential distribution; the shorter, the more overlap. EEND's is 2 to 9. Default: None.
        overlap: (lowest, highest) share of the shorter of two turns in which both speak, from 0 to 1; it is drawn
            evenly for each turn. Nobody overlaps with themselves. Default: None.
        utterances: (fewest, most) utterances of each speaker, fewer where fewer wait. Default: (1, 1).
        gain_db: (lowest, highest) gain in dB, drawn for each speaker. For levels that do not depend on the recordings
            put ``loudness`` before. Default: (0.0, 0.0).
        sources: whether to have ``sources``, too: (S, speakers[1]) float32, what each speaker says in the order of
            their first starts, 0 for speakers who are not there. Default: False.
        window: utterances that wait, among which partners are looked for. Default: 200.

    Raises:
        PipelineError: an argument breaks a rule, or there are features already.
    """

    name: ClassVar[str] = "mixture"
    reasons = (_LONE,)

    speakers: Sequence[int] = (1, 4)
    pause: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "EEND's is 2 to 9 seconds")
    overlap: Sequence[float] | None = field(default=None, metadata=within(0, 1))
    utterances: Sequence[int] = (1, 1)
    gain_db: Sequence[float] = field(default=(0.0, 0.0), metadata=within(-100, 100, "dB"))
    sources: bool = False
    window: int = least(1, 200, "200 is usual")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("speakers", "utterances"):
            object.__setattr__(self, name, require_counts(self.name, name, getattr(self, name), 100))
        both = (self.pause is None) == (self.overlap is None)
        refuse(both, self.name, "give either pause or overlap", "try pause=2.0, or overlap=(0.0, 1.0)")
        rule = f"window must hold the most speakers, {self.speakers[1]}, or more"
        require(self.window >= self.speakers[1], self.name, rule, self.window, "200 is usual")

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        check_there(self.name, ["wav", "speaker"], before)
        refuse(have_features(before), self.name, "it works on audio, but there are features", "put it before them")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _MixtureNode(source, lane, self, site)

    def starts(self, turns: Sequence[Turn], rate: int, draws: Draws) -> Iterator[int]:
        """Yield the start of each turn, in samples at ``rate``."""
        ends: dict[str, int] = {}
        last = Turn("", 0, 1.0)
        for turn in turns:
            free = ends.get(turn.speaker, 0)
            if self.overlap is None:
                start = free + round(-log(1 - draws.uniform()) * (self.pause or 0) * rate)
            else:
                shared = int(draws.uniform(*self.overlap) * min(last.samples, turn.samples))
                start = max(free, max(ends.values(), default=0) - shared)
            ends[turn.speaker] = start + turn.samples
            if ends[turn.speaker] == max(ends.values()):
                last = turn
            yield start


class Turn(NamedTuple):
    """One utterance of a mixture: whose it is, its planned samples, and its gain as a factor."""

    speaker: str
    samples: int
    gain: float


class Mixed(Joined):
    """Utterances of several speakers as one. ``turns``: each with its start, at the rate of ``length``."""

    __slots__ = ("length", "turns")
    length: Plan
    turns: list[tuple[int, Turn]]

    def _like(self, origin: Origin) -> Sample:
        like = super()._like(origin)
        assert isinstance(like, Mixed)
        like.length, like.turns = self.length, self.turns
        return like


Heard = tuple[int, Turn, torch.Tensor]  # from which sample on, whose turn, and what is heard


class _Mixing(Joining):
    """Adds the parts up, each decoded and changed as its own chain says."""

    name = Mixture.name

    def __init__(self, stage: Mixture, ledger: Ledger) -> None:
        made = frozenset(["wav", "sample_rate", "timeline", *(["sources"] if stage.sources else [])])
        super().__init__(made, frozenset(), ledger)
        self.most = stage.speakers[1]

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return sample.length if isinstance(sample, Mixed) else plan

    def join(self, sample: Joined) -> None:
        assert isinstance(sample, Mixed)
        first: dict[str, Any] = {}
        turns = iter(sample.turns)

        def get(part: Sample) -> tuple[int, Turn, dict[str, Any]]:
            start, turn = next(turns)
            compute(part)
            if not hasattr(part.fields.get("wav"), "shape"):
                raise PipelineError("mixture: the audio is not decoded; put .decode_audio() before mixture")
            check_alike(self.name, part.fields, first or part.fields)
            count_trimmed(part, self.ledger)
            first.update({} if first else part.fields)
            return start, turn, part.fields

        spoken, heard, said, events = sample.gather(get, self), list[Heard](), list[Event](), list[Event]()
        rate = first["sample_rate"]
        for start, turn, fields in spoken:
            at, wav, text = start * rate // sample.length.sample_rate, in_floats(fields["wav"]), fields.get("txt")
            end = at + wav.shape[-1]
            heard.append((at, turn, wav))
            said.append(Event(at / rate, end / rate, text if isinstance(text, str) else "", turn.speaker))
            own = fields["timeline"].events if "timeline" in fields else (said[-1].moved(at / rate),)
            events += [one.moved(-at / rate)._replace(speaker=one.speaker or turn.speaker) for one in own]
        total = max(at + wav.shape[-1] for at, _, wav in heard)
        mixed = torch.zeros((*first["wav"].shape[:-1], total))
        for at, turn, wav in heard:
            mixed[..., at : at + wav.shape[-1]].add_(wav, alpha=turn.gain)
        sample.fields |= {"wav": mixed, "sample_rate": rate, "timeline": Timeline.of(events)}
        if "sources" in self.writes:
            names = Timeline.of(said).speakers
            sources = sample.fields["sources"] = torch.zeros((total, self.most))
            for at, turn, wav in heard:
                one = mono(self.name, sample.key, wav)
                sources[at : at + len(one), names.index(turn.speaker)].add_(one, alpha=turn.gain)


class _MixtureNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Mixture, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage, self.salt = stage, site.salt
        self.chain = Chain((_Mixing(stage, lane.ledger),))

    def order(self) -> Iterable[int]:
        return self.held  # as they arrived

    def rebuild(self, order: list[int]) -> None:
        self.waiting: dict[str, deque[int]] = {}  # by their speakers
        for number in order:
            self._wait(number, self.held[number])

    def _wait(self, number: int, item: Sample) -> None:
        self.waiting.setdefault(_speaker(item), deque()).append(number)

    def next(self) -> Sample:
        while True:
            self._fill()
            if not self.held:
                raise StopIteration
            speakers = sorted(self.waiting, key=lambda name: self.waiting[name][0])
            fewest, most = self.stage.speakers
            if len(speakers) >= fewest:
                draws = self.held[self.waiting[speakers[0]][0]].draws(self.salt)
                return self._mixed(speakers[: fewest + draws.below(most - fewest + 1)], draws)
            self._leave(speakers[0])
            self.lane.ledger.count(_LONE)

    def _fill(self) -> None:
        while len(self.held) < self.stage.window and not self.exhausted:
            try:
                number, item = self.pull()
            except StopIteration:
                return
            if self.length(item) is None:
                continue
            if item.plan.frames is not None:
                raise PipelineError("mixture: it works on audio, and there are features; leave them out before it")
            try:
                self._wait(number, item)
            except DataError as error:
                self.lane.ledger.fail(error, self.name)
            else:
                self.lane.ledger.succeeded(self.name)
                self.hold(number, item)

    def _leave(self, speaker: str) -> Sample:
        """Release the utterance of ``speaker`` that has waited longest."""
        numbers = self.waiting[speaker]
        item: Sample = self.release(numbers.popleft())
        if not numbers:
            del self.waiting[speaker]
        return item

    def _mixed(self, speakers: Sequence[str], draws: Draws) -> Mixed:
        stage, (fewest, most) = self.stage, self.stage.utterances
        each: list[list[tuple[Sample, str, float]]] = []
        for name in speakers:
            gain = 10 ** (draws.uniform(*stage.gain_db) / 20)
            count = min(fewest + draws.below(most - fewest + 1), len(self.waiting[name]))
            each.append([(self._leave(name), name, gain) for _ in range(count)])
        rounds = chain.from_iterable(each if stage.overlap is None else zip_longest(*each))
        parts = [one for one in rounds if one is not None]
        plans = [part.plan for part, *_ in parts]
        rates = {plan.sample_rate for plan in plans}
        rate = rates.pop() if len(rates) == 1 else TICKS
        turns = [
            Turn(name, -(-plan.samples * rate // plan.sample_rate), gain)
            for (_, name, gain), plan in zip(parts, plans, strict=True)
        ]
        mixed = join([part for part, *_ in parts], self.chain, Mixed)
        mixed.turns = list(zip(stage.starts(turns, rate, draws), turns, strict=True))
        mixed.length = Plan(max(start + turn.samples for start, turn in mixed.turns), rate)
        return mixed


def _speaker(item: Sample) -> str:
    """Return whose utterance it is. Raises: DataError."""
    speaker = item.get("speaker")
    if speaker is None:
        message = "the utterance has no `speaker`: add it to the list, or make it by .map(…) before mixture"
        raise item.failure(DataError("missing_speaker", message), Mixture.name)
    return str(speaker)
