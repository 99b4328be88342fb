"""``mixture``: overlapped speech of several speakers, made of single utterances.

Which utterances belong together and where each begins is decided by planned lengths, and by draws of the mixture, those
of its first utterance. A part that is shorter than planned, or fails when it is decoded, moves no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from math import log
from typing import Any, ClassVar

import torch

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.audio.recording import in_floats
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.chain import TIMELINE, Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import compute, count_trimmed
from uio_pipes.core.roles import check_there, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import RULE, Node, Stage, least, must_be, within
from uio_pipes.stages.utterances.concat import Joined, Joining, Joins, check_alike, join

_COUNTS = {**within(1, 100), RULE: ("two whole numbers", lambda pair: all(map(is_whole, pair)), "as in (1, 4)")}
_LONE = "too_few_speakers"


@dataclass(frozen=True)
class Mixture(Joins):
    """Mix single utterances to overlapped speech, for diarisation, separation and recognition of several speakers.

    A mixture begins with the utterance that has waited longest, and takes those of its speaker and of other speakers
    that have waited longest. ``wav`` is the sum; ``timeline`` has an event for each part with its text and ``speaker``,
    or its own events; keys are joined by "+", and other fields are gone. Put ``shuffle`` and ``reverberate`` before it,
    noise and features after it.

    With ``pause``, each speaker speaks without regard to the others, as in the recipe of EEND (Fujita et al. 2019,
    algorithm 1). With ``overlap``, speakers take turns, each of which begins before the last one ends, as in LibriMix
    (Cosentino et al. 2020) with (1, 1), and SparseLibriMix with (0, 1). Give exactly one of the two.

    A part that fails when it is decoded is counted and left out; so is one whose sample rate or channels differ from
    those of the first (``mixed_sample_rates``, ``mixed_channels``), an utterance without ``speaker``
    (``missing_speaker``), and, where too few speakers wait, as at the end, another one (``too_few_speakers``).

    Args:
        speakers: (fewest, most) speakers of a mixture; each number in between has equal chances. Default: (1, 4).
        pause: mean seconds of the pauses before the utterances of a speaker, drawn from an exponential distribution.
            The shorter, the more overlap; EEND's is 2 to 9. Default: None.
        overlap: (lowest, highest) share of the shorter of two turns in which both speak, from 0 to 1; it is drawn
            evenly for each turn. Nobody overlaps with themselves. Default: None.
        utterances: (fewest, most) utterances of each speaker, fewer where fewer wait. Default: (1, 1).
        window: utterances that wait, among which partners are looked for. Default: 200.

    Raises:
        PipelineError: an argument breaks a rule, or there are features already.
    """

    name: ClassVar[str] = "mixture"
    reasons = (_LONE,)

    speakers: Sequence[int] = field(default=(1, 4), metadata=_COUNTS)
    pause: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "EEND's is 2 to 9 seconds")
    overlap: Sequence[float] | None = field(default=None, metadata=within(0, 1))
    utterances: Sequence[int] = field(default=(1, 1), metadata=_COUNTS)
    window: int = least(1, 200, "200 is usual")

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def starts(self, turns: Sequence[tuple[str, int]], rate: int, draws: Draws) -> Iterator[int]:
        """Yield the start of each of the ``turns``, a speaker with planned samples, in samples at ``rate``."""
        ends: dict[str, int] = {}
        end = last = 0  # of the turn that ends last, and how long it is
        for speaker, samples in turns:
            start = ends.get(speaker, 0)
            if self.overlap is None:
                start += round(-log(1 - draws.uniform()) * (self.pause or 0) * rate)
            else:
                start = max(start, end - int(draws.uniform(*self.overlap) * min(last, samples)))
            ends[speaker] = start + samples
            end, last = max((end, last), (start + samples, samples))
            yield start


class Mixed(Joined):
    """Utterances of several speakers as one. ``turns``: the speaker of each part, and its start at the rate of
    ``length``."""

    __slots__ = ("length", "turns")
    length: Plan
    turns: Sequence[tuple[str, int]]


class _Mixing(Joining):
    """Adds the parts up, each computed as its own chain says."""

    name = Mixture.name

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return sample.length if isinstance(sample, Mixed) else plan

    def join(self, sample: Joined) -> None:
        assert isinstance(sample, Mixed)
        first: dict[str, Any] = {}
        turns = iter(sample.turns)

        def get(part: Sample) -> tuple[int, torch.Tensor, Timeline]:
            speaker, start = next(turns)
            compute(part)
            if not hasattr(part.fields.get("wav"), "shape"):
                raise PipelineError("mixture: the audio is not decoded; put .decode_audio() before mixture")
            check_alike(self.name, part.fields, first or part.fields)
            count_trimmed(part, self.ledger)
            first.update({} if first else part.fields)
            wav, text, own = in_floats(part.fields["wav"]), part.fields.get("txt"), part.fields.get(TIMELINE)
            said = Event(0.0, wav.shape[-1] / first["sample_rate"], text if isinstance(text, str) else "", speaker)
            events = [said] if own is None else [e._replace(speaker=e.speaker or speaker) for e in own.events]
            at = start * first["sample_rate"] // sample.length.sample_rate
            return at, wav, Timeline(tuple(events), own and own.known)

        parts = sample.gather(get, self)
        rate = first["sample_rate"]
        mixed = torch.zeros((*first["wav"].shape[:-1], max(at + wav.shape[-1] for at, wav, _ in parts)))
        for at, wav, _ in parts:
            mixed[..., at : at + wav.shape[-1]] += wav
        timeline = Timeline.joined((own, at / rate, wav.shape[-1] / rate) for at, wav, own in parts)
        sample.fields |= {"wav": mixed, "sample_rate": rate, TIMELINE: timeline}


class _MixtureNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Mixture, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage, self.salt = stage, site.salt
        self.chain = Chain((_Mixing(frozenset(["wav", "sample_rate", TIMELINE]), frozenset(), lane.ledger),))

    def order(self) -> Iterable[int]:
        return self.held  # as they arrived

    def rebuild(self, order: list[int]) -> None:
        """Nothing is known but what is held."""

    def next(self) -> Sample:
        fewest, most = self.stage.speakers
        while True:
            self._fill()
            if not self.held:
                raise StopIteration
            waiting: dict[str, list[int]] = {}  # the one whose utterance has waited longest comes first
            for number in self.held:
                waiting.setdefault(str(self.held[number]["speaker"]), []).append(number)
            first = next(iter(self.held))
            if len(waiting) >= fewest:
                draws = self.held[first].draws(self.salt)
                return self._mixed(list(waiting.items())[: fewest + draws.below(most - fewest + 1)], draws)
            self.release(first)
            self.lane.ledger.count(_LONE)

    def _fill(self) -> None:
        while len(self.held) < self.stage.window and not self.exhausted:
            try:
                number, item = self.pull()
                if self.length(item) is None:
                    continue
                if item.get("speaker") is None:
                    message = "the utterance has no `speaker`: add it to the list, or make it by .map(…) before mixture"
                    raise item.failure(DataError("missing_speaker", message), self.name)
                self.hold(number, item)
            except StopIteration:
                return
            except DataError as error:
                self.lane.ledger.fail(error, self.name)

    def _mixed(self, waiting: Sequence[tuple[str, list[int]]], draws: Draws) -> Mixed:
        stage, (fewest, most) = self.stage, self.stage.utterances
        counts = [fewest + draws.below(most - fewest + 1) for _ in waiting]
        each = [
            [(name, self.release(number)) for number in numbers[:count]]
            for (name, numbers), count in zip(waiting, counts, strict=True)
        ]
        rounds = chain.from_iterable(each if stage.overlap is None else zip_longest(*each))
        names, parts = zip(*filter(None, rounds), strict=True)
        plans = [part.plan for part in parts]
        rates = {plan.sample_rate for plan in plans}
        rate = rates.pop() if len(rates) == 1 else TICKS
        samples = [-(-plan.samples * rate // plan.sample_rate) for plan in plans]
        starts = list(stage.starts(list(zip(names, samples, strict=True)), rate, draws))
        mixed = join(list(parts), self.chain, Mixed)
        mixed.turns = list(zip(names, starts, strict=True))
        mixed.length = Plan(max(map(int.__add__, starts, samples)), rate)
        return mixed
