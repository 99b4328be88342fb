"""``turn_end``: the frames of the silence in which a turn has ended, the targets of endpointing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import must_be
from uio_pipes.stages.features.grid import DIGITS, FrameLabels, Moments, annotated, covered, spoken

UNKNOWN = -1  # of frames that nobody has annotated; also what ``pad`` pads whole numbers with


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
