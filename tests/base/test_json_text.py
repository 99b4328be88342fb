"""JSON that would stop a run, or take it down, is an ordinary ValueError."""

import json
import os
from pathlib import Path

import pytest

import uio_pipes as uio
from uio_pipes.base.json_text import parse_json

DEEP, LONG = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a": ' + "9" * 10_000 + "}"


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, -3, "ü"]}', ' {"a": 1}\n', "[1]", "1", '"x"', "null"])
def test_sound_json_is_what_it_was(text: str) -> None:
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested too deeply"),
        (LONG, "a number of 10,000 digits"),
        ("{", "Expecting"),
        ("{} x", "Extra data"),
        ("\ufeff{}", "BOM|Expecting"),
        (b'{"a": "\xff\xfe"}', "decode"),
        ('{"a": ["\\ud800"]}', "half of a surrogate pair"),
        ('{"\\uDFFF": 1}', "half of a surrogate pair"),
        (b'"\xed\xa0\x80"', "decode"),
    ],
)
def test_what_cannot_be_used_is_a_value_error(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_names_of_files_may_have_halves_of_pairs() -> None:
    name = os.fsdecode(b"a\xff.wav")
    assert parse_json(json.dumps(name), halves=True) == name
    assert parse_json('"\\ud83d\\ude00"') == "😀"


@pytest.mark.parametrize(("bad", "message"), [(DEEP, "nested too deeply"), (LONG, "10,000 digits")])
def test_such_a_line_costs_one_utterance(bad: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"key": "a", "text": "x"}) + "\n" + bad + "\n")
    loader = uio.Loader(uio.from_jsonl(path).batch(2), failures="skip")
    assert len([s for batch in loader for s in batch]) == 1
    assert loader.stats().skipped == {"bad_line": 1}
    with pytest.raises(uio.UioError, match=message):
        list(uio.Loader(uio.from_jsonl(path).batch(2), failures="raise"))
