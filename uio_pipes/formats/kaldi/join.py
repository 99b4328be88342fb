"""Kaldi's tables joined by their keys."""

from __future__ import annotations

from typing import Literal

import numpy as np

from uio_pipes.base.errors import DataError
from uio_pipes.formats.kaldi.lines import KaldiLines

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
