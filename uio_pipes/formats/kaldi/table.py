"""The utterances of Kaldi's tables, joined by their keys: what all lanes of a process share of ``from_kaldi``."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import SLACK, TICKS
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.kaldi.ark import ArkMatrix, ark_audio, parse_pointer
from uio_pipes.formats.kaldi.files import KaldiFiles
from uio_pipes.formats.kaldi.lines import Ints, KaldiLines
from uio_pipes.formats.kaldi.scp import check_pipes, points_at_features
from uio_pipes.formats.lists.raw_line import LATEST
from uio_pipes.io.access import Access
from uio_pipes.io.audio_info import AudioInfo
from uio_pipes.io.command import Piped
from uio_pipes.io.local import RandomFile
from uio_pipes.io.opening import open_file

__all__ = ["KaldiTable"]

_PER_SECOND = 100  # weights are in frames of 10 ms


class KaldiTable:
    """Utterances in the order of ``segments``, or else of the scp; then those that only ``text`` knows.

    Raises: ListError for tables that are missing, malformed or of the wrong kind, naming file and line.
    """

    def __init__(self, files: KaldiFiles, access: Access, allow_pipes: bool) -> None:
        self.scp, self.segments = files.scp, files.segments
        self.text, self.speakers = files.text, files.speakers
        self._access = access
        check_pipes(self.scp, allow_pipes)
        self.has_features = points_at_features(self.scp, access)
        if self.has_features and self.segments is not None:
            raise ListError(
                f"{self.scp.name} points at features, which are of utterances already, but segments "
                f"({self.segments.name}) cut recordings: name wav.scp, or leave segments out"
            )
        utterances = self.segments or self.scp
        self._utterances = utterances
        self._recording = None if self.segments is None else self.scp.find_words(self.segments)
        self._text_line = None if self.text is None else self.text.find(utterances)
        self._speaker_line = None if self.speakers is None else self.speakers.find(utterances)
        self._alone = np.zeros(0, np.int64) if self.text is None else np.flatnonzero(utterances.find(self.text) < 0)
        self._times = None if self.segments is None else (self.segments.numbers(1), self.segments.numbers(2))
        self._length = files.lengths(utterances, self.has_features)
        self.weights = self._weights()
        self.digest = files.digest
        for table in (self.scp, self.segments, self.text, self.speakers):
            if table is not None:
                table.settle()
        self._arks: dict[str, RandomFile] = {}

    def __len__(self) -> int:
        return len(self._utterances) + len(self._alone)

    def place(self, number: int) -> str:
        table, line = self._line(number)
        return table.place(line)

    def key(self, number: int) -> str:
        table, line = self._line(number)
        return table.key(line)

    def _line(self, number: int) -> tuple[KaldiLines, int]:
        if number < len(self._utterances):
            return self._utterances, number
        assert self.text is not None
        return self.text, int(self._alone[number - len(self._utterances)])

    def fields(self, number: int) -> dict[str, Any]:
        """Raises: DataError ``missing_recording``, ``missing_text``, ``missing_speaker``, ``bad_segment``, …"""
        table, line = self._line(number)
        key = table.key(line)
        try:
            if table is not self._utterances:
                raise DataError("missing_recording", f"the utterance has a text, but no line in {self._of()}")
            raw = table.raw_key(line)
            fields: dict[str, Any] = {"key": _utf8(raw, "key")}
            fields |= self._payload(number)
            if self.text is not None:
                fields["txt"] = self._joined(self.text, self._text_line, number, raw, "text")
            if self.speakers is not None:
                fields["speaker"] = self._joined(self.speakers, self._speaker_line, number, raw, "speaker")
        except DataError as error:
            raise DataError(
                error.reason, error.message, url=error.url or table.place(line), member=key, offset=error.offset
            ) from error
        return fields

    def _of(self) -> str:
        remedy = "cut the text down to what there is (utils/filter_scp.pl), or complete the table"
        return f"{self._utterances.name}: {remedy}"

    def _joined(self, table: KaldiLines, lines: Ints | None, number: int, key: bytes, what: str) -> str:
        assert lines is not None
        line = int(lines[number])
        if line < 0 or table.raw_key(line) != key:
            message = f"the utterance has no line in {table.name}: complete it, or leave the utterance out"
            raise DataError(f"missing_{what}", f"{message} of {self._utterances.name}")
        return table.value(line)

    def _payload(self, number: int) -> dict[str, Any]:
        """Audio with its segment, or features."""
        if self._recording is None:
            value = self.scp.value(number)
            return self._features(value, number) if self.has_features else {"wav": self._audio(value, number, None)}
        assert self.segments is not None
        assert self._times is not None
        line, recording = int(self._recording[number]), self.segments.raw(number).split()[0]
        if line < 0 or self.scp.raw_key(line) != recording:
            name = recording.decode("utf-8", "replace")
            message = f"the segment's recording {name!r} has no line in {self.scp.name}: complete it"
            raise DataError("missing_recording", message)
        start, end = float(self._times[0][number]), float(self._times[1][number])
        if not 0 <= start < LATEST or not (start < end < LATEST or end == -1):
            message = (
                f"start and end must be seconds with 0 <= start < end, or -1 for the recording's end: {start} {end}"
            )
            raise DataError("bad_segment", message)
        cut = {"start": start} if end == -1 else {"start": start, "end": end}
        return {"wav": self._audio(self.scp.value(line), number, cut.get("end")), **cut}

    def _audio(self, value: str, number: int, end: float | None) -> Any:
        if value.endswith("|"):
            return Piped(value, self._told(number, end), shared=self.segments is not None)
        pointer = parse_pointer(value)
        if pointer.offset is None or pointer.rows is not None:
            return value
        return ark_audio(self._file(pointer.path), pointer.offset)

    def _told(self, number: int, end: float | None) -> AudioInfo | None:
        """The length of what a command will write, as far as tables tell: in ticks, rounded up."""
        if end is not None:
            return AudioInfo(ceil(end * TICKS), TICKS, 1)
        if self.segments is not None or self._length is None or np.isnan(self._length[number]):
            return None
        return AudioInfo(ceil(float(self._length[number]) * TICKS) + SLACK, TICKS, 1)

    def _features(self, value: str, number: int) -> dict[str, Any]:
        pointer = parse_pointer(value)
        known = None if self._length is None or np.isnan(self._length[number]) else int(self._length[number])
        return {"feat": ArkMatrix(self._file(pointer.path), pointer, known)}

    def _file(self, path: str) -> RandomFile:
        """One object an ark: it remembers what it was at first."""
        return self._arks.get(path) or self._arks.setdefault(path, open_file(path, self._access))

    def _weights(self) -> npt.NDArray[np.int64] | None:
        """Lengths in units of 10 ms, the mean where a length is not known, 0 for what only the text knows."""
        if self._times is not None:
            start, end = self._times
            length = np.where(end == -1, np.nan, np.maximum(end - start, 0)) * _PER_SECOND
        elif self._length is not None:
            length = self._length if self.has_features else self._length * _PER_SECOND
        else:
            return None
        known = length[~np.isnan(length)]
        filled = np.where(np.isnan(length), known.mean() if len(known) else 1.0, length)
        return np.concatenate([np.ceil(filled).astype(np.int64), np.zeros(len(self._alone), np.int64)])


def _utf8(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError("bad_text", f"the {what} is no UTF-8 ({error.reason})") from error
