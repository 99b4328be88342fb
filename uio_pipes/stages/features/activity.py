"""``activity``: which speakers speak in each frame, and which frames are annotated: the targets of diarisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import check_names, is_whole, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, least, must_be, one_of
from uio_pipes.core.stage_link import StageLink
from uio_pipes.stages.features.grid import DIGITS, FrameLabels, Moments, annotated, covered, spoken


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
