"""The utterances to be prepared: of a raw list (a JSON object a line) or of Kaldi's tables, at any path or URL.

An utterance whose line is damaged comes out as a :class:`Bad`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.json_lines import parse
from uio_pipes.sources.kaldi.tables import KaldiJoin, KaldiLines, is_folder
from uio_pipes.tools.data.reading.data_list import exists, read_lines, read_table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance: all of ``wav``, or its seconds from ``start`` to ``end``. ``txt``: None if nobody knows it.

    ``recording``: Kaldi's name of a segment's recording; "" for the key. ``duration``: seconds, if a list gives them.
    ``frames``: of features that are there already, as far as they are known; ``wav`` is then their place in an ark.
    """

    key: str
    wav: str
    txt: str | None
    start: float | None = None
    end: float | None = None
    recording: str = ""
    speaker: str = ""
    duration: float | None = None
    frames: int | None = None

    @property
    def seconds(self) -> float | None:
        """The length of the segment; None for a whole file, and if only the file shows its end."""
        return None if self.start is None or self.end is None else self.end - self.start

    def to_json(self) -> str:
        """Return the line of a raw list; with a segment's ``duration``, readers need not look at the file."""
        fields: dict[str, Any] = {"key": self.key, "wav": self.wav}
        if self.txt is not None:
            fields["txt"] = self.txt
        if self.seconds is not None:
            fields |= {"start": self.start, "end": self.end, "duration": round(self.seconds, 4)}
        elif self.start is not None:
            fields["start"] = self.start
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Bad:
    """An utterance that cannot be read: its key, or else its place; the ``reason`` under which it is counted."""

    key: str
    reason: str
    detail: str


class UtteranceList(Protocol):
    """Utterances, the same each time. ``digest``: of the content, known after the first pass."""

    digest: str

    def __iter__(self) -> Iterator[Utterance | Bad]: ...


class RawList:
    """WeNet's raw list. Reading it raises ListError if it is missing or if no line is a JSON object."""

    def __init__(self, url: str, needs_text: bool = True) -> None:
        self.url, self.digest, self._needs_text = url, "", needs_text

    def __iter__(self) -> Iterator[Utterance | Bad]:
        return self.read(partial(_utterance, needs_text=self._needs_text))

    def read(self, parse: Callable[[bytes, str], T | Bad]) -> Iterator[T | Bad]:
        """Yield ``parse(line, place)`` for each line that is neither blank nor a comment."""
        digest = blake2b(digest_size=16)
        strange: list[tuple[Bad, ListError]] | None = []  # bad lines before the first object
        for number, line in enumerate(read_lines(self.url), 1):
            digest.update(line)
            if not (text := line.strip()) or text.startswith(b"#"):
                continue
            place = f"{self.url}, line {number}"
            try:
                one = parse(text, place)
            except ListError as error:
                one = Bad(place, "bad_line", str(error))
                if strange is not None:
                    strange.append((one, error))
                    continue
            if strange:
                yield from (bad for bad, _ in strange)
            strange = None
            yield one
        if strange:
            raise strange[0][1]
        self.digest = digest.hexdigest()


class KaldiUtterances(KaldiJoin):
    """Utterances of Kaldi's tables, which are joined by their keys."""

    digest: str
    _needs_text: bool

    def __iter__(self) -> Iterator[Utterance | Bad]:
        for number in range(len(self)):
            try:
                yield self.one(number)
            except DataError as error:
                error.url = error.url or self.place(number)
                yield Bad(self.key(number), error.reason, str(error))

    def text(self, number: int) -> str | None:
        """Return the transcript. Raises: DataError if it is needed and missing."""
        return self.value("text", number) if self._needs_text else self.find("text", number)

    def one(self, number: int) -> Utterance:
        raise NotImplementedError


def digest_of(*tables: KaldiLines | None) -> blake2b:
    """Return a hash of the tables' content."""
    digest = blake2b(digest_size=16)
    for table in tables:
        digest.update(b"\0" if table is None else table.data)
    return digest


class KaldiFolder(KaldiUtterances):
    """The utterances of a folder with ``wav.scp`` and ``text``, and ``segments`` and ``utt2spk`` if they are there.

    ``segments``: the path of this table if it is not in the folder; ``needs_text``: False if there may be no text.
    """

    def __init__(
        self, url: str, segments: str | None = None, allow_pipes: bool = False, needs_text: bool = True
    ) -> None:
        self._allow_pipes, self._needs_text = allow_pipes, needs_text
        scp = read_table(f"{url}/wav.scp", 1)
        text = read_table(f"{url}/text", 0) if needs_text or exists(f"{url}/text") else None
        cut = read_table(segments, 3, 3) if segments else _optional(f"{url}/segments", 3)
        speakers = _optional(f"{url}/utt2spk", 1)
        self.digest = digest_of(scp, text, cut, speakers).hexdigest()
        super().__init__(scp, text, cut, speakers)

    def one(self, number: int) -> Utterance:
        recording = self.recording(number)
        key, wav, txt = self.key(number), self.scp.value(recording), self.text(number)
        if wav.endswith("|") and not self._allow_pipes:
            message = "a command in place of a file: --allow-pipes runs such commands, without a shell"
            raise DataError("pipe_not_allowed", message, url=self.scp.place(recording))
        speaker = self.find("speaker", number) or ""
        if self.segments is None:
            return Utterance(key, wav, txt, speaker=speaker)
        of, start, end = self.segments.value(number).split()
        to = _seconds(end)
        return Utterance(key, wav, txt, _seconds(start), None if to == -1 else to, of, speaker)  # -1: the end


def _optional(url: str, words: int) -> KaldiLines | None:
    return read_table(url, words, words) if exists(url) else None


def open_list(
    url: str, segments: str | None = None, allow_pipes: bool = False, needs_text: bool = True
) -> UtteranceList:
    """Open a raw list or a Kaldi folder with audio. Raises: ListError."""
    url = url.rstrip("/") or "/"
    if is_folder(url):
        return KaldiFolder(url, segments, allow_pipes, needs_text)
    if segments is not None:
        raise ListError(f"segments cut the recordings of a Kaldi folder (wav.scp, text); {url} is not a folder")
    return RawList(url, needs_text)


def names_features(source: str) -> bool:
    """Return whether this is an scp, or a Kaldi folder with ``feats.scp`` and without ``wav.scp``."""
    if not is_folder(source):
        return is_named(source, ".scp")
    return not exists(f"{source}/wav.scp") and exists(f"{source}/feats.scp")


def _utterance(line: bytes, place: str, needs_text: bool = True) -> Utterance | Bad:
    fields = fields_of(line, place, partial(_recorded, needs_text=needs_text))
    if isinstance(fields, Bad):
        return fields
    if b"\\ud" in line.lower():
        text = f"{fields['key']}{fields.get('txt')}{fields['wav']}{fields.get('speaker')}"
        if (bad := unwritable(text, place, place)) is not None:
            return bad
    start, end, speaker = fields.get("start"), fields.get("end"), fields.get("speaker")
    duration = fields.get("duration")
    return Utterance(
        fields["key"], fields["wav"], fields.get("txt"), start, end,
        speaker="" if speaker is None else str(speaker), duration=duration if type(duration) in (int, float) else None,
    )  # fmt: skip


def _recorded(text: str, place: str, needs_text: bool) -> dict[str, Any]:
    """As ``parse``, but a line must have a ``wav``: features alone cannot be packed."""
    fields = parse(text, place, needs_text=needs_text)
    if not isinstance(fields.get("wav"), str):
        raise DataError("missing_audio", "the line has no wav", url=place, member=str(fields["key"]))
    return fields


def fields_of(line: bytes, place: str, parse: Callable[[str, str], dict[str, Any]]) -> dict[str, Any] | Bad:
    """Return ``parse(line, place)`` of a line in UTF-8, or the reason it is bad. Raises: ListError as ``parse``."""
    try:
        return parse(line.decode("utf-8-sig"), place)
    except UnicodeDecodeError as error:
        return Bad(place, "bad_line", f"{place}: it is not UTF-8 ({error.reason} at byte {error.start})")
    except DataError as error:
        return Bad(error.member or place, error.reason, str(error))


def unwritable(text: str, key: str, place: str) -> Bad | None:
    """Return the failure of a text that holds half of a surrogate pair; None for any other text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return Bad(key, "bad_text", f"{place}: half of a surrogate pair (as \\ud800) is not a character")
    return None


def _seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise DataError("bad_segment", f"{word!r} is not a number of seconds") from error
