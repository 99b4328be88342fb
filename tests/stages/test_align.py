"""``align``: words on the frames of a codec, compared with a slow loop over the rules and with streams by hand."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import pytest
import torch
from helpers_bad import code_points, run
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.stages.text.align import Align

MAIN, PAD, EPAD, IN_WORD, ZERO, BOS, EOS = "SPEAKER_MAIN", 3, 0, 7, -1, 1, 2


def letters(word: str) -> list[int]:
    """As many tokens as letters: a is 10, b is 11."""
    return [10 + ord(letter) - ord("a") for letter in word]


def said(*words: tuple[str, float, float], speaker: str = MAIN) -> list[Event]:
    return [Event(start, end, word, speaker) for word, start, end in words]


def stream(events: list[Event], frames: int, rate: float = 10.0, **options: Any) -> list[int]:
    return Align(letters, rate, **options).stream(Timeline.of(events), frames)


# Written by hand, at 10 frames a second


def test_tokens_come_from_the_frame_of_the_word_on_with_a_mark_before_them() -> None:
    assert stream(said(("ab", 0.2, 0.5)), 7) == [PAD, EPAD, 10, 11, PAD, PAD, PAD]


def test_a_word_in_the_first_frame_has_no_mark() -> None:
    assert stream(said(("a", 0.0, 0.1), ("b", 0.19, 0.3)), 4) == [10, 11, PAD, PAD]


def test_frames_in_which_a_word_goes_on_may_have_a_padding_of_their_own() -> None:
    words = said(("a", 0.1, 0.4), ("b", 0.6, 0.7))
    assert stream(words, 9, in_word_padding=IN_WORD) == [EPAD, 10, IN_WORD, IN_WORD, IN_WORD, EPAD, 11, IN_WORD, PAD]
    assert stream(words[:1], 3, in_word_padding=IN_WORD) == [EPAD, 10, IN_WORD], "the utterance ends within the word"


def test_the_next_word_cuts_off_the_tokens_that_wait_or_comes_after_them() -> None:
    words = said(("abcd", 0.0, 0.2), ("f", 0.2, 0.3))
    assert stream(words, 6) == [10, 11, 15, PAD, PAD, PAD]
    assert stream(words, 6, keep_and_shift=True) == [10, 11, 12, 13, 15, PAD]


def test_of_words_that_begin_in_one_frame_the_last_one_stays() -> None:
    words = said(("abc", 0.1, 0.5), ("f", 0.15, 0.2), ("g", 0.15, 0.2))
    assert stream(words, 4) == [EPAD, 16, PAD, PAD]
    assert stream(words, 7, keep_and_shift=True) == [EPAD, 10, 11, 12, 15, 16, PAD]


TWO = [*said(("a", 0.1, 0.2)), *said(("b", 0.3, 0.4), speaker="x"), *said(("c", 0.5, 0.6)), *said(("d", 0.9, 1.0))]


def test_only_the_main_speaker_or_a_mark_where_the_speaker_changes() -> None:
    assert stream(TWO, 8) == [EPAD, 10, PAD, PAD, EPAD, 12, PAD, PAD]
    assert stream(TWO, 8, main="x") == [PAD, PAD, EPAD, 11, PAD, PAD, PAD, PAD]
    assert stream(TWO, 11, keep_main_only=False) == [EPAD, 10, EPAD, 11, EPAD, 12, PAD, PAD, EPAD, 13, PAD]
    marked = stream(TWO, 11, keep_main_only=False, bos_eos=(BOS, EOS))
    assert marked == [EPAD, BOS, 10, EOS, 11, BOS, 12, PAD, EPAD, 13, PAD]


def test_the_main_speaker_may_be_a_channel() -> None:
    heard = [event._replace(speaker="", channel=int(event.speaker == "x")) for event in TWO]
    assert stream(heard, 8, main=1) == [PAD, PAD, EPAD, 11, PAD, PAD, PAD, PAD]


def test_text_comes_before_or_after_the_audio() -> None:
    words = said(("a", 0.0, 0.1), ("b", 0.15, 0.4), ("c", 0.5, 0.6))
    assert stream(words, 6, audio_delay=0.2) == [11, PAD, EPAD, 12, PAD, PAD]  # a has ended before
    assert stream(words, 8, audio_delay=-0.2) == [ZERO, ZERO, 10, 11, PAD, PAD, EPAD, 12]
    assert stream(words, 2, audio_delay=-9.0) == [ZERO, ZERO], "no longer than the utterance"


def test_words_that_began_before_the_crop_or_do_not_last_are_left_out() -> None:
    words = said(("a", -0.1, 0.2), ("b", 0.2, 0.2), ("c", 0.4, 0.3), ("d", 0.5, 9.0), ("e", float("nan"), 1.0))
    assert stream([*words, *said(("f", 0.6, float("nan")), ("g", float("inf"), float("inf")))], 7) == [
        *[PAD, PAD, PAD, PAD],
        *[EPAD, 13, PAD],
    ]


def test_an_empty_word_ends_what_waits_and_says_nothing() -> None:
    assert stream(said(("abc", 0.0, 0.3), (" ", 0.1, 0.4)), 4, in_word_padding=IN_WORD) == [10, *[IN_WORD] * 3]


def test_nothing_is_said_of_what_nobody_annotated() -> None:
    timeline = Timeline.of(said(("a", 0.1, 0.2), ("b", 0.5, 0.6)), known=[(0.36, 0.75), (0.0, 0.14)])
    assert Align(letters, 10.0).stream(timeline, 9) == [EPAD, ZERO, ZERO, ZERO, EPAD, 11, PAD, ZERO, ZERO]
    late = Align(letters, 10.0, audio_delay=-0.1).stream(timeline, 9)
    assert late == [ZERO, EPAD, ZERO, ZERO, ZERO, EPAD, 11, PAD, ZERO]
    assert Align(letters, 10.0).stream(None, 3) == [ZERO, ZERO, ZERO]
    assert Align(letters, 10.0).stream(Timeline(()), 3) == [PAD, PAD, PAD]
    assert Align(letters, 10.0).stream(Timeline((), ()), 3) == [ZERO, ZERO, ZERO]


def test_token_ids_of_an_event_are_taken_as_they_are() -> None:
    assert stream([Event(0.1, 0.3, "never read", MAIN, ids=(99, 98))], 4) == [EPAD, 99, 98, PAD]


# The rules as a loop over frames


@dataclass(frozen=True)
class Told:
    """What the rules need to know."""

    rate: float
    main: str
    keep_main_only: bool
    bos_eos: tuple[int, int] | None
    keep_and_shift: bool
    audio_delay: float
    text_padding: int
    end_of_text_padding: int
    in_word_padding: int | None
    zero_padding: int


def by_the_rules(events: list[Event], frames: int, told: Told) -> list[int]:
    """``shared/TIMELINES.md``, sentence by sentence."""
    padding = {told.text_padding, told.text_padding if told.in_word_padding is None else told.in_word_padding}
    words = sorted(events, key=lambda event: event.start)
    tokens: dict[int, list[int]] = {}
    before = None
    for number, event in enumerate(words):
        tokens[number] = letters(event.text.strip())
        if told.bos_eos is not None and event.speaker != before:
            if event.speaker == told.main:
                tokens[number].insert(0, told.bos_eos[0])
            elif before == told.main:
                tokens[number].insert(0, told.bos_eos[1])
        before = event.speaker
    to_come = [
        (event.start - told.audio_delay, event.end - told.audio_delay, tokens[number])
        for number, event in enumerate(words)
        if event.start < event.end
        and (event.speaker == told.main or not told.keep_main_only)
        and (told.audio_delay == 0 or event.end > told.audio_delay)
    ]
    row: list[int] = []
    waiting: list[int] = []
    last = -1
    for place in range(frames):
        while to_come and to_come[0][0] * told.rate < place + 1:
            _, end, own = to_come.pop(0)
            waiting = waiting + own if told.keep_and_shift else list(own)
            last = int(end * told.rate)
        if waiting:
            if row and row[-1] in padding:
                row[-1] = told.end_of_text_padding
            row.append(waiting.pop(0))
        elif place <= last and told.in_word_padding is not None:
            row.append(told.in_word_padding)
        else:
            row.append(told.text_padding)
    zeros = min(frames, max(0, int(told.rate * -told.audio_delay)))
    return [told.zero_padding] * zeros + row[zeros:]


TIMES = st.one_of(
    st.floats(0, 6), st.integers(0, 60).map(lambda tenth: tenth / 10), st.integers(0, 75).map(lambda n: n / 12.5)
)
EVENTS = st.builds(
    lambda start, length, text, speaker: Event(start, start + length, text, speaker),
    TIMES,
    st.one_of(st.floats(0, 1.5), st.sampled_from([0.0, 0.08, 0.1, -0.2])),
    st.sampled_from(["", " ", "a", "b", " ab", "abc", "abcdefg"]),
    st.sampled_from([MAIN, MAIN, "x", "y", ""]),
)
TOLD = st.builds(
    Told,
    rate=st.sampled_from([12.5, 10.0, 25.0, 86.1328125]),
    main=st.sampled_from([MAIN, MAIN, "x", "nobody"]),
    keep_main_only=st.booleans(),
    bos_eos=st.sampled_from([None, (BOS, EOS)]),
    keep_and_shift=st.booleans(),
    audio_delay=st.one_of(st.just(0.0), st.floats(-2, 2), st.sampled_from([0.08, -0.8, 1.0])),
    text_padding=st.sampled_from([3, 3, 12]),  # 12 is a letter, too
    end_of_text_padding=st.sampled_from([0, 5]),
    in_word_padding=st.sampled_from([None, 3, 7, 12]),
    zero_padding=st.sampled_from([-1, 99]),
)


@given(events=st.lists(EVENTS, max_size=25), seconds=st.floats(0, 7), told=TOLD)
def test_every_stream_is_that_of_the_rules(events: list[Event], seconds: float, told: Told) -> None:
    told = replace(told, bos_eos=None if told.keep_main_only else told.bos_eos)
    frames, (rate, *_) = ceil(seconds * told.rate), (told.rate,)
    options = {name: value for name, value in vars(told).items() if name != "rate"}
    assert Align(letters, rate, **options).stream(Timeline.of(events), frames) == by_the_rules(events, frames, told)


# In a graph


def rows(count: int = 3, frames: int = 20, **fields: Any) -> list[dict[str, Any]]:
    timeline = Timeline.of(TWO)
    codes = torch.arange(frames * 4, dtype=torch.int32).view(frames, 4) % 97
    return [{"key": f"K{i}", "feat": codes[: frames - i], "timeline": timeline, **fields} for i in range(count)]


def aligned(items: list[dict[str, Any]], **options: Any) -> uio.Pipeline:
    return uio.from_iterable(items).align(letters, 10.0, **options)


def test_the_text_is_the_first_column_of_the_codes() -> None:
    samples, _ = run(aligned(rows()), failures="raise")
    feat = samples[1]["feat"]
    assert (feat.dtype, feat.shape) == (torch.int64, (19, 5))
    assert feat[:, 0].tolist() == stream(TWO, 19)
    assert torch.equal(feat[:, 1:], rows()[1]["feat"].long())


def test_without_codes_the_audio_tells_the_number_of_frames_and_the_plan_knows_it() -> None:
    audio = [{**row, "wav": torch.zeros(1, 8_001), "sample_rate": 8000} for row in rows()]
    graph = uio.from_iterable([{k: v for k, v in row.items() if k != "feat"} for row in audio]).align(letters)
    planned = next(iter(uio.Loader(graph)))
    assert planned["feat"].shape == (13, 1), "⌈1.000125 × 12.5⌉"
    lengths: list[tuple[int, bool]] = []
    list(uio.Loader(graph.filter(lambda sample: lengths.append((sample.plan.length, "feat" in sample.fields)) is None)))
    assert lengths == [(13, False)] * 3


def test_a_batch_has_codes_and_weights_with_time_last() -> None:
    graph = aligned(rows()).delay([0, 0, 1, 0, 1]).batch(3)
    names = {"feats": "codes", "feats_lengths": "codes_lengths"}
    (batch,), _ = run(graph.pad(keep=["loss"], transpose=["feats", "loss"], names=names), failures="raise")
    codes, loss = batch["codes"], batch["loss"]
    assert (codes.dtype, codes.shape, loss.dtype, loss.shape) == (torch.int64, (3, 5, 20), torch.float32, (3, 5, 20))
    assert batch["codes_lengths"].tolist() == [20, 19, 18]
    assert codes[2, :, 18:].eq(-1).all()
    assert torch.equal(loss > 0, codes >= 0)
    whole = aligned(rows()).delay([0] * 5).pack(max_frames=100, keep=["loss"])
    (packed,), _ = run(whole, failures="raise")
    assert (packed["feats"].dtype, packed["feats"].shape, packed["loss"].shape) == (torch.int64, (57, 5), (57, 5))
    assert packed["cu_seqlens"].tolist() == [0, 20, 39, 57]


def test_a_crop_of_the_codes_has_its_text_and_its_part_of_the_timeline() -> None:
    whole, _ = run(aligned(rows()), failures="raise")
    for sample in run(aligned(rows()).random_crop(max_frames=5), failures="raise")[0]:
        first = int(sample["feat"][0, 1]) // 4
        number = int(sample["key"][1:])
        assert torch.equal(sample["feat"], whole[number]["feat"][first : first + 5])
        assert sample["timeline"].offset == pytest.approx(first / 10)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: row.pop("timeline"), "missing_timeline"),
        (lambda row: row.pop("feat"), "missing_field"),
    ],
)
def test_what_is_missing_is_counted_by_name(change: Callable[[dict[str, Any]], Any], reason: str) -> None:
    items = rows()
    change(items[1])
    samples, loader = run(aligned(items))
    assert [sample["key"] for sample in samples] == ["K0", "K2"]
    assert loader.stats().skipped == {reason: 1}


def test_features_are_no_codes() -> None:
    with pytest.raises(uio.PipelineError, match=r"align: the feat of K0 is no codes, .*float32: put \.encoded"):
        run(aligned(rows(feat=torch.ones(5, 4))))


def test_a_word_is_tokenized_once_also_after_a_copy_to_a_worker() -> None:
    asked: list[str] = []

    def tokenizer(word: str) -> list[int]:
        asked.append(word)
        return letters(word)

    stage = Align(tokenizer, 10.0)
    for _ in range(2):
        stage.stream(Timeline.of(said(("a", 0.0, 0.1), (" a ", 0.3, 0.4), ("b", 0.5, 0.6))), 9)
    assert asked == ["a", "b"]
    kept = Align(code_points, 10.0)
    expected = kept.stream(Timeline.of(TWO), 9)
    assert pickle.loads(pickle.dumps(kept)).stream(Timeline.of(TWO), 9) == expected


def test_a_tokenizer_may_give_no_token() -> None:
    assert Align(lambda _: [], 10.0).stream(Timeline.of(TWO), 9) == [PAD] * 9
