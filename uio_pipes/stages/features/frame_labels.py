"""Labels of frames by the ``timeline``: ``activity``, who speaks in each frame, the targets of diarisation; and
``turn_end``, the frames of the silence in which a turn has ended, the targets of endpointing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import check_names, is_whole, refuse, require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import ChecksNext, Grid
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, Stage, least, must_be, one_of
from uio_pipes.core.stage_link import StageLink
from uio_pipes.stages.features.grid import USUAL, grid_of

Moments = npt.NDArray[np.float64]
DIGITS = 9  # of seconds: sums of floats have errors, which must not move a frame
UNKNOWN = -1  # of frames that nobody has annotated; also what ``pad`` pads whole numbers with


class FrameLabels(ChecksNext, Op):
    """A stage that makes labels of frames of the ``timeline``. Subclasses are frozen dataclasses with a field
    ``shift``: seconds from frame to frame, if no stage tells it."""

    shift: float | None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["timeline", "feat", "sample_rate", *(["wav"] if self.shift else [])])

    @property
    def may_lack(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["sample_rate", *(["wav", "feat"] if self.shift else [])])

    def check_next(self, stage: Stage) -> None:
        if isinstance(stage, Op) and not stage.of and stage.changes_length:
            sentence = f"{stage.name} changes the length, which frames of {self.name} would not follow"
            late = {"wav", "feat"} & {*stage.reads} & {*stage.writes}
            refuse(late, self.name, sentence, f"put {stage.name} before {self.name}")

    def frames(self, sample: Sample) -> tuple[int, Grid]:
        """Return how many frames there are, and where. Raises: PipelineError if that is not known, or told twice."""
        fields = sample.fields
        rate = fields.get("sample_rate", USUAL)
        grid = grid_of(self, sample, self.shift, rate)
        if fields.get("feat") is not None:
            return len(fields["feat"]), grid
        return ceil(round(fields["wav"].shape[-1] / rate / grid.shift, DIGITS)), grid


@dataclass(frozen=True)
class Activity(FrameLabels):
    """Make the targets of diarisation of the ``timeline``: who speaks in which frame.

    ``activity`` (T, S) float32 has a column for each speaker. T is the number of frames of ``feat``, whose grid is that
    of the stages before; without features, give ``shift``. ``known`` (T,) float32 is 1 where a frame's centre is
    annotated (a UEM says so, or there is none). Put it after all that changes the number of frames, and into the batch
    by ``pad(keep=["activity", "known"])``. Times that are no numbers are the failure ``bad_timeline``.

    Args:
        speakers: how many columns there are, for speakers in the order of their first starts; or the names of the
            speakers, one for each column. Default: 4.
        by: "centre", 1 if a speaker's segments cover the frame's centre, or "share", which share of the time from
            frame to frame they cover. Default: "centre".
        powerset: how many may speak at once, for ``powerset`` (T,) int64: the class of the set of those who speak, as
            in pyannote 3 (Plaquet and Bredin 2023): nobody, each alone, then each pair. Of more at once, it is the
            first class of so many; of shares, those from 0.5 on speak. Default: None, no such field.
        extra: what to do with an utterance that has more speakers than columns, or one without a column: "fail"
            (``too_many_speakers``), or "drop" their segments (noted as ``dropped_speakers``). Default: "fail".
        subsampling: frames that the model makes one of, as by strided convolutions: T becomes ⌈T / subsampling⌉.
            Default: 1.
        shift: seconds from frame to frame, for utterances without features or with precomputed ones. Default: None,
            that of the features.
    """

    name: ClassVar[str] = "activity"

    speakers: int | Sequence[str] = 4
    by: str = one_of(("centre", "share"), "centre")
    powerset: int | None = least(1, None, "pyannote's is 2")
    extra: str = one_of(("fail", "drop"), "fail")
    subsampling: int = least(1, 1, "Sortformer's is 8")
    shift: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "try 0.02")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.speakers):
            check_names(self.name, "speakers", self.speakers)
            object.__setattr__(self, "speakers", tuple(self.speakers))  # type: ignore[arg-type]
        require(self.columns >= 1, self.name, "speakers must be 1 or more, or names", self.speakers, "4 is usual")
        rule = f"powerset must not be above the number of speakers, {self.columns}"
        require((self.powerset or 1) <= self.columns, self.name, rule, self.powerset, "2 is usual")

    @property
    def columns(self) -> int:
        return self.speakers if isinstance(self.speakers, int) else len(self.speakers)

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["activity", "known", *(["powerset"] if self.powerset else [])])

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return Deferred(source, _ActivityLink(self, site, lane.ledger))

    @cached_property
    def classes(self) -> npt.NDArray[np.float32]:
        """Who speaks in each class of the powerset: (classes, speakers)."""
        sets = [one for count in range((self.powerset or 0) + 1) for one in combinations(range(self.columns), count)]
        return np.array([[speaker in one for speaker in range(self.columns)] for one in sets], np.float32)


class _ActivityLink(StageLink):
    __slots__ = ("ledger",)
    stage: Activity

    def __init__(self, stage: Activity, site: Site, ledger: Ledger) -> None:
        super().__init__(stage, site)
        self.ledger = ledger

    def run(self, sample: Sample) -> None:
        stage, fields = self.stage, sample.fields
        count, grid = stage.frames(sample)
        count, (shift, centre) = -(-count // stage.subsampling), grid.joined(stage.subsampling, stage.subsampling)
        edges = np.round(centre + shift * (np.arange(2 * count + 1) / 2 - 0.5), DIGITS)  # and centres between
        timeline: Timeline = fields["timeline"]
        spans = spans_of(timeline, edges)
        columns = list(spans)[: stage.columns] if isinstance(stage.speakers, int) else stage.speakers
        if extra := spans.keys() - {*columns}:
            if stage.extra == "fail":
                names = ", ".join(sorted(map(repr, extra)))
                rule = f"it has {len(spans)} speakers, among them {names}, but activity has {stage.columns} columns"
                raise DataError("too_many_speakers", f"{rule}: raise speakers, or give extra='drop'")
            self.ledger.count("dropped_speakers")
        activity = np.zeros((count, stage.columns), np.float32)
        for column, name in enumerate(columns):
            if (own := spans.get(name)) is not None:
                activity[:, column] = covered(own, edges[1::2]) if stage.by == "centre" else shares(own, edges)
        known = annotated(timeline, edges[1::2]).astype(np.float32)
        fields |= {"activity": torch.from_numpy(activity), "known": torch.from_numpy(known)}
        if stage.powerset:
            speak = (activity >= 0.5).astype(np.float32)
            fields["powerset"] = torch.from_numpy((speak @ stage.classes.T).argmax(1))


def spans_of(timeline: Timeline, edges: Moments) -> dict[str, Moments]:
    """Return the times (N, 2) of what each speaker says between the edges, by speaker in the order of first starts.

    Raises: DataError ``bad_timeline``.
    """
    events, times = spoken(timeline)
    found: dict[str, list[int]] = {}
    for number in map(int, np.flatnonzero((times[:, 1] > edges[0]) & (times[:, 0] < edges[-1]))):
        found.setdefault(events[number].speaker, []).append(number)
    return {name: times[numbers] for name, numbers in found.items()}


def shares(spans: Moments, edges: Moments) -> Moments:
    """Return the share of each frame that is covered by spans (N, 2), sorted by start. ``edges``: the edges
    of frames with their centres in between."""
    ends = np.maximum.accumulate(spans[:, 1])
    apart = np.flatnonzero(spans[1:, 0] > ends[:-1])  # spans after which nobody speaks
    runs = np.stack([spans[np.r_[0, apart + 1], 0], ends[np.r_[apart, -1]]], 1)
    said = np.r_[0, np.cumsum(runs[:, 1] - runs[:, 0])]
    until = np.interp(edges[::2], runs.reshape(-1), np.repeat(said, 2)[1:-1])  # what has been said at each edge
    covered: Moments = np.diff(until) / np.diff(edges[::2])
    return covered


@dataclass(frozen=True)
class TurnEnd(FrameLabels):
    """Mark the frames in which a turn has ended, by the ``timeline``: what a model that endpoints learns to tell.

    ``turn_end`` (T,) int64 is 1 in frames whose centre lies in the silence behind the last word of a turn, until
    anybody speaks again, and 0 elsewhere; -1 where the timeline is not annotated. A silence is the end of a turn if
    another speaker is the next one, or if it lasts for ``silence`` seconds or more; otherwise it is a pause (a "hold"
    and no "shift" of Ekstedt and Skantze 2022). After the last word of all, a turn has ended.

    T is the number of frames of ``feat``; without features, give ``shift``. Put it after all that changes the number of
    frames, and into the batch by ``pad(keep=["turn_end"])``, or ``chunks(…, along=["turn_end"])``. Times that are no
    numbers are the failure ``bad_timeline``.

    Args:
        silence: seconds of silence from which on a turn has ended, even if the same speaker goes on. Default: 0.5.
        speakers: whose turns to mark: names, or numbers of channels, counted from 0. Default: None, of all.
        shift: seconds from frame to frame, for utterances without features, or with precomputed ones. Default: None,
            that of the features.
    """

    name: ClassVar[str] = "turn_end"
    writes = ("turn_end",)

    silence: float = must_be(0.5, "above 0", lambda n: n > 0, "0.5 is usual")
    speakers: Sequence[str | int] | None = None
    shift: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "try 0.02")

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = isinstance(self.speakers, (list, tuple)) and bool(self.speakers)
        ok = self.speakers is None or (listed and all(isinstance(one, str) or is_whole(one) for one in self.speakers))
        rule = "speakers must be a list of names, or of numbers of channels"
        require(ok, self.name, rule, self.speakers, 'as in ["user"]')
        object.__setattr__(self, "speakers", self.speakers and tuple(self.speakers))

    def apply(self, sample: Sample, draws: Draws) -> None:
        count, grid = self.frames(sample)
        centres = np.round(grid.first + grid.shift * np.arange(count), DIGITS)
        timeline: Timeline = sample.fields["timeline"]
        labels = covered(self.ends(timeline), centres).astype(np.int64)
        labels[~annotated(timeline, centres)] = UNKNOWN
        sample.fields["turn_end"] = torch.from_numpy(labels)

    def ends(self, timeline: Timeline) -> Moments:
        """Return the silences (N, 2) in which a turn has ended, in seconds. Raises: DataError ``bad_timeline``."""
        events, times = spoken(timeline)
        starts, ends = times.T
        until = np.maximum.accumulate(ends)  # when all have ended that had begun, and which of them was the last
        latest = np.maximum.accumulate(np.where(ends == until, np.arange(len(ends)), 0))
        again = np.append(starts[1:], np.inf)
        silent = np.flatnonzero(again > until)
        last, until, again = latest[silent], until[silent], again[silent]
        who = np.array([*(event.speaker or event.channel for event in events), None], object)
        goes_on = (who[last] == who[silent + 1]) & (np.round(again - until, DIGITS) < self.silence)
        mine = [self.speakers is None or not {*events[i][3:5]}.isdisjoint(self.speakers) for i in last]
        marked: Moments = np.stack([until, again], 1)[~goes_on & np.array(mine, bool)]
        return marked


def spoken(timeline: Timeline) -> tuple[list[Event], Moments]:
    """Return the events that last, and the start and the end of each, (N, 2) in seconds.

    Raises: DataError ``bad_timeline``.
    """
    times = np.array([event[:2] for event in timeline.events], np.float64).reshape(-1, 2).round(DIGITS)
    if not np.isfinite(times).all():
        raise DataError("bad_timeline", "some events have no times (NaN or infinite): correct them, or leave them out")
    lasts = times[:, 1] > times[:, 0]
    return [event for event, one in zip(timeline.events, lasts, strict=True) if one], times[lasts]


def covered(spans: Moments, times: Moments) -> npt.NDArray[np.bool_]:
    """Return which of the sorted ``times`` lie in one of the spans (N, 2): some have begun by then that have not
    ended. A span begins with its first moment."""
    starts, ends = (np.searchsorted(np.sort(spans[:, side]), times, "right") for side in (0, 1))
    within: npt.NDArray[np.bool_] = starts > ends
    return within


def annotated(timeline: Timeline, times: Moments) -> npt.NDArray[np.bool_]:
    """Return which of the sorted ``times`` the timeline knows."""
    if timeline.known is None:
        return np.ones(len(times), np.bool_)
    return covered(np.round(np.array(timeline.known).reshape(-1, 2), DIGITS), times)
