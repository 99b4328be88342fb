"""Kaldi's tables, named one by one or found by their usual names in a data folder, and joined by their keys."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import folder_of, inside, is_named, name_of, path_of
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.sources.kaldi.lines import KaldiLines


class KaldiFiles:
    """The tables, read. ``scp`` may be a data folder, in which tables that are not named are then looked for.

    ``utt2dur`` (seconds) and ``utt2num_frames`` are used if they lie beside the scp. Raises: ListError.
    """

    def __init__(self, scp: str, text: str | None, segments: str | None, utt2spk: str | None, access: Access) -> None:
        self._access = access
        self._hash = blake2b(digest_size=16)
        if is_folder(scp):
            main = self._optional(scp, "wav.scp", 1) or self._optional(scp, "feats.scp", 1)
            if main is None:
                raise ListError(f"the folder {scp} has neither wav.scp nor feats.scp: name the scp itself")
            self.scp, folder, within = main, scp, True
        else:
            self.scp, folder, within = self._table(scp, 1), folder_of(scp), False
        cut = within and is_named(self.scp.name, "wav.scp")  # features are of utterances already
        self.text = self._table(text, 0) if text else self._optional(folder, "text", 0, within)
        self.segments = self._table(segments, 3, 3) if segments else self._optional(folder, "segments", 3, cut, 3)
        self.speakers = self._table(utt2spk, 1, 1) if utt2spk else self._optional(folder, "utt2spk", 1, within, 1)
        self._durations = self._optional(folder, "utt2dur", 1, True, 1)
        self._frames = self._optional(folder, "utt2num_frames", 1, True, 1)

    @property
    def digest(self) -> str:
        """A hash of all bytes read."""
        return self._hash.hexdigest()

    def lengths(self, utterances: KaldiLines, frames: bool) -> npt.NDArray[np.float64] | None:
        """Return the utterances' lengths in frames or else in seconds, nan without a line; None without a table."""
        table = self._frames if frames else self._durations
        if table is None:
            return None
        lines, lengths = table.find(utterances), table.numbers(0)
        if len(bad := np.flatnonzero(lengths < 0)):
            raise ListError(f"{table.place(int(bad[0]))}: a length cannot be below 0: make {table.name} again")
        return np.where(lines < 0, np.nan, lengths[lines])

    def _optional(
        self, folder: str, name: str, least: int, wanted: bool = True, most: int | None = None
    ) -> KaldiLines | None:
        """Read the table of this name in ``folder``, if it is there."""
        if not wanted:
            return None
        path = inside(folder, name)
        data = self._read(path, optional=True)
        return None if data is None else KaldiLines(path, data, least, most)

    def _table(self, path: str, least: int, most: int | None = None) -> KaldiLines:
        data = self._read(path)
        assert data is not None
        return KaldiLines(path, data, least, most)

    def _read(self, path: str, optional: bool = False) -> bytes | None:
        try:
            with open_binary(path, self._access) as file:
                data = file.read()
        except (DataError, IsADirectoryError) as error:
            if optional and isinstance(error, DataError) and error.reason == "missing_file":
                return None
            raise ListError(f"cannot read {path}: {getattr(error, 'message', error)}") from error
        self._hash.update(data)
        return data


def is_folder(name: str) -> bool:
    """Return whether this names a folder. A remote folder cannot be distinguished from a file: files have a suffix."""
    path = is_local(name)
    return "." not in name_of(path_of(name).rstrip("/")) if path is None else os.path.isdir(path)


JoinedColumn = Literal["text", "speaker"]


class KaldiJoin:
    """The utterances in the order of ``segments``, or else of the scp; then those that only ``text`` has.

    Lines are found by 64-bit hashes of their keys, and the keys themselves are compared when a line is used. After the
    join, the tables can no longer be searched.
    """

    def __init__(
        self, scp: KaldiLines, text: KaldiLines | None, segments: KaldiLines | None, speakers: KaldiLines | None
    ) -> None:
        self.scp, self.segments = scp, segments
        self._utterances = utterances = segments or scp
        self._recordings = None if segments is None else scp.find_words(segments)
        columns: dict[JoinedColumn, KaldiLines | None] = {"text": text, "speaker": speakers}
        self._columns = {name: (table, table.find(utterances)) for name, table in columns.items() if table is not None}
        self._text = text
        self._text_only = np.zeros(0, np.int64) if text is None else np.flatnonzero(utterances.find(text) < 0)
        for table in (scp, text, segments, speakers):
            if table is not None:
                table.settle()

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
        assert self._text is not None
        return self._text, int(self._text_only[number - len(self._utterances)])

    def recording(self, number: int) -> int:
        """Return the line of the utterance's recording in the scp. Raises: DataError ``missing_recording``."""
        if number >= len(self._utterances):
            remedy = "cut the text down to what there is (utils/filter_scp.pl), or complete the table"
            message = f"the utterance has a text, but no line in {self._utterances.name}: {remedy}"
            raise DataError("missing_recording", message)
        if self.segments is None or self._recordings is None:
            return number
        line, recording = int(self._recordings[number]), self.segments.raw(number).split()[0]
        if line < 0 or self.scp.raw_key(line) != recording:
            name = recording.decode("utf-8", "replace")
            message = f"the segment's recording {name!r} has no line in {self.scp.name}: complete it"
            raise DataError("missing_recording", message)
        return line

    def has(self, column: JoinedColumn) -> bool:
        """Return whether there is a table of this column."""
        return column in self._columns

    def find(self, column: JoinedColumn, number: int) -> str | None:
        """Return the utterance's text or speaker, None without a table or a line. Raises: DataError ``bad_text``."""
        if column not in self._columns:
            return None
        table, lines = self._columns[column]
        line = int(lines[number])
        return table.value(line) if line >= 0 and table.raw_key(line) == self._utterances.raw_key(number) else None

    def value(self, column: JoinedColumn, number: int) -> str:
        """As :meth:`find`. Raises: DataError ``missing_text`` or ``missing_speaker`` if the utterance has no line."""
        found = self.find(column, number)
        if found is None:
            name = self._columns[column][0].name
            message = f"the utterance has no line in {name}: complete it, or leave the utterance out"
            raise DataError(f"missing_{column}", f"{message} of {self._utterances.name}")
        return found
