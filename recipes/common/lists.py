"""WeNet's and Kaldi's lists of utterances: the raw list (a JSON object a line), ``wav.scp``, ``segments``, ``text``.

Lists are read and written line by line: that of WenetSpeech has 15 million of them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from .files import atomic_path, write_lines


class ListProblem(Exception):
    """A list is missing or is not what it should be; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance: all of ``wav``, or its seconds from ``start`` to ``end``. ``recording``: the segment's, in Kaldi's
    files; the key if it is not given."""

    key: str
    wav: str
    txt: str
    start: float | None = None
    end: float | None = None
    recording: str = ""

    @property
    def seconds(self) -> float | None:
        """Length of the segment; None for a whole file."""
        return None if self.start is None or self.end is None else self.end - self.start

    def to_json(self) -> str:
        """The line of a raw list; a segment's ``duration`` saves readers the header."""
        fields: dict[str, Any] = {"key": self.key, "wav": self.wav, "txt": self.txt}
        if self.seconds is not None:
            fields |= {"start": self.start, "end": self.end, "duration": round(self.seconds, 4)}
        return json.dumps(fields, ensure_ascii=False)


def read_raw_list(path: Path) -> Iterator[Utterance]:
    """The utterances of a raw list, one by one. Raises: ListProblem naming the line."""
    if not path.is_file():
        raise ListProblem(f"there is no list {path}; the recipe's stages 0 and 3 write it")
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                fields = json.loads(line)
                yield Utterance(
                    fields["key"], fields["wav"], fields.get("txt", ""), fields.get("start"), fields.get("end")
                )
            except (ValueError, TypeError, KeyError) as error:
                raise ListProblem(
                    f'{path}, line {number}: no JSON object with "key" and "wav": {line[:80].strip()!r} ({error!r})'
                ) from error


def write_raw_list(path: Path, utterances: Iterable[Utterance]) -> None:
    """WeNet's raw list."""
    write_lines(path, (utterance.to_json() for utterance in utterances))


class ListWriter:
    """Writes ``data.list``, ``text``, ``wav.scp`` and, for segments, ``segments`` of a folder in one pass.

    Used as a context; the files appear when the block ends well. Utterances of one recording must come together.
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
        """Add one."""
        raw, text, scp, segments = self._files
        recording = utterance.recording or utterance.key
        raw.write(utterance.to_json() + "\n")
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
        if kind is None and not self._segments:  # Kaldi takes an empty `segments` for no utterance at all
            (self.folder / "segments").unlink()
