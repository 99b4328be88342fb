"""The frames in which a turn has ended, against a reference that looks at each frame by itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline

RATE = 8_000


def labelled(timeline: Timeline, seconds: float = 3.0, features: bool = False, **arguments: Any) -> list[int]:
    """The labels on a grid of 0.1 s; of features, on theirs of 10 ms."""
    row = {"key": "a", "wav": np.ones(round(seconds * RATE), np.float32), "sample_rate": RATE, "timeline": timeline}
    graph = uio.from_iterable([row])
    graph = graph.fbank(8).turn_end(**arguments) if features else graph.turn_end(shift=0.1, **arguments)
    (sample,) = uio.Loader(graph)
    labels: list[int] = sample["turn_end"].tolist()
    return labels


def shown(*words: tuple[float, float, str], **arguments: Any) -> str:
    known = arguments.pop("known", None)
    labels = labelled(Timeline.of([Event(start, end, "w", who) for start, end, who in words], known), **arguments)
    return "".join("01?"[label] for label in labels)


def test_a_turn_ends_where_another_speaker_is_next_and_not_in_a_pause() -> None:
    #                                                            0         1         2
    assert shown((0.2, 0.5, "A"), (0.7, 1.0, "A"), (1.3, 3, "B")) == "000000000011100000000000000000"
    assert shown((0.2, 0.5, "A"), (0.7, 1.0, "A"), (1.3, 3, "A")) == "000000000000000000000000000000"


def test_a_turn_ends_after_so_much_silence() -> None:
    words = (0.0, 0.5, "A"), (1.0, 1.2, "A")
    assert shown(*words) == "000001111100111111111111111111"
    assert shown(*words, silence=0.6) == "000000000000111111111111111111"


def test_while_anybody_speaks_nothing_ends() -> None:
    assert shown((0.0, 2.0, "A"), (0.5, 1.0, "B"), (2.5, 3, "A")) == "000000000000000000001111100000"
    assert shown((0.0, 1.0, "A"), (0.9, 1.4, "B"), (1.6, 3, "A")) == "000000000000001100000000000000"


def test_only_the_turns_of_some() -> None:
    words = (0.0, 0.5, "A"), (1.0, 1.5, "B"), (2.0, 3.0, "A")
    assert shown(*words) == "000001111100000111110000000000"
    assert shown(*words, speakers=["B"]) == "000000000000000111110000000000"
    channels = Timeline.of([Event(0.0, 0.5, channel=0), Event(1.0, 1.5, channel=1), Event(2.0, 3.0, channel=0)])
    assert labelled(channels, speakers=[0]) == [*[0] * 5, *[1] * 5, *[0] * 20]


def test_what_nobody_annotated_is_unknown_and_an_empty_timeline_has_no_turns() -> None:
    assert shown((0.0, 0.5, "A"), known=[(0.0, 1.0), (2.0, 2.5)]) == "0000011111??????????11111?????"
    assert shown() == "0" * 30


def test_frames_are_those_of_the_features() -> None:
    labels = labelled(Timeline.of([Event(0.1, 0.5, "w", "A")]), 1.0, features=True)
    assert len(labels) == 98
    assert [n for n, label in enumerate(labels) if label] == [*range(49, 98)], "whose centres are 12.5 ms + n · 10 ms"


def test_what_cannot_be_used_is_named() -> None:
    row = {"key": "a", "wav": np.ones(RATE, np.float32), "sample_rate": RATE}
    bad = uio.from_iterable([row | {"timeline": Timeline((Event(0.0, float("nan")),))}]).turn_end(shift=0.1)
    loader = uio.Loader(bad)
    with pytest.raises(uio.UioError):
        list(loader)
    assert loader.stats().skipped == {"bad_timeline": 1}
    heard = uio.from_iterable([row]).fbank(8).turn_end()
    with pytest.raises(uio.PipelineError, match="put stack before turn_end"):
        heard.stack()
    for arguments in ({"silence": 0}, {"speakers": "A"}, {"speakers": []}, {"shift": 0}):
        with pytest.raises(uio.PipelineError):
            uio.from_iterable([row]).turn_end(**arguments)


def reference(timeline: Timeline, count: int, silence: float) -> list[int]:
    """Looks at the events around each frame's centre."""
    labels = []
    for frame in range(count):
        at = round((frame + 0.5) * 0.1, 9)
        before = [e for e in timeline.events if e.start <= at]
        if not before or any(e.end > at for e in before):
            labels.append(0)
            continue
        ended = max(e.end for e in before)
        last = [e for e in before if e.end == ended][-1]
        after = [e for e in timeline.events if e.start > at]
        ends = not after or after[0].speaker != last.speaker or round(after[0].start - ended, 9) >= silence
        labels.append(int(ends))
    return labels


TIMES = st.integers(0, 30).map(lambda n: n / 10)
WORDS = st.tuples(TIMES, st.integers(1, 8).map(lambda n: n / 10), st.sampled_from("ABC"))


@settings(deadline=None, max_examples=40)
@given(words=st.lists(WORDS, max_size=8), silence=st.sampled_from([0.2, 0.5]))
def test_it_is_as_a_look_at_each_frame_says(words: list[Any], silence: float) -> None:
    timeline = Timeline.of([Event(start, round(start + length, 9), "w", who) for start, length, who in words])
    assert labelled(timeline, silence=silence) == reference(timeline, 30, silence)
