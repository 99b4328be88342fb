"""YAML with the lines of its keys."""

from __future__ import annotations

import pytest

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.marked_yaml import parse_yaml, place_of

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


def test_a_key_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(PipelineError, match=r"data\.yaml, line 3: 'a' is there twice, first in line 1"):
        parse_yaml("a: 1\nb: 2\na: 3\n", "data.yaml")


@pytest.mark.parametrize("text", ["a: b: c", "[1, 2", b"a: \xff\xfe\xfa"])
def test_what_is_not_yaml_is_named(text: str | bytes) -> None:
    with pytest.raises(PipelineError, match=r"data\.yaml is not YAML: "):
        parse_yaml(text, "data.yaml")


def test_objects_of_python_are_not_made() -> None:
    with pytest.raises(PipelineError, match="is not YAML"):
        parse_yaml("!!python/object/apply:os.getcwd []", "data.yaml")
