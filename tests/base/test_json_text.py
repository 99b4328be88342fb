"""JSON that would stop a run, or take it down, is an ordinary ValueError; YAML with the lines of its keys."""

import json
import os
from pathlib import Path

import pytest

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.json_text import parse_json, parse_yaml, place_of
from uio_pipes.sources.config import from_config

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


# YAML


TEXT = """\
a: 1
b:
  - x: 1
    y: &shared {z: 2, v: 4}
  - <<: *shared
    z: 3
"""


def test_values_are_those_of_yaml_and_lines_are_known() -> None:
    read = parse_yaml(TEXT, "data.yaml")
    assert read == {"a": 1, "b": [{"x": 1, "y": {"z": 2, "v": 4}}, {"z": 3, "v": 4}]}
    assert place_of(read, "b", "data.yaml") == "data.yaml, line 2"
    assert place_of(read["b"], 1, "data.yaml") == "data.yaml, line 5"
    assert place_of(read["b"][1], "z", "data.yaml") == "data.yaml, line 6"
    assert place_of(read["b"][1], "absent", "data.yaml") == "data.yaml, line 5"
    assert place_of({"plain": 1}, "plain", "config") == "config"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", r"^data\.yaml, line 3: the key 'a' appears twice, first in line 1"),
        *((text, r"data\.yaml is not YAML: ") for text in ("a: b: c", "[1, 2", b"a: \xff\xfe\xfa")),
        ("!!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_named(text: str | bytes, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        parse_yaml(text, "data.yaml")


def aliases(levels: int) -> str:
    return "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, levels + 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 900 + "]" * 900, r"line 1: lists and mappings are nested more than 50 levels deep"),
        ("\n".join("  " * i + "a:" for i in range(5000)), "line 50: lists and mappings are nested more than 50"),
        ("[" * 5000 + "]" * 5000, "line 1: lists and mappings are nested more|maximum nesting depth"),  # PyYAML 6.0.4
        (f"a: 1\nb: {'9' * 10_000}", r"line 2: a number of 10,000 digits: put it in quotes"),
        (f"a: 0x{'f' * 10_000}", r"line 1: a number of 10,002 digits"),
        ("a: 1\nwav: {{ root }}", r"line 2: a key must be one word: if this is a \{\{ template"),
        (aliases(10), r"line 6: its aliases expand to more than 100,000 values"),
        ("a: 2024-13-01", r"is not YAML: month must be in 1\.\.12"),
        ("&a [*a, *a]", r"is not YAML: "),
    ],
)
def test_what_would_take_absurd_time_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_yaml(text, "data.yaml")
    path = tmp_path / "data.yaml"
    path.write_text(text)
    with pytest.raises(PipelineError, match=message):
        from_config(path)


def test_long_texts_and_aliases_of_a_mix_are_no_matter() -> None:
    many = "d: &d {x: 1, y: 2}\ns:\n" + "- {<<: *d, z: 3}\n" * 2000 + f"t: '{'9' * 10_000}'"
    assert len(parse_yaml(many, "data.yaml")["s"]) == 2000
