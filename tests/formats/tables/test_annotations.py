"""Annotations of long recordings: stm, TextGrid, NXT."""

import io
from collections.abc import Mapping
from typing import Any

import pytest

import uio_pipes as uio
from uio_pipes.formats.tables.annotations import nxt_beside, nxt_rows, stm_rows, textgrid_rows
from uio_pipes.formats.tables.files import TableFile


def file(name: str, text: str | bytes) -> TableFile:
    return TableFile(name, io.BytesIO(text.encode() if isinstance(text, str) else text))


STM = """;; a comment
talk 1 SPEAKER 27.03 33.30 <o,f0,male> so {NOISE} words 's

talk B spk 33.3 40 ignore_time_segment_in_scoring
talk 1 spk 40.0 41.0 <unk>
talk 1 spk 41.0
x mic spk .5 1 hello
"""


def test_stm() -> None:
    *rows, last = list(stm_rows(file("a.stm", STM), "utf-8"))
    assert rows[0] == {
        "recording": "talk", "channel": 0, "speaker": "SPEAKER", "start": 27.03, "end": 33.3, "label": "o,f0,male",
        "text": "so {NOISE} words 's",
    }  # fmt: skip
    assert rows[1] == {
        "recording": "talk", "channel": 1, "speaker": "spk", "start": 33.3, "end": 40.0, "label": "",
        "text": "ignore_time_segment_in_scoring",
    }  # fmt: skip
    assert (rows[2]["label"], rows[2]["text"]) == ("unk", "")  # type: ignore[index]
    assert isinstance(rows[3], uio.DataError)
    assert "line 6 is 'talk 1 spk 41.0', not `RECORDING CHANNEL SPEAKER START END" in rows[3].message
    assert isinstance(last, Mapping)
    assert (last["channel"], last["start"], last["text"]) == ("mic", 0.5, "hello")


LONG_GRID = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 12.5
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "001-M"
        xmin = 0
        xmax = 12.5
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 1.25
            text = ""
        intervals [2]:
            xmin = 1.25
            xmax = 3e0
            text = "say ""12"" <sil> now"
        intervals [3]:
            xmin = 3
            xmax = 12.5
            text = "end 3"
    item [2]:
        class = "TextTier"
        name = "clicks"
        xmin = 0
        xmax = 12.5
        points: size = 1
        points [1]:
            number = 4.5
            mark = "click"
"""
SHORT_GRID = """File type = "ooTextFile"
"TextGrid"

0
12.5
<exists>
1
"IntervalTier"
"001-M"
0
12.5
3
0
1.25
""
1.25
3
"say ""12"" <sil> now"
3
12.5
"end 3"
"""


@pytest.mark.parametrize("text", [LONG_GRID, SHORT_GRID, LONG_GRID.encode("utf-16"), SHORT_GRID.encode("utf-8-sig")])
def test_a_textgrid_long_or_short(text: str | bytes) -> None:
    said: dict[str, Any] = {"recording": "R1", "tier": "001-M", "speaker": "001-M"}
    assert list(textgrid_rows(file("TextGrid/R1.TextGrid", text), "utf-8")) == [
        {**said, "start": 1.25, "end": 3.0, "text": 'say "12" <sil> now'},
        {**said, "start": 3.0, "end": 12.5, "text": "end 3"},
    ]


def test_a_textgrid_without_tiers() -> None:
    assert not list(textgrid_rows(file("a.TextGrid", '"ooTextFile"\n"TextGrid"\n0\n1\n<absent>\n'), "utf-8"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"say ""12"" <sil> now"', '"say "12" <sil> now"', "line 18 has '\" <sil> now\"' in place of a number"),
        ("1.25\n3\n", "1.25\n", "in place of a number"),
        ('"end 3"', '"end 3', "is missing|in place of"),
        ('"TextGrid"', '"Pitch 1"', "it begins with 'ooTextFile' and 'Pitch 1', so it is not a TextGrid"),
    ],
)
def test_a_damaged_textgrid_says_where(old: str, new: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(textgrid_rows(file("a.TextGrid", SHORT_GRID.replace(old, new)), "utf-8"))


WORDS = """<?xml version="1.0" encoding="ISO-8859-1"?>
<nite:root nite:id="M.A.words" xmlns:nite="http://nite.sourceforge.net/">
  <w nite:id="M.A.words0" starttime="1.0" endtime="1.2">Okay</w>
  <w nite:id="M.A.words1" starttime="1.2" endtime="1.2" punc="true">,</w>
  <vocalsound nite:id="M.A.words2" type="laugh"/>
  <w nite:id="M.A.words3">caf\xe9</w>
  <w nite:id="M.A.words4" punc="true">.</w>
  <w nite:id="M.A.words5">Next</w>
</nite:root>"""
SEGMENTS = """<nite:root xmlns:nite="http://nite.sourceforge.net/">
  <segment nite:id="M.sync.1" transcriber_start="1.0" transcriber_end="2.5">
    <nite:child href="M.A.words.xml#id(M.A.words0)..id(M.A.words4)"/></segment>
  <segment nite:id="M.sync.2" transcriber_start="2.5" transcriber_end="3">
    <nite:child href="M.A.words.xml#id(M.A.words5)"/></segment>
  <segment nite:id="M.sync.3" transcriber_start="4"><nite:child href="M.A.words.xml#id(M.A.words5)"/></segment>
  <segment nite:id="M.sync.4" transcriber_start="4" transcriber_end="5">
    <nite:child href="M.A.words.xml#id(gone)"/></segment>
  <segment nite:id="M.sync.5" transcriber_start="5" transcriber_end="6">
    <nite:child href="M.B.words.xml#id(x)"/></segment>
</nite:root>"""
MEETINGS = """<meetings xmlns:nite="http://nite.sourceforge.net/"><meeting observation="M">
<speaker nxt_agent="A" global_name="FEE005" channel="2"/></meeting></meetings>"""


def test_nxt() -> None:
    files = [
        ("s/M.A.segments.xml", SEGMENTS),
        ("w/M.A.words.xml", WORDS.encode("latin-1")),
        ("r/meetings.xml", MEETINGS),
    ]
    found = list(nxt_rows(file(name, text) for name, text in files))
    assert {name for name, _ in found} == {"s/M.A.segments.xml"}
    known = {"recording": "M", "agent": "A", "speaker": "FEE005", "channel": 2}
    assert [row for _, row in found[:2]] == [
        {**known, "id": "M.sync.1", "start": 1.0, "end": 2.5, "text": "Okay, café."},
        {**known, "id": "M.sync.2", "start": 2.5, "end": 3.0, "text": "Next"},
    ]
    errors = [row.message for _, row in found[2:] if isinstance(row, uio.DataError)]
    assert [message.split(":")[0] for message in errors] == [
        "segment M.sync.3 has no transcriber_start and _end in seconds",
        "segment M.sync.4 refers to words in 'gone', which is missing",
        "segment M.sync.5 refers to words in 'M.B.words.xml', which is missing",
    ]


def test_nxt_without_speakers_and_with_a_damaged_file() -> None:
    files = [("M.A.segments.xml", SEGMENTS), ("M.A.words.xml", WORDS.encode("latin-1")), ("M.B.words.xml", "<root")]
    (damaged, error), (_, first), *_ = nxt_rows(file(name, text) for name, text in files)
    assert (damaged, first["speaker"]) == ("M.B.words.xml", "M-A")  # type: ignore[index]
    assert isinstance(error, uio.DataError)
    assert error.reason == "bad_table"


def test_the_files_that_belong_to_segments() -> None:
    assert nxt_beside("ami/segments/*.segments.xml") == ("ami/words/*.words.xml", "ami/corpusResources/meetings.xml")
    assert nxt_beside("words/M.A.words.xml") == ()
