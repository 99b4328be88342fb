"""What is to be prepared: a raw list (a JSON object a line) or a Kaldi folder, read utterance by utterance.

Both are read line by line, and from any URL. An utterance whose line is damaged comes out as a :class:`Bad`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.kaldi.lines import KaldiLines
from uio_pipes.formats.lists.raw_line import parse
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.prep.common.suggestions import meant, near

__all__ = [
    "Bad",
    "KaldiFolder",
    "RawList",
    "Source",
    "Utterance",
    "exists",
    "fields_of",
    "is_folder",
    "open_source",
    "read_lines",
    "read_raw_list",
    "read_table",
    "unwritable",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance: all of ``wav``, or its seconds from ``start`` to ``end``. ``recording``: the segment's, in Kaldi's
    files; the key if it is not given. ``duration``: seconds, where a list tells them."""

    key: str
    wav: str
    txt: str
    start: float | None = None
    end: float | None = None
    recording: str = ""
    speaker: str = ""
    duration: float | None = None

    @property
    def seconds(self) -> float | None:
        """Length of the segment; None for a whole file, and where only the file tells its end."""
        return None if self.start is None or self.end is None else self.end - self.start

    def to_json(self) -> str:
        """The line of a raw list; a segment's ``duration`` saves readers the header."""
        fields: dict[str, Any] = {"key": self.key, "wav": self.wav, "txt": self.txt}
        if self.seconds is not None:
            fields |= {"start": self.start, "end": self.end, "duration": round(self.seconds, 4)}
        elif self.start is not None:
            fields["start"] = self.start
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Bad:
    """An utterance that cannot be read: its key, or the place where it stands; the ``reason`` to count it under."""

    key: str
    reason: str
    detail: str


class Source(Protocol):
    """Utterances, the same each time; ``digest`` of the content is known when they have all come once."""

    digest: str

    def __iter__(self) -> Iterator[Utterance | Bad]: ...


class RawList:
    """WeNet's raw list. Raises ListError, when read, if it is missing or another kind of list: no line is an object."""

    def __init__(self, url: str) -> None:
        self.url, self.digest = url, ""

    def __iter__(self) -> Iterator[Utterance | Bad]:
        return self.read(_utterance)

    def read(self, parse: Callable[[bytes, str], T | Bad]) -> Iterator[T | Bad]:
        """What ``parse`` makes of each line and its place."""
        digest = blake2b(digest_size=16)
        strange: list[tuple[Bad, ListError]] | None = []  # until the first object comes
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


class KaldiFolder:
    """``wav.scp`` and ``text``, and ``segments`` and ``utt2spk`` if they are there.

    ``segments``: where they are if not in the folder. In the order of ``segments``, or of ``wav.scp``; then
    what only ``text`` knows.
    """

    def __init__(self, url: str, segments: str | None = None, allow_pipes: bool = False) -> None:
        self.url, self._allow_pipes = url, allow_pipes
        self._scp, self._text = self._table("wav.scp", 1), self._table("text", 0)
        self._segments = read_table(segments, 3, 3) if segments else self._optional("segments", 3, 3)
        self._speakers = self._optional("utt2spk", 1, 1)
        digest = blake2b(digest_size=16)
        for table in (self._scp, self._text, self._segments, self._speakers):
            digest.update(b"\0" if table is None else table.data)
        self.digest = digest.hexdigest()

    def _table(self, name: str, least: int, most: int | None = None) -> KaldiLines:
        return read_table(f"{self.url}/{name}", least, most)

    def _optional(self, name: str, least: int, most: int) -> KaldiLines | None:
        return self._table(name, least, most) if exists(f"{self.url}/{name}") else None

    def __iter__(self) -> Iterator[Utterance | Bad]:
        keyed = self._segments or self._scp
        count = len(keyed)
        recordings = self._scp.find_words(keyed).tolist() if self._segments else range(count)
        texts, speakers = (table.find(keyed).tolist() if table else [-1] * count
                           for table in (self._text, self._speakers))  # fmt: skip
        for number, text, recording, speaker in zip(range(count), texts, recordings, speakers, strict=True):
            try:
                yield self._one(number, text, recording, speaker)
            except DataError as error:
                yield Bad(keyed.key(number), error.reason, str(error))
        yield from self._texts_alone(keyed)

    def _texts_alone(self, keyed: KaldiLines) -> Iterator[Bad]:
        for line in np.flatnonzero(keyed.find(self._text) < 0).tolist():
            message = f"the utterance has a text, but no line in {keyed.name}"
            error = DataError("missing_recording", message, url=self._text.place(line))
            yield Bad(self._text.key(line), error.reason, str(error))

    def _one(self, number: int, text: int, recording: int, speaker: int) -> Utterance:
        keyed = self._segments or self._scp
        key = keyed.key(number)
        if recording < 0:
            raise DataError("missing_recording", f"its recording is not in {self._scp.name}", url=keyed.place(number))
        if text < 0 or self._text.raw_key(text) != keyed.raw_key(number):  # found by a hash
            raise DataError("missing_text", f"it is not in {self._text.name}", url=keyed.place(number))
        wav = self._scp.value(recording)
        if wav.endswith("|") and not self._allow_pipes:
            message = "a command in place of a file: --allow-pipes runs such commands, without a shell"
            raise DataError("pipe_not_allowed", message, url=self._scp.place(recording))
        name = self._speakers.value(speaker) if self._speakers and speaker >= 0 else ""
        txt = self._text.value(text)
        if self._segments is None:
            return Utterance(key, wav, txt, speaker=name)
        of, start, end = self._segments.value(number).split()
        to = _seconds(end)
        return Utterance(key, wav, txt, _seconds(start), None if to == -1 else to, of, name)  # -1: the recording's end


def open_source(url: str, segments: str | None = None, allow_pipes: bool = False) -> Source:
    """A raw list, or the folder of Kaldi's files. Raises: ListError."""
    url = url.rstrip("/") or "/"
    if is_folder(url):
        return KaldiFolder(url, segments, allow_pipes)
    if segments is not None:
        raise ListError(f"segments cut the recordings of a Kaldi folder (wav.scp, text); {url} is none")
    return RawList(url)


def is_folder(url: str) -> bool:
    """Elsewhere than here, folders cannot be told from files: a list's name has a suffix."""
    local = is_local(url)
    return os.path.isdir(local) if local is not None else "." not in url.rstrip("/").rpartition("/")[2]


def read_raw_list(path: str | os.PathLike[str]) -> Iterator[Utterance]:
    """The utterances of a raw list, one by one. Raises: ListError naming the line if one cannot be used."""
    for one in RawList(os.fspath(path)):
        if isinstance(one, Bad):
            raise ListError(f"{one.detail}")
        yield one


def _utterance(line: bytes, place: str) -> Utterance | Bad:
    fields = fields_of(line, place, _recorded)
    if isinstance(fields, Bad):
        return fields
    if b"\\ud" in line.lower():
        text = f"{fields['key']}{fields['txt']}{fields['wav']}{fields.get('speaker')}"
        if (bad := unwritable(text, place, place)) is not None:
            return bad
    start, end, speaker = fields.get("start"), fields.get("end"), fields.get("speaker")
    duration = fields.get("duration")
    return Utterance(
        fields["key"], fields["wav"], fields["txt"], start, end,
        speaker="" if speaker is None else str(speaker), duration=duration if type(duration) in (int, float) else None,
    )  # fmt: skip


def _recorded(text: str, place: str) -> dict[str, Any]:
    """As ``parse``; features alone are nothing to pack."""
    fields = parse(text, place)
    if not isinstance(fields.get("wav"), str):
        raise DataError("missing_audio", "the line has no wav", url=place, member=str(fields["key"]))
    return fields


def fields_of(line: bytes, place: str, parse: Callable[[str, str], dict[str, Any]]) -> dict[str, Any] | Bad:
    """What ``parse`` makes of a line that is text. Raises: ListError as ``parse``."""
    try:
        return parse(line.decode("utf-8-sig"), place)
    except UnicodeDecodeError as error:
        return Bad(place, "bad_line", f"{place}: no UTF-8 ({error.reason} at byte {error.start})")
    except DataError as error:
        return Bad(error.member or place, error.reason, str(error))


def unwritable(text: str, key: str, place: str) -> Bad | None:
    """What is wrong with text that holds half of a surrogate pair; None if nothing is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return Bad(key, "bad_text", f"{place}: half of a surrogate pair (as \\ud800) is no character")
    return None


def _seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise DataError("bad_segment", f"{word!r} is no number of seconds") from error


def read_lines(url: str) -> Iterable[bytes]:
    """The lines of a file, near or far. Raises: ListError with what was probably meant."""
    try:
        with open_binary(url) as file:
            yield from file
    except DataError as error:
        raise _unreadable(url, error) from error
    except OSError as error:
        raise ListError(f"cannot read {url}: {error}") from error


def read_table(url: str, least: int, most: int | None = None) -> KaldiLines:
    """One of Kaldi's tables; ``least``, ``most``: words behind the key. Raises: ListError."""
    return KaldiLines(url, b"".join(read_lines(url)), least, most)


def exists(url: str) -> bool:
    """Raises: ListError if that cannot be told."""
    try:
        open_binary(url).close()
    except DataError as error:
        if error.reason == "missing_file":
            return False
        raise _unreadable(url, error) from error
    return True


def _unreadable(url: str, error: DataError) -> ListError:
    if error.reason == "missing_file":
        folder = os.path.isdir(str(PurePosixPath(url).parent)) and PurePosixPath(url).name in ("text", "wav.scp")
        hint = " (a Kaldi folder has wav.scp and text)" if folder else ""
        return ListError(f"there is no {url}{near(url)}{hint}")
    if os.path.isdir(url):
        return ListError(f"{url} is a folder, where a list is wanted: uio inspect {url} tells what is in it")
    return ListError(f"cannot read {url}: {error.message}{meant(url)}")
