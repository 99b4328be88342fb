"""``inspect``: counts utterances, hours, characters, sample rates and failures in data, without decoding audio."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from uio_pipes.audio.containers import sniff_codec
from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.length import TICKS, Plan, audio_info
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import in_order
from uio_pipes.base.urls import suffix_of
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger, Tally, add_tallies
from uio_pipes.core.sample import Sample
from uio_pipes.io.references import AudioInfo, Ref
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT
from uio_pipes.sources.conversations import recordings_of
from uio_pipes.sources.table.streamed import rows_without_audio
from uio_pipes.sources.touchdataset.folder import Pcm

SAMPLES = 5
REPORTS = 20
BIN = 0.5  # seconds of a bin in the histogram of durations


@dataclass
class Contents:
    """The contents of data. ``durations``: bins of half a second → utterances; ``unknown``, ``unknown_rates``:
    utterances whose length, or sample rate, shows only in decoding; ``left_out``: what the source leaves out on
    purpose; ``speech``: see :func:`heard`; ``whole``: False if ``limit`` stopped the count."""

    utterances: int = 0
    seconds: float = 0.0
    shortest: tuple[float, str] | None = None
    longest: tuple[float, str] | None = None
    durations: Counter[int] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    empty_texts: int = 0
    rates: Counter[int] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    speakers: Counter[str] = field(default_factory=Counter)
    speech: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    unknown_rates: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = True
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def odd(self) -> dict[str, int]:
        """Characters that are rarely wanted in a transcript: control, private and replacement characters."""
        odd = ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs")
        counts = self.characters.most_common()
        return {c: n for c, n in counts if c == "\ufffd" or unicodedata.category(c) in odd}

    def add(self, other: Contents) -> None:
        """Add the contents of another part of the data."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, Counter):
                mine.update(value)
            elif isinstance(value, list):
                mine += value
            elif isinstance(value, bool):
                self.whole = self.whole and value
            elif isinstance(value, (int, float)):
                setattr(self, name, mine + value)
        add_tallies(self.tallies, other.tallies)
        for found in (other.shortest, other.longest):
            if found is not None:
                self._extremes(*found)
        self.samples, self.reports = self.samples[:SAMPLES], self.reports[:REPORTS]

    def take(self, ledger: Ledger, pipeline: Pipeline) -> None:
        """Take over what a ledger counted."""
        on_purpose = {reason for stage in pipeline._every_stage() for reason in stage.reasons}
        self.left_out.update({reason: n for reason, n in ledger.skipped.items() if reason in on_purpose})
        self.failures.update({reason: n for reason, n in ledger.skipped.items() if reason not in on_purpose})
        self.reports += ledger.reports[: max(0, REPORTS - len(self.reports))]
        add_tallies(self.tallies, ledger.tallies)

    def see(self, sample: Sample) -> None:
        """Count one utterance. Raises: DataError if its header is bad, or its segment lies outside the audio."""
        fields = sample.fields
        several = list(recordings_of(fields))
        plan = sample.stream("audio") if several else sample.planned()
        infos = [_info(one) for one in several or [fields]]
        self.utterances += 1
        self.fields.update(sorted(fields))
        if plan is None:
            self.unknown += bool(several) or "wav" in fields  # without audio there is no length to know
        else:
            seconds = _seconds(plan, {} if several else fields)
            self.seconds += seconds
            self.durations[int(seconds / BIN)] += 1
            self._extremes(seconds, sample.key)
        for one, info in zip(several or [fields], infos, strict=True):
            if info is not None:
                self.rates[info.sample_rate] += 1
                self.channels[info.channels] += 1
            elif "wav" in one and "feat" not in one:
                self.unknown_rates += 1
            self.codecs["features" if "feat" in one else _codec(one.get("wav"))] += 1
        if isinstance(txt := fields.get("txt"), str):
            self.texts += 1
            self.empty_texts += not txt.strip()
            self.characters.update(c for c in txt if c != " ")
        if (speaker := sample.get("speaker")) is not None:
            self.speakers[str(speaker)] += 1
        if TIMELINE in fields and plan is not None:
            self.speech.update(heard(sample[TIMELINE], seconds))
        if len(self.samples) < SAMPLES:
            text, info = str(sample.fields.get("txt", ""))[:200], infos[0]
            shown = {"key": sample.key, "seconds": None if plan is None else round(seconds, 2), "txt": text}
            rate = {} if info is None else {"sample_rate": info.sample_rate}
            self.samples.append(shown | {"from": sample.url} | rate)

    def _extremes(self, seconds: float, key: str) -> None:
        if self.shortest is None or seconds < self.shortest[0]:
            self.shortest = (seconds, key)
        if self.longest is None or seconds > self.longest[0]:
            self.longest = (seconds, key)

    def summary(self) -> dict[str, Any]:
        """Return the contents for JSON."""
        names = ("rates", "channels", "codecs", "fields", "failures", "left_out")
        counts = {n: dict(getattr(self, n).most_common()) for n in names}
        bins = {f"{at * BIN:g}": n for at, n in sorted(self.durations.items())}
        return {
            "utterances": self.utterances, "hours": self.hours, "whole": self.whole, "unknown_lengths": self.unknown,
            "unknown_rates": self.unknown_rates,
            "shortest": self.shortest, "longest": self.longest, "durations": bins, "texts": self.texts,
            "empty_texts": self.empty_texts, "characters": len(self.characters),
            "most_frequent": dict(self.characters.most_common(20)), "odd_characters": self.odd,
            "speakers": len(self.speakers),
            "hours_of_speech": {name: n / 3600 for name, n in self.speech.most_common()}, **counts,
            "reports": self.reports, "samples": self.samples,
        }  # fmt: skip


OVERLAP, SILENCE = "(overlap)", "(silence)"


def heard(timeline: Timeline, seconds: float) -> Counter[str]:
    """Return the seconds in which each speaker speaks, and in which several or none of them do, where that is known."""
    spans = timeline.known if timeline.known is not None else ((0.0, seconds),)
    edges = [(at, step, OVERLAP) for span in spans for at, step in zip(span, (1, -1), strict=True)]
    for event in timeline.events:
        who = event.speaker or ("" if event.channel is None else f"channel {event.channel}")
        edges += [(event.start, 1, who), (event.end, -1, who)]
    found, open_now, last = Counter[str](), Counter[str](), 0.0
    for at, step, who in sorted((min(max(0.0, at), seconds), step, who) for at, step, who in edges):
        if open_now[OVERLAP]:  # within a known span
            speaking = [name for name, n in open_now.items() if n and name != OVERLAP]
            for name in [*speaking, *([OVERLAP] if len(speaking) > 1 else [] if speaking else [SILENCE])]:
                found[name] += at - last  # type: ignore[assignment]
        open_now[who] += step
        last = at
    return found


Progress = Callable[[int], object]  # is given how many utterances were seen since it was called before


def inspect(pipeline: Pipeline, *, limit: int | None = None, jobs: int = 1, progress: Progress = int) -> Contents:
    """Look at every utterance of ``pipeline`` (a source), or at about the first ``limit``.
    ``progress`` is called for each.

    Raises: ListError if the list cannot be used.
    """
    total = Contents()
    if limit is not None or jobs == 1:
        total.add(_part(pipeline, 0, 1, limit, progress))
    else:
        work: Any = ((lane, (pipeline, lane, jobs, None)) for lane in range(jobs))
        lost = ListError("a process of inspect was killed (out of memory?): use fewer with --jobs")
        for _, part in in_order(_part, work, jobs, ["uio_pipes.api"], lost):
            total.add(part)
            progress(part.utterances)
    ledger = Ledger(LENIENT)
    for error in rows_without_audio(pipeline, total.tallies):
        ledger.fail(error, "inspect")
    total.take(ledger, pipeline)
    return total


def _part(pipeline: Pipeline, lane: int, lanes: int, limit: int | None, progress: Progress = int) -> Contents:
    ledger, seen = Ledger(LENIENT), Contents()
    for sample in items_of(pipeline.build(Lane(ledger, lane, lanes))):
        if limit is not None and seen.utterances >= limit:
            seen.whole = False
            break
        try:
            seen.see(sample)
        except DataError as error:
            failure = sample.failure(error, "inspect")
            assert isinstance(failure, DataError)
            ledger.fail(failure, "inspect")
        progress(1)
        if len(ledger.reports) > REPORTS:
            del ledger.reports[REPORTS:]
    seen.take(ledger, pipeline)
    return seen


def _info(fields: dict[str, Any]) -> AudioInfo | None:
    """Return rate, length and channels of the audio, if there is any; None if only decoding shows them.

    Raises: DataError if the segment lies outside the audio.
    """
    wav = fields.get("wav")
    if wav is None or "feat" in fields:
        return None
    info: AudioInfo | None
    if isinstance(wav, (np.ndarray, torch.Tensor)):
        info = AudioInfo(int(wav.shape[-1]), int(fields["sample_rate"]), 1 if wav.ndim == 1 else int(wav.shape[0]))
    else:
        info = audio_info(wav, fields)
    if info is not None and not (fields.get("start") is None and fields.get("end") is None):
        sample_range(info.samples, info.sample_rate, fields.get("start"), fields.get("end"))
    return info


def _codec(wav: Any) -> str:
    if isinstance(wav, str):
        return suffix_of(wav)[:8] or "(no suffix)"
    if wav is None or isinstance(wav, (Pcm, np.ndarray, torch.Tensor)):
        return "none" if wav is None else "samples"
    return sniff_codec(wav.read_at(0, min(64, wav.size)) if isinstance(wav, Ref) else wav[:64]) or "samples"


def _seconds(plan: Plan, fields: dict[str, Any]) -> float:
    """Return the length that is planned, or the one that is declared, without what may have been rounded off it."""
    if plan.sample_rate == TICKS and "duration" in fields:
        return float(fields["duration"])
    return plan.length / 100 if plan.frames is not None else plan.samples / plan.sample_rate
