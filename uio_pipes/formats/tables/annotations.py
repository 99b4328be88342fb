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

_STM = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(-?\d*\.?\d+|nan)\s+(-?\d*\.?\d+|nan)(?:\s+<([^>]*)>)?(?:\s+(.*))?")


def stm_rows(file: TableFile, encoding: str) -> Iterator[Row | DataError]:
    """Yield the lines of an stm: also ``channel``, counted from 0, and the ``label`` that stands in <>."""
    text = file.content.read().decode(encoding)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        found = _STM.fullmatch(line.strip())
        if found is None:
            message = f"line {number} is {line[:80]!r}, not `RECORDING CHANNEL SPEAKER START END <LABEL> words`"
            yield DataError("bad_row", f"{message}: correct it")
            continue
        recording, channel, speaker, start, end, label, words = found.groups()
        yield {
            "recording": recording, "channel": channel_named(channel), "speaker": speaker,
            "start": float(start), "end": float(end), "label": label or "", "text": words or "",
        }  # fmt: skip
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
    """Yield the intervals of all tiers that have a text, in the order of the file: ``tier`` is also the ``speaker``."""
    data = file.content.read()
    tokens = _TextGrid(data.decode(_BOMS.get(data[:2], encoding)))
    header = [tokens.text(), tokens.text()]
    if header[1] != "TextGrid":
        raise ValueError(f"it begins with {header[0]!r} and {header[1]!r}, so it is not a TextGrid")
    tokens.number(), tokens.number()
    for _ in range(tokens.count() if tokens.flag() else 0):
        kind, tier = tokens.text(), tokens.text()
        tokens.number(), tokens.number()
        for _ in range(tokens.count()):
            start = tokens.number()
            end = tokens.number() if kind == "IntervalTier" else start
            text = tokens.text()
            if text.strip() and kind == "IntervalTier":
                yield {"recording": file.stem, "tier": tier, "speaker": tier, "start": start, "end": end, "text": text}


class _TextGrid:
    """The texts, numbers and flags of a TextGrid, long or short: all else in it is there for readers."""

    def __init__(self, text: str) -> None:
        self._text, self._found = text, _TOKEN.finditer(text)

    def text(self) -> str:
        return self._next(1, "a text in quotes").replace('""', '"')

    def number(self) -> float:
        return float(self._next(2, "a number"))

    def count(self) -> int:
        return int(self._next(2, "a whole number"))

    def flag(self) -> bool:
        return self._next(3, "<exists>") == "exists"

    def _next(self, group: int, wanted: str) -> str:
        found = next(self._found, None)
        if found is None or found[group] is None:
            line = self._text.count("\n", 0, found.start() if found else len(self._text)) + 1
            raise ValueError(
                f"line {line} has {found[0][:40]!r} in place of {wanted}" if found else f"{wanted} is missing"
            )
        return found[group]


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
            root = ElementTree.fromstring(content.read())
        except ElementTree.ParseError as error:
            yield name, DataError("bad_table", f"the file is not well-formed XML ({error}): fetch it again")
            continue
        if base.endswith(".segments.xml"):
            segments.append((name, root))
        elif base.endswith(".words.xml"):
            words[base] = _Words(root)
        elif base == "meetings.xml":
            agents |= _agents(root)
    for name, root in segments:
        recording, agent = name.rpartition("/")[2].split(".")[:2]
        agent_facts = agents.get((recording, agent), {})
        channel = agent_facts.get("channel", "")
        known: Row = {
            "recording": recording,
            "agent": agent,
            "speaker": agent_facts.get("global_name", f"{recording}-{agent}"),
            "channel": int(channel) if channel.isdecimal() else None,
        }
        for segment in root.iter():
            if _local(segment.tag) == "segment":
                yield name, _segment(segment, words, known)


def _segment(segment: Any, words: Mapping[str, _Words], known: Row) -> Row | DataError:
    said = {_local(name): value for name, value in segment.attrib.items()}
    try:
        times = {"start": float(said["transcriber_start"]), "end": float(said["transcriber_end"])}
    except (KeyError, ValueError):
        return DataError(
            "bad_row", f"segment {said.get('id')} has no transcriber_start and _end in seconds: correct it"
        )
    texts = list[str]()
    for child in segment:
        href = _HREF.fullmatch(next((v for n, v in child.attrib.items() if _local(n) == "href"), ""))
        try:
            texts.append(words[href[1]].between(href[2], href[3] or href[2]) if href else "")
        except KeyError as error:
            return DataError(
                "bad_row", f"segment {said.get('id')} refers to words in {error}, which is missing: add it"
            )
    return {**known, "id": said.get("id", ""), **times, "text": " ".join(filter(None, texts))}


class _Words:
    """The words of a file, by the ids of its elements."""

    def __init__(self, root: Any) -> None:
        self._numbers, self._words = dict[str, int](), list[tuple[str, bool]]()
        for element in root:
            said = {_local(name): value for name, value in element.attrib.items()}
            self._numbers[said.get("id", "")] = len(self._words)
            is_word = _local(element.tag) == "w"
            self._words.append(((element.text or "").strip() if is_word else "", said.get("punc") == "true"))

    def between(self, first: str, last: str) -> str:
        """Return the words from one id to another one, punctuation without a blank before it."""
        begin, end = self._numbers[first], self._numbers[last]
        return "".join(w if punc else f" {w}" for w, punc in self._words[begin : end + 1] if w).strip()


def _agents(root: Any) -> dict[tuple[str, str], Mapping[str, str]]:
    found = dict[tuple[str, str], Mapping[str, str]]()
    for meeting in root.iter():
        if _local(meeting.tag) == "meeting":
            for speaker in meeting:
                said = {_local(name): value for name, value in speaker.attrib.items()}
                found[meeting.attrib.get("observation", ""), said.get("nxt_agent", "")] = said
    return found


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition("}")[2]
