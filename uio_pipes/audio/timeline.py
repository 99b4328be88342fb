"""What happens when in a recording: words, turns of speakers and their channels, on the clock of its audio."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

Spans = tuple[tuple[float, float], ...]


class Event(NamedTuple):
    """Something between two times.

    Attributes:
        start: seconds from the beginning of the utterance; below 0 if it began before.
        end: seconds from the beginning of the utterance; it may be beyond its end.
        text: what is said; "" where that is not known.
        speaker: who says it; "" where that is not known.
        channel: number of the channel, counted from 0; None where that is not known.
        ids: token ids, where the text is tokenized already.
    """

    start: float
    end: float
    text: str = ""
    speaker: str = ""
    channel: int | None = None
    ids: tuple[int, ...] = ()

    def moved(self, by: float, speed: float = 1.0) -> Event:
        """Return the event ``by`` seconds earlier, and then ``speed`` times as fast."""
        start, end = (self.start - by) / speed, (self.end - by) / speed
        return Event(start, end, self.text, self.speaker, self.channel, self.ids)  # much faster than ``_replace``


@dataclass(frozen=True)
class Timeline:
    """The events of an utterance in the order of their starts, in seconds of its own audio.

    Whatever cuts or changes the audio moves its timeline along. Events that reach over an edge stay whole, with
    times below 0 or beyond the end; what lies outside is left out.

    Args:
        events: the events, sorted by start.
        known: the spans (start, end) that are annotated, as UEM files say them; outside of them nothing is known.
            None: all of it is annotated.
        offset: seconds of the recording at which the utterance begins.
        conditions: what the annotation says of the whole recording (``text_conditions``); None if it says nothing.
    """

    events: tuple[Event, ...]
    known: Spans | None = None
    offset: float = 0.0
    conditions: Any = None

    @classmethod
    def of(cls, events: Iterable[Event], known: Iterable[tuple[float, float]] | None = None) -> Timeline:
        """Return the timeline of events and spans in any order; events of one start, as they come."""
        return cls(tuple(sorted(events, key=attrgetter("start"))), None if known is None else tuple(sorted(known)))

    def between(self, start: float, end: float) -> Timeline:
        """Return the part from ``start`` to ``end``, in seconds of the recording."""
        return self.cut(start - self.offset, end - self.offset)

    def cut(self, start: float, end: float) -> Timeline:
        """Return the part from ``start`` to ``end``, in seconds of the utterance."""
        # an event of no duration that is where the part begins, too
        inside = (one for one in self.events if one.start < end and (one.end > start or one.start >= start))
        events = tuple(event.moved(start) for event in inside)
        known = self.known and tuple(
            (max(0.0, begin - start), min(end, until) - start)
            for begin, until in self.known
            if begin < end and until > start
        )
        return replace(self, events=events, known=known, offset=self.offset + start)

    def faster(self, speed: float) -> Timeline:
        """Return the timeline of audio that is played ``speed`` times as fast. It can no longer be cut by the clock of
        the recording."""
        known = self.known and tuple((start / speed, end / speed) for start, end in self.known)
        return replace(self, events=tuple(event.moved(0.0, speed) for event in self.events), known=known)

    @classmethod
    def joined(cls, parts: Iterable[tuple[Timeline | None, float, float]]) -> Timeline:
        """Return the timeline of audio that is made of parts: the timeline of each (None if nothing is known of it),
        and where it begins and how long it is, in seconds. Events end where their part does: the audio beyond is not
        theirs. Where parts overlap, what is known of all of them is known."""
        events, unknown, until = list[Event](), list[tuple[float, float]](), 0.0
        for part, at, seconds in parts:
            own, until = part or cls((), ()), max(until, at + seconds)
            unknown += ((start + at, end + at) for start, end in gaps(own.known, seconds))
            for event in own.events:
                start, end = max(0.0, event.start), min(event.end, seconds)
                if start <= end:
                    events.append(event._replace(start=start, end=end).moved(-at))
        return cls.of(events, gaps(unknown, until) if unknown else None)

    @property
    def speakers(self) -> tuple[str, ...]:
        """The speakers in the order of their first starts."""
        return tuple(dict.fromkeys(event.speaker for event in self.events))


def gaps(spans: Iterable[tuple[float, float]] | None, until: float = inf) -> Spans:
    """Return what lies between spans in any order, from 0 to ``until``; of None, which is all there is, nothing."""
    found, last = list[tuple[float, float]](), 0.0
    for start, end in () if spans is None else (*sorted(spans), (until, until)):
        if last < min(start, until):
            found.append((last, min(start, until)))
        last = max(last, end)
    return tuple(found)
