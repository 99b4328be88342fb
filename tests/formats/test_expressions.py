"""Expressions over the fields of a record, the right-hand sides of ``fields=``."""

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.formats.expressions import compiled, lookup
from uio_pipes.formats.naming import names_of, renamed

RECORD: dict[str, Any] = {
    "path": "train/p225/p225_001.wav",
    "id": "BAC009S0002W0122",
    "duration_ms": 4920,
    "ticks": "00000450",
    "n": 12,
    "empty": "",
    "null": None,
    "custom": {"texts": ["one", "two"], "lang": "de"},
    "a.b": "with a dot",
    "duration[ms]": "1500",
    "it's": "quoted",
    "text": " <SIL> hello <NOISE> ",
    "or": "a word",
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("id", "BAC009S0002W0122"),
        ("a.b", "with a dot"),
        ("it's", "quoted"),
        ("or", "a word"),
        ("custom.texts.0", "one"),
        ("custom.lang", "de"),
        ("custom.texts.2", None),
        ("custom.texts.x", None),
        ("path.x", None),
        ("none", None),
        ("null", None),
        ("'en'", "en"),
        ('"it\'s"', "it's"),
        ("''", ""),
        ("wav/{id | [6:11]}/{id}.wav", "wav/S0002/BAC009S0002W0122.wav"),
        ("{custom.lang}-{n}", "de-12"),
        ("{none}-{n}", None),
        ("none or n", 12),
        ("none or empty or null", None),
        ("none or ''", ""),
        ("none or 'x' | upper", "X"),
        ("empty or id | [:3]", "BAC"),
        ("id | [:3]", "BAC"),
        ("id | [-4:]", "0122"),
        ("id|[0]", "B"),
        ("custom.texts | [-1]", "two"),
        ("custom.texts | [2]", None),
        ("path | stem", "p225_001"),
        ("path | name", "p225_001.wav"),
        ("path | folder | name", "p225"),
        ("n | stem", "12"),
        ("duration_ms | ms", 4.92),
        ("duration[ms] | ms", 1.5),
        ("ticks | cs", 4.5),
        ("n | / 16", 0.75),
        ("empty | ms", None),
        (r"path | m/p(\d+)_/", "225"),
        (r"path | m/\d+/", "225"),
        ("path | m/q/", None),
        (r"path | m/^train\/(.*)\./", "p225/p225_001"),
        (r"path | s/\//-/", "train-p225-p225_001.wav"),
        (r"id | s/(\d+)W/\1\/W/", "BAC009S0002/W0122"),
        ("text | s/<[A-Z]+>// | strip", "hello"),
        ("id | m/a|B/ or 'c'", "B"),
        (r"{id | m/\d{3}/}-x", "009-x"),
        ("id | lower", "bac009s0002w0122"),
        ("none | lower | ms", None),
    ],
)
def test_the_value_of_an_expression(expression: str, value: Any) -> None:
    assert compiled(expression)(RECORD) == value


@pytest.mark.parametrize(
    ("expression", "names", "plain"),
    [
        ("id", ("id",), True),
        ("custom.texts.0", ("custom.texts.0",), True),
        ("'en'", (), False),
        ("{a}/{b | stem}.{a}", ("a", "b"), False),
        ("a or b or 'c'", ("a", "b"), False),
        ("json:speaker | [:3]", ("json:speaker",), False),
    ],
)
def test_what_an_expression_reads(expression: str, names: tuple[str, ...], plain: bool) -> None:
    assert (compiled(expression).names, compiled(expression).plain) == (names, plain)
    assert compiled(expression).text == expression


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "a name is missing"),
        ("| stem", "a name is missing"),
        ("a or ", "a name is missing"),
        ("a |", "is not a filter; there are ms, cs, stem"),
        ("a | [:7] b", "'b' is not a filter"),
        ("a | foo", "there is no filter 'foo'"),
        ("a | m/(/", "is not a regular expression"),
        (r"a | s/x/\2/", "cannot stand for what 'x' matches"),
        ("a | []", "the brackets are empty"),
        ("a | / 0", "nothing can be divided by 0"),
        ("{a", "a brace is not closed"),
    ],
)
def test_what_is_no_expression(expression: str, why: str) -> None:
    with pytest.raises(uio.PipelineError, match=re.escape(why)) as caught:
        compiled(expression)
    assert "write it as in 'path | stem'" in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "found"), [("id | ms", "BAC009"), ("n | [:7]", "12"), ("custom | [0]", "texts")]
)
def test_a_value_that_does_not_fit_is_the_failure_of_its_row(expression: str, found: str) -> None:
    with pytest.raises(uio.DataError, match=re.escape(f"{expression!r} cannot be computed from")) as caught:
        compiled(expression)(RECORD)
    assert caught.value.reason == "bad_value"
    assert found in caught.value.message


WORDS = st.text("abc .'x", min_size=1, max_size=5).map(str.strip).filter(bool).filter(lambda name: " or " not in name)
VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda v: st.lists(v, max_size=3), max_leaves=5)


@given(st.dictionaries(WORDS, VALUES, max_size=5), WORDS)
def test_a_plain_name_gives_what_the_record_has(record: dict[str, Any], name: str) -> None:
    if name.startswith("'") and name.endswith("'") and len(name) > 1:
        return  # a constant
    assert compiled(name).plain
    if record.get(name) is not None or "." not in name:
        assert compiled(name)(record) == record.get(name) == lookup(record, name)


@given(st.text(max_size=20))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        expression = compiled(text)
    except uio.PipelineError:
        return
    with contextlib.suppress(uio.DataError):
        expression({"a": "b"})


@given(st.dictionaries(WORDS, st.integers(), max_size=6), st.dictionaries(WORDS, WORDS, min_size=1, max_size=4))
def test_renaming_by_plain_names(fields: dict[str, int], names: dict[str, str]) -> None:
    names = {ours: theirs for ours, theirs in names.items() if "'" not in theirs}
    taken = {*names, *names.values()} if names else set()
    wanted = {n: v for n, v in fields.items() if n not in taken}
    wanted |= {ours: fields[theirs] for ours, theirs in names.items() if theirs in fields}
    assert renamed(fields, names) == wanted


def test_renaming_by_expressions() -> None:
    fields = {"id": "abc-1", "wav": "x", "info": {"who": ["s"]}, "path": "a/b.wav"}
    names = {"wav": "path", "key": "path | stem", "speaker": "info.who.0", "lang": "'en'", "txt": "none or text"}
    assert renamed(fields, names_of("x", names)) == {
        "id": "abc-1", "info": {"who": ["s"]}, "wav": "a/b.wav", "key": "b", "speaker": "s", "lang": "en",
    }  # fmt: skip
    assert renamed({"a | lower": 1, "'x'": 2}, {"b": "a | lower", "c": "'x'"}) == {"b": 1, "c": 2}  # as they stand
    with pytest.raises(uio.PipelineError, match="from_nemo: fields: 'a \\| foo' is not an expression"):
        uio.from_nemo("a.json", fields={"txt": "a | foo"})
