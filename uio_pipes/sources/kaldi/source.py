"""``from_kaldi``: the utterances of Kaldi's ``wav.scp`` or ``feats.scp``, ``text``, ``segments``, ``utt2spk``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import SLACK, TICKS
from uio_pipes.base.checks import require
from uio_pipes.base.elsewhere import understood
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import AnyPath
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY, names
from uio_pipes.formats.lists.json_lines import LATEST
from uio_pipes.formats.naming import Renames, check_given, renamed
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access
from uio_pipes.io.command import Piped
from uio_pipes.io.local import AudioInfo, RandomFile
from uio_pipes.io.opening import open_file, reference
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.kaldi.ark import ArkMatrix, ark_audio, check_pipes, parse_pointer, points_at_features
from uio_pipes.sources.kaldi.tables import KaldiFiles, KaldiJoin

FIELDS = ("key", "wav", "feat", "start", "end", "txt", "speaker")  # that tables can give
_PER_SECOND = 100  # weights are in frames of 10 ms


class KaldiTable(KaldiJoin):
    """Utterances with their audio or features; see :class:`KaldiJoin` for their order.

    Raises: ListError for tables that are missing, malformed or of the wrong kind, naming file and line.
    """

    def __init__(self, files: KaldiFiles, access: Access, allow_pipes: bool, names: Renames = None) -> None:
        self._access, self._names = access, names
        check_pipes(files.scp, allow_pipes)
        self.has_features = points_at_features(files.scp, access)
        if self.has_features and files.segments is not None:
            raise ListError(
                f"{files.scp.name} points at features, which are of utterances already, but segments "
                f"({files.segments.name}) cut recordings: name wav.scp, or leave segments out"
            )
        segments = files.segments
        self._times = None if segments is None else (segments.numbers(1), segments.numbers(2))
        self._length = files.lengths(segments or files.scp, self.has_features)
        super().__init__(files.scp, files.text, segments, files.speakers)
        self.weights = self._weights()
        self.digest, self.notes = files.digest, files.notes
        self._arks: dict[str, RandomFile] = {}

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of an utterance. Raises: DataError ``missing_recording``, ``bad_segment``, …"""
        table, line = self._line(number)
        try:
            recording = self.recording(number)
            fields: dict[str, Any] = {"key": _utf8(table.raw_key(line), "key")}
            fields |= self._payload(number, recording)
            if self.has("text"):
                fields["txt"] = self.value("text", number)
            if self.has("speaker"):
                fields["speaker"] = self.value("speaker", number)
        except DataError as error:
            raise error.at(error.url or table.place(line), table.key(line)) from error
        return renamed(fields, self._names) if self._names else fields

    def _payload(self, number: int, recording: int) -> dict[str, Any]:
        """Return the audio with its segment, or the features."""
        value = self.scp.value(recording)
        if self._times is None:
            return self._features(value, number) if self.has_features else {"wav": self._audio(value, number, None)}
        start, end = float(self._times[0][number]), float(self._times[1][number])
        if not 0 <= start < LATEST or not (start < end < LATEST or end == -1):
            message = (
                f"start and end must be seconds with 0 <= start < end, or -1 for the recording's end: {start} {end}"
            )
            raise DataError("bad_segment", message)
        cut = {"start": start} if end == -1 else {"start": start, "end": end}
        return {"wav": self._audio(value, number, cut.get("end")), **cut}

    def _audio(self, value: str, number: int, end: float | None) -> Any:
        if value.endswith("|"):
            return Piped(value, self._told(number, end), shared=self.segments is not None)
        pointer = parse_pointer(value)
        if pointer.offset is None or pointer.rows is not None:
            return reference(value, self._access)
        return ark_audio(self._file(pointer.path), pointer.offset)

    def _told(self, number: int, end: float | None) -> AudioInfo | None:
        """Return the length of a command's output as far as tables give it: in ticks, rounded up."""
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


@dataclass(frozen=True)
class ListKaldi(Source):
    """Utterances of Kaldi tables. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_kaldi"

    scp: str = field(metadata=NO_IDENTITY)
    text: str | None = field(default=None, metadata=NO_IDENTITY)
    segments: str | None = field(default=None, metadata=NO_IDENTITY)
    utt2spk: str | None = field(default=None, metadata=NO_IDENTITY)
    shuffle: bool = False
    allow_pipes: bool = False
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given(self.name, self.fields, FIELDS)

    def table(self) -> KaldiTable:
        """Read the tables. Raises: ListError naming file and line."""
        files = KaldiFiles(self.scp, self.text, self.segments, self.utt2spk, self.access)
        return KaldiTable(files, self.access, self.allow_pipes, self.fields)


@understood
def from_kaldi(
    scp: AnyPath,
    text: AnyPath | None = None,
    *,
    segments: AnyPath | None = None,
    utt2spk: AnyPath | None = None,
    shuffle: bool = False,
    allow_pipes: bool = False,
    fields: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from Kaldi's tables, whose utterances are read in any order.

    Args:
        scp: ``wav.scp`` (paths, URLs, ``.ark:offset`` of audio, pipes) or ``feats.scp`` (``.ark:offset``, with
            ``[first:last]`` rows if wanted), distinguished by what they point at; or a data folder, whose tables are
            used, and ``wav.scp`` if it has both. Relative paths in a table start at the working directory, as in
            Kaldi.
        text: table of ``KEY words …`` per line, for the field ``txt``. An utterance without a line is counted as
            ``missing_text``, a line without an utterance as ``missing_recording``. Default: None, the folder's own,
            or no text.
        segments: table of ``KEY RECORDING start end`` per line, in seconds; an end of -1 is the end of the
            recording. Default: None, the folder's own, or none.
        utt2spk: table of ``KEY SPEAKER`` per line, for the field ``speaker``. Default: None, the folder's own, or
            none.
        shuffle: whether to deal the utterances in another order in each epoch. Default: False.
        allow_pipes: whether to run the commands that ``wav.scp`` may have in place of paths (``sox … |``); they run
            without a shell. Default: False.
        fields: other names for fields by those that the tables give, as in ``{"words": "txt"}``. Default: None, no
            others.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument is not a path.
        ListError: when the pipeline runs, if a table is missing or malformed, or a key stands in it twice.
    """
    named = {"scp": scp, "text": text, "segments": segments, "utt2spk": utt2spk}
    paths = {name: _path(name, value) for name, value in named.items() if value is not None or name == "scp"}
    stage = ListKaldi(
        **paths,
        shuffle=shuffle,
        allow_pipes=allow_pipes,
        access=Access.of("from_kaldi", storage_options, cache, cache_size),
        fields=fields,
    )
    return Pipeline((stage,)).sharding_filter().load_records()


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    require(bool(path), "from_kaldi", f"{name} must be a path or URL", value, "name a file")
    return str(path)
