"""The utterances of Kaldi's tables, with their audio or features. No torch in here: packing reads tables too."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import TICKS
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.json_lines import LATEST
from uio_pipes.formats.naming import Renames, renamed
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.opening import open_file, reference
from uio_pipes.io.references import AudioInfo, RandomFile
from uio_pipes.sources.kaldi.ark import ArkMatrix, ark_audio, check_pipes, parse_pointer, points_at_features
from uio_pipes.sources.kaldi.tables import KaldiFiles, KaldiLines

_PER_SECOND = 100  # weights are in frames of 10 ms
JoinedColumn = Literal["text", "speaker"]


class KaldiTable:
    """Utterances with their audio or features, in the order of ``segments``, or else of the scp; then those that only
    ``text`` has.

    Raises: ListError for tables that are missing, malformed or of the wrong kind, naming file and line.
    """

    def __init__(self, files: KaldiFiles, access: Access, allow_pipes: bool, names: Renames = None) -> None:
        self._access, self._names = access, names
        check_pipes(files.scp, allow_pipes)
        self.has_features = points_at_features(files.scp, access)
        if self.has_features and files.segments is not None:
            raise ListError(
                f"{files.scp.name} contains features of utterances, but segments "
                f"({files.segments.name}) apply to recordings: name wav.scp, or remove segments"
            )
        self.scp, self.segments = files.scp, (segments := files.segments)
        self._times = None if segments is None else (segments.numbers(1), segments.numbers(2))
        self._length = files.lengths(segments or files.scp, self.has_features)
        self._utterances = utterances = segments or files.scp
        columns: dict[JoinedColumn, KaldiLines | None] = {"text": files.text, "speaker": files.speakers}
        self._columns = {name: table for name, table in columns.items() if table is not None}
        lacking = np.zeros(0, np.int64) if files.text is None else utterances.find(files.text)
        self._text_only = np.flatnonzero(lacking < 0)
        for table in files.tables:
            table.settle()  # they are not compared with each other any more
        self.weights = self._weights()
        self.digest, self.notes = files.digest, [note for table in files.tables for note in table.notes]
        self._arks: dict[str, RandomFile] = {}

    def __len__(self) -> int:
        return len(self._utterances) + len(self._text_only)

    def place(self, number: int) -> str:
        table, line = self._line(number)
        return table.place(line)

    def key(self, number: int) -> str:
        table, line = self._line(number)
        return table.key(line)

    def _line(self, number: int) -> tuple[KaldiLines, int]:
        if number < len(self._utterances):
            return self._utterances, number
        return self._columns["text"], int(self._text_only[number - len(self._utterances)])

    def recording(self, number: int) -> int:
        """Return the line of the utterance's recording in the scp. Raises: DataError ``missing_recording``."""
        if number >= len(self._utterances):
            remedy = "remove such texts (utils/filter_scp.pl), or complete the table"
            message = f"the utterance has a text, but no line in {self._utterances.name}: {remedy}"
            raise DataError("missing_recording", message)
        if self.segments is None:
            return number
        recording = self.segments.raw(number).split(None, 1)[0]
        if (line := self.scp.number_of(recording)) < 0:
            name = recording.decode("utf-8", "replace")
            message = f"the segment's recording {name!r} has no line in {self.scp.name}: complete it"
            raise DataError("missing_recording", message)
        return line

    def find(self, column: JoinedColumn, number: int) -> str | None:
        """Return the utterance's text or speaker, None without a table or a line. Raises: DataError ``bad_text``."""
        if column not in self._columns:
            return None
        table = self._columns[column]
        line = table.number_of(self._utterances.raw_key(number))
        return table.value(line) if line >= 0 else None

    def value(self, column: JoinedColumn, number: int) -> str:
        """Like :meth:`find`. Raises: DataError ``missing_text`` or ``missing_speaker`` if the utterance has no line."""
        found = self.find(column, number)
        if found is None:
            message = f"the utterance has no line in {self._columns[column].name}: complete it, or remove the utterance"
            raise DataError(f"missing_{column}", f"{message} of {self._utterances.name}")
        return found

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of an utterance. Raises: DataError ``missing_recording``, ``bad_segment``, …"""
        table, line = self._line(number)
        try:
            recording = self.recording(number)
            fields: dict[str, Any] = {"key": _utf8(table.raw_key(line), "key")}
            fields |= self._payload(number, recording)
            if "text" in self._columns:
                fields["txt"] = self.value("text", number)
            if "speaker" in self._columns:
                fields["speaker"] = self.value("speaker", number)
        except DataError as error:
            raise error.at(error.url or table.place(line), table.key(line)) from error
        return renamed(fields, self._names) if self._names else fields

    def _payload(self, number: int, recording: int) -> dict[str, Any]:
        """Return the audio with its segment, or the features."""
        value = self.scp.value(recording)
        if self._times is None:
            return self._features(value, number) if self.has_features else self._whole(value, number)
        start, end = float(self._times[0][number]), float(self._times[1][number])
        if not 0 <= start < LATEST or not (start < end < LATEST or end == -1):
            message = (
                f"start and end must be seconds with 0 <= start < end, or -1 for the recording's end: {start} {end}"
            )
            raise DataError("bad_segment", message)
        cut = {"start": start} if end == -1 else {"start": start, "end": end}
        return {"wav": self._audio(value, cut.get("end")), **cut}

    def _whole(self, value: str, number: int) -> dict[str, Any]:
        """Return a recording; of a command's output, which has no header before, with the length in ``utt2dur``."""
        lengths = self._length if value.endswith("|") else None
        known = {} if lengths is None or np.isnan(lengths[number]) else {"duration": float(lengths[number])}
        return {"wav": self._audio(value, None), **known}

    def _audio(self, value: str, end: float | None) -> Any:
        if value.endswith("|"):
            info = None if end is None else AudioInfo(ceil(end * TICKS), TICKS, 1)  # as far as the segment tells
            return Piped(value, info, shared=self.segments is not None)
        pointer = parse_pointer(value)
        if pointer.offset is None or pointer.rows is not None:
            return reference(value, self._access)
        return ark_audio(self._file(pointer.path), pointer.offset)

    def _features(self, value: str, number: int) -> dict[str, Any]:
        pointer = parse_pointer(value)
        known = None if self._length is None or np.isnan(self._length[number]) else int(self._length[number])
        return {"feat": ArkMatrix(self._file(pointer.path), pointer, known)}

    def _file(self, path: str) -> RandomFile:
        """Open an ark once: the object remembers the file's size and stamp."""
        return self._arks.get(path) or self._arks.setdefault(path, open_file(path, self._access))

    def _weights(self) -> npt.NDArray[np.int64] | None:
        """Return lengths in units of 10 ms: the mean for unknown ones, 0 for utterances that only have a text."""
        if self._times is not None:
            start, end = self._times
            length = np.where(end == -1, np.nan, np.maximum(end - start, 0)) * _PER_SECOND
        elif self._length is not None:
            length = self._length if self.has_features else self._length * _PER_SECOND
        else:
            return None
        known = length[~np.isnan(length)]
        filled = np.where(np.isnan(length), known.mean() if len(known) else 1.0, length)
        return np.concatenate([np.ceil(filled).astype(np.int64), np.zeros(len(self._text_only), np.int64)])


def _utf8(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError("bad_text", f"the {what} is not UTF-8 ({error.reason})") from error
