"""Rows within rows, of a JSON that is read at once and of one that is read piece by piece."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.formats.tables import rows as module
from uio_pipes.formats.tables.rows import expanded, rows_of_json

Rows = list[dict[str, Any]]


@pytest.fixture(params=["at once", "piece by piece"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Rows]:
    if request.param == "piece by piece":
        monkeypatch.setattr(module, "WHOLE", 64)

    def rows(value: Any, path: str) -> Rows:
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        padded = text if request.param == "at once" else text + b" " * 80
        return list(rows_of_json(io.BytesIO(padded), path.split(".") if path else ()))  # type: ignore[arg-type]

    return rows


LONG = "x" * 40
CORPUS = {
    "dataset": LONG, "version": 1, "tags": [1, 2], "about": {"a": 1},
    "audios": [
        {"aid": "a", "duration": 1.5, "segments": [{"sid": "s1", "subsets": ["L"]}, {"sid": "s2", "aid": "own"}]},
        {"aid": "b", "segments": []},
        {"aid": "c"},
        {"aid": "d", "segments": [{"sid": "s3"}]},
    ],
    "after": 2,
}  # fmt: skip


def test_segments_have_the_fields_of_their_recording_and_of_the_file_before_the_list(read: Any) -> None:
    top = {"dataset": LONG, "version": 1}
    assert read(CORPUS, "audios.segments") == [
        {**top, "audios_number": 0, "aid": "a", "duration": 1.5, "segments_number": 0, "sid": "s1", "subsets": ["L"]},
        {**top, "audios_number": 0, "aid": "own", "duration": 1.5, "segments_number": 1, "sid": "s2"},
        {**top, "audios_number": 3, "aid": "d", "segments_number": 0, "sid": "s3"},
    ]
    assert [row["aid"] for row in read(CORPUS, "audios")] == ["a", "b", "c", "d"]


def test_names_and_values(read: Any) -> None:
    """As in YODAS2: a list of videos, each with texts by their keys."""
    videos = [{"audio_id": LONG, "text": {"k1": "t1", "k2": "t2"}}, {"audio_id": "w", "text": {"k3": {"said": "t3"}}}]
    assert read(videos, "text") == [
        {"audio_id": LONG, "text_number": 0, "key": "k1", "text": "t1"},
        {"audio_id": LONG, "text_number": 1, "key": "k2", "text": "t2"},
        {"audio_id": "w", "text_number": 0, "key": "k3", "said": "t3"},
    ]


def test_a_list_of_lists_gives_the_number_of_the_outer_one(read: Any) -> None:
    """As in DuplexConv: turns by channel."""
    file = {"about": LONG, "fs": 48000, "asr": [[{"a": 1}, {"a": 2}], [], [{"a": 3}]]}
    assert [(row["fs"], row["asr_number"], row["a"]) for row in read(file, "asr")] == [
        (48000, 0, 1), (48000, 0, 2), (48000, 2, 3),
    ]  # fmt: skip


def test_lists_that_stand_side_by_side(read: Any) -> None:
    rows = [{"identifier": LONG, "training_data": {"duration_ms": [1, 2], "label": ["a", "b"]}}]
    assert [(row["duration_ms"], row["label"]) for row in read(rows, "training_data")] == [(1, "a"), (2, "b")]


def test_items_that_are_no_objects(read: Any) -> None:
    """As in Libri-Light: intervals with voice."""
    file = {"speaker": LONG, "voice_activity": [[0.5, 1.0], [2, 3]]}
    assert [row["voice_activity"] for row in read(file, "voice_activity")] == [[0.5, 1.0], [2, 3]]


def test_an_object_on_the_way() -> None:
    assert list(expanded([{"k": 1, "a": {"n": 2, "b": [{"c": 3}]}}], ["a", "b"])) == [
        {"k": 1, "n": 2, "b_number": 0, "c": 3}
    ]


def test_one_object_is_one_row() -> None:
    assert list(rows_of_json(io.BytesIO(b'\xef\xbb\xbf {"a": 1}\n'), ())) == [{"a": 1}]


@pytest.mark.parametrize("text", [b'{"audios": [{"sid": 1}, {"sid', b'{"audios": [1 2]}', b"[", b"", b"\xff", b"nope"])
def test_damage_is_a_value_error(read: Any, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text + b"y" * 0, "audios")


def test_rows_must_be_objects(read: Any) -> None:
    with pytest.raises(ValueError, match="its rows must be objects, not 1"):
        read([1, LONG], "")


def test_what_a_long_json_must_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", 10)
    long = io.BytesIO(json.dumps({"a": LONG}).encode())
    with pytest.raises(ValueError, match="must begin with a list: expand= names the one within it"):
        list(rows_of_json(long, ()))
    long.seek(0)
    with pytest.raises(ValueError, match="must begin with a list 'b' in its outermost object"):
        list(rows_of_json(long, ["b"]))


def test_a_long_json_is_read_up_to_what_is_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 open brackets took gigabytes. Those in texts are none, whatever stands before them."""
    monkeypatch.setattr(module, "WHOLE", 10)
    row = {"text": '["{' * 999 + "\\", "\\[": '"'}
    sound = json.dumps([row] * 100).encode()
    assert list(rows_of_json(io.BytesIO(sound), ())) == [row] * 100
    for deep in (b"[" * 100_000, b'{"a": [' * 50_000):
        rows = rows_of_json(io.BytesIO(sound[:-1] + b", " + deep), ())
        assert next(rows) == row
        with pytest.raises(ValueError, match="its brackets are nested more than 500 deep"):
            list(rows)


def test_a_long_json_without_ijson_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", 10)
    monkeypatch.setitem(__import__("sys").modules, "ijson", None)
    with pytest.raises(uio.ListError, match=r"pip install 'uio_pipes\[tables\]'"):
        list(rows_of_json(io.BytesIO(json.dumps(CORPUS).encode()), ["audios"]))


LEAVES = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=4)
OBJECTS = st.dictionaries(st.sampled_from("abcs"), LEAVES | st.lists(st.dictionaries(st.sampled_from("xys"), LEAVES)))


@given(st.lists(OBJECTS, max_size=4), st.dictionaries(st.sampled_from("pq"), LEAVES), st.booleans())
def test_a_long_json_has_the_rows_of_a_short_one(items: Rows, top: dict[str, Any], within: bool) -> None:
    value = {**top, "list": items} if within else items
    path = ["list", "s"] if within else ["s"]
    text = json.dumps(value).encode()

    def rows(whole: int) -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "WHOLE", whole)
            yield from rows_of_json(io.BytesIO(text + b" "), path)

    assert list(rows(0)) == list(rows(len(text) + 1))


def test_an_object_of_objects_has_a_row_for_each(read: Callable[[Any, str], Rows]) -> None:
    """As SpeechBrain's lists by the IDs of utterances."""
    found = {"utt1": {"wav": "{data_root}/a.wav", "words": LONG}, 'utt "2"': {"wav": "b.wav", "key": "own"}}
    assert read(found, "") == [
        {"key": "utt1", "wav": "{data_root}/a.wav", "words": LONG},
        {"key": "own", "wav": "b.wav"},
    ]
