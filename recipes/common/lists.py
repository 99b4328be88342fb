"""Write lists in one pass: WeNet's raw list, and Kaldi's ``wav.scp``, ``segments`` and ``text``. WenetSpeech has 15
million lines. (To read lists, see ``uio_pipes.tools.data.reading``.)"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from uio_pipes.io.files import atomic_path, write_lines
from uio_pipes.tools.data.reading import Utterance

__all__ = ["ListWriter", "line_of", "read_lines", "write_raw_list"]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file without line ends and blank lines."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def write_raw_list(path: Path, utterances: Iterable[Utterance]) -> None:
    """Write WeNet's raw list."""
    write_lines(path, map(line_of, utterances))


def line_of(utterance: Utterance) -> str:
    """Return the line of a raw list; with a segment's ``duration``, readers need not look at the file."""
    fields: dict[str, Any] = {"key": utterance.key, "wav": utterance.wav}
    if utterance.txt is not None:
        fields["txt"] = utterance.txt
    if utterance.seconds is not None:
        fields |= {"start": utterance.start, "end": utterance.end, "duration": round(utterance.seconds, 4)}
    elif utterance.start is not None:
        fields["start"] = utterance.start
    return json.dumps(fields, ensure_ascii=False)


class ListWriter:
    """A writer of ``data.list``, ``text``, ``wav.scp`` and, if there are segments, ``segments`` of a folder, in one
    pass.

    Use it as a context manager; the files appear when the block ends without an error. Utterances of one recording must
    come one after the other.
    """

    NAMES = ("data.list", "text", "wav.scp", "segments")

    def __init__(self, folder: Path) -> None:
        self.folder, self.utterances, self.recordings, self.seconds = folder, 0, 0, 0.0
        self._segments = False
        self._recording = ""
        self._stack = contextlib.ExitStack()
        self._files: list[TextIO] = []

    def __enter__(self) -> ListWriter:
        for name in self.NAMES:
            temporary = self._stack.enter_context(atomic_path(self.folder / name))
            self._files.append(self._stack.enter_context(temporary.open("w", encoding="utf-8", newline="\n")))
        return self

    def write(self, utterance: Utterance) -> None:
        """Add one utterance."""
        raw, text, scp, segments = self._files
        recording = utterance.recording or utterance.key
        raw.write(line_of(utterance) + "\n")
        text.write(f"{utterance.key} {utterance.txt}\n")
        if recording != self._recording:
            self._recording = recording
            self.recordings += 1
            scp.write(f"{recording} {utterance.wav}\n")
        if utterance.seconds is not None:
            self._segments = True
            self.seconds += utterance.seconds
            segments.write(f"{utterance.key} {recording} {utterance.start} {utterance.end}\n")
        self.utterances += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None and not self._segments:  # for Kaldi an empty `segments` means no utterances
            (self.folder / "segments").unlink()
