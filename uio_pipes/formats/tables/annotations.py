"""Annotations of long recordings: NIST's stm, Praat's TextGrid, subtitles, and NXT's XML, in which AMI is. Each gives
rows with ``recording``, ``start`` and ``end`` in seconds, ``speaker`` and ``text``.

Formats: NIST's SCTK (stm); Praat's manual, "TextGrid file formats"; SubRip (srt); the W3C's WebVTT (vtt); the NITE XML
Toolkit and the AMI corpus.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from uio_pipes.base.errors import DataError
from uio_pipes.formats.rows.content import unclear_end
from uio_pipes.formats.tables.files import TableFile
from uio_pipes.formats.tables.rows import Row

_STM = re.compile(
    r"(?P<recording>\S+)\s+(?P<channel>\S+)\s+(?P<speaker>\S+)\s+(?P<start>-?\d*\.?\d+|nan)\s+"
    r"(?P<end>-?\d*\.?\d+|nan)(?:\s+<(?P<label>[^>]*)>)?(?:\s+(?P<text>.*))?"
)


def stm_rows(file: TableFile, encoding: str) -> Iterator[Row | DataError]:
    """Yield the lines of an stm: also ``channel``, counted from 0, and the ``label`` that stands in <>."""
    text = file.content.read().decode(encoding)
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _STM.fullmatch(line.strip())) is not None and not line.startswith(";;"):
            row = found.groupdict("")
            numbers = {name: float(row[name]) for name in ("start", "end")}
            yield {**row, **numbers, "channel": channel_named(row["channel"])}
        elif line.strip() and not line.startswith(";;"):
            message = f"line {number} is {line[:80]!r}, not `RECORDING CHANNEL SPEAKER START END <LABEL> words`"
            yield DataError("bad_row", f"{message}: correct it")
    if "\n" in text and not text.endswith("\n"):
        yield unclear_end(file.name)


def channel_named(name: str) -> int | str:
    """Return the number from 0 of a channel that is named 1, 2, … or A, B, …, as NIST names them."""
    if name.isdecimal():
        return max(0, int(name) - 1)
    return ord(name) - ord("A") if re.fullmatch("[A-Z]", name) else name


_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(?<![\w.\[-])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.\]])|<(exists|absent)>')
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb": "utf-8-sig"}


def textgrid_rows(file: TableFile, encoding: str) -> Iterator[Row | DataError]:
    """Yield the intervals of all tiers that have a text, in the order of the file: ``tier`` is also the ``speaker``.

    A TextGrid, long or short, is a row of texts, numbers and flags: all else in it is there for readers.
    """
    data = file.content.read()
    content = data.decode(_BOMS.get(data[:2], encoding))
    tokens = _TOKEN.finditer(content)

    def take(group: int, wanted: str) -> str:
        if (found := next(tokens, None)) is None:
            raise ValueError(f"{wanted} is missing")
        if found[group] is None:
            line = content.count("\n", 0, found.start()) + 1
            raise ValueError(f"line {line} has {found[0][:40]!r} in place of {wanted}")
        return found[group]

    def text() -> str:
        return take(1, "a text in quotes").replace('""', '"')

    def number() -> float:
        return float(take(2, "a number"))

    header = [text(), text()]
    if header[1] != "TextGrid":
        raise ValueError(f"it begins with {header[0]!r} and {header[1]!r}, so it is not a TextGrid")
    number(), number()
    for _ in range(int(take(2, "a whole number")) if take(3, "<exists>") == "exists" else 0):
        kind, tier = text(), text()
        number(), number()
        for _ in range(int(take(2, "a whole number"))):
            start = number()
            end = number() if kind == "IntervalTier" else start
            if (said := text()).strip() and kind == "IntervalTier":
                yield {"recording": file.stem, "tier": tier, "speaker": tier, "start": start, "end": end, "text": said}


_CUE = re.compile(r"\s*((?:\d+:)?\d+:\d+[.,]\d+)\s+-->\s+((?:\d+:)?\d+:\d+[.,]\d+)(?:\s.*)?")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]*)>|</v>")
_NO_CUES = ("WEBVTT", "NOTE", "STYLE", "REGION")


def subtitle_rows(file: TableFile, encoding: str) -> Iterator[Row | DataError]:
    """Yield the cues of an srt or vtt: ``text`` without tags; the ``speaker`` is that of a tag ``<v NAME>``. A cue in
    which several speak is a row for each of them, all of the same time."""
    data = file.content.read()
    text = data.decode(_BOMS.get(data[:2], encoding)).replace("\r\n", "\n").replace("\r", "\n")
    for block in re.split(r"\n(?:[ \t]*\n)+", text.strip()):
        lines = block.split("\n")
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line), None)
        found = None if at is None else _CUE.fullmatch(lines[at])
        if at is not None and found is not None:
            first, *voices = _VOICE.split(" ".join(lines[at + 1 :]))  # names and what they say, in turn
            said = [(who, _plain(text)) for who, text in zip(["", *voices[::2]], [first, *voices[1::2]], strict=True)]
            for who, text in [one for one in said if one[1]] or said[-1:]:
                speaker = html.unescape(who or "").strip()
                yield {"recording": file.stem, "start": found[1], "end": found[2], "text": text, "speaker": speaker}
        elif block and not block.lstrip("\ufeff").startswith(_NO_CUES):
            yield DataError("bad_row", f"{block[:80]!r} has no line `START --> END`: correct it")


def _plain(said: str) -> str:
    """Return what a cue says without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", said)).strip()


ANNOTATIONS = {"stm": stm_rows, "textgrid": textgrid_rows, "srt": subtitle_rows, "vtt": subtitle_rows}


def nxt_beside(name: str) -> tuple[str, ...]:
    """Return the files of words and of speakers that belong to one of segments, or patterns to a pattern."""
    folder, _, base = name.rpartition("/")
    if not base.endswith(".segments.xml"):
        return ()
    root = folder.removesuffix("segments")
    return f"{root}words/{base.removesuffix('.segments.xml')}.words.xml", f"{root}corpusResources/meetings.xml"


_HREF = re.compile(r"([^#]+)#id\(([^)]+)\)(?:\.\.id\(([^)]+)\))?")


def nxt_rows(files: Iterator[TableFile]) -> Iterator[tuple[str, Row | DataError]]:
    """Yield the segments of NXT's ``M.A.segments.xml``, with the words of ``M.A.words.xml`` and what ``meetings.xml``
    says of the speakers: ``recording`` M, ``agent`` A, ``speaker`` (its global name, or else M-A), ``channel``, ``id``.

    All files are read before the first row comes.
    """
    segments, words, agents = list[tuple[str, Any]](), dict[str, _Words](), dict[tuple[str, str], Mapping[str, str]]()
    for name, content in files:
        base = name.rpartition("/")[2]
        try:
            root = _without_namespaces(content.read())
        except ElementTree.ParseError as error:
            yield name, DataError("bad_table", f"the file is not well-formed XML ({error}): fetch it again")
            continue
        if base.endswith(".segments.xml"):
            segments.append((name, root))
        elif base.endswith(".words.xml"):
            words[base] = _Words(root)
        elif base == "meetings.xml":
            meetings = root.iter("meeting")
            agents |= {(one.get("observation", ""), who.get("nxt_agent", "")): who for one in meetings for who in one}
    for name, root in segments:
        recording, agent = name.rpartition("/")[2].split(".")[:2]
        known = agents.get((recording, agent), {})
        channel = known.get("channel") or ""
        whole: Row = {
            "recording": recording, "agent": agent, "speaker": known.get("global_name") or f"{recording}-{agent}",
            "channel": int(channel) if channel.isdecimal() else None,
        }  # fmt: skip
        yield from ((name, _segment(segment, words, whole)) for segment in root.iter("segment"))


def _without_namespaces(data: bytes) -> Any:
    root = ElementTree.fromstring(data)
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
        one.attrib = {name.rpartition("}")[2]: value for name, value in one.attrib.items()}
    return root


def _segment(segment: Any, words: Mapping[str, _Words], whole: Row) -> Row | DataError:
    try:
        times = {name: float(segment.get(f"transcriber_{name}", "")) for name in ("start", "end")}
        hrefs = filter(None, (_HREF.fullmatch(child.get("href", "")) for child in segment))
        texts = [words[href[1]].between(href[2], href[3] or href[2]) for href in hrefs]
    except ValueError:
        message = "has no transcriber_start and _end in seconds: correct it"
        return DataError("bad_row", f"segment {segment.get('id')} {message}")
    except KeyError as error:
        message = f"refers to words in {error}, which is missing: add it"
        return DataError("bad_row", f"segment {segment.get('id')} {message}")
    return {**whole, "id": segment.get("id", ""), **times, "text": " ".join(filter(None, texts))}


class _Words:
    """The words of a file, by the ids of its elements."""

    def __init__(self, root: Any) -> None:
        self._numbers = {one.get("id", ""): number for number, one in enumerate(root)}
        said = [((one.text or "").strip() if one.tag == "w" else "", one.get("punc") == "true") for one in root]
        self._words = [word if punctuation else f" {word}".rstrip() for word, punctuation in said]

    def between(self, first: str, last: str) -> str:
        """Return the words from one id to another one, punctuation without a blank before it."""
        return "".join(self._words[self._numbers[first] : self._numbers[last] + 1]).strip()
