"""The cuts of one shard of a Lhotse Shar with their data: all files of the shard are read in parallel, by key.

A cut that one file has and another lacks is an error, and reading goes on with the next cut that all files have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import name_of
from uio_pipes.formats.tar.reader import UNREADABLE, TarReader
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.references import Payload, Ref
from uio_pipes.io.stream import open_source
from uio_pipes.sources.lhotse.recording import Recorded, placed, times, window_of
from uio_pipes.sources.lhotse.source import WantedFields, check_cut, described, end_of, is_recording
from uio_pipes.sources.lhotse.stored import CutFeatures, StoredArray, TimedArray, member_loader

CHUNK = 1 << 18
StreamPosition = Sequence[Any]  # a TarReader's, or a number of lines


class Value(NamedTuple):
    """One field of one cut: ``suffix`` of the member (``flac``, ``npy``, …), "" for a value of a JSON line.

    ``data``: None where the writer left a placeholder. ``meta``: the manifest.
    """

    key: str
    suffix: str
    data: Payload | Any
    meta: dict[str, Any]


class JsonLines:
    """The lines of a JSONL file, plain or compressed, from line ``first`` on."""

    def __init__(self, url: str, access: Access, first: int = 0) -> None:
        self.url, self.number = url, 0
        self._source = open_source(url, access)
        self._rest, self._at, self._ended = b"", 0, False
        for _ in range(first):
            self.next()

    def next(self) -> bytes:
        """Return the next line. Raises: StopIteration at the end, DataError if the file cannot be read to its end."""
        while b"\n" not in self._rest and not self._ended:
            piece = self._source.read_upto(self._at, CHUNK)
            self._at += len(piece)
            self._rest += piece
            self._ended = len(piece) < CHUNK
        if b"\n" not in self._rest:
            if self._source.failure is not None:  # a line of which the end is missing
                error, self._source.failure, self._rest = self._source.failure, None, b""
                raise error
            if not self._rest:
                raise StopIteration
        line, _, self._rest = self._rest.partition(b"\n")
        self.number += 1
        return line

    def parse(self, line: bytes) -> dict[str, Any]:
        """Parse a line. Raises: DataError ``bad_line``."""
        try:
            found = parse_json(line)
        except ValueError as error:
            raise self._bad(f"damaged JSON: {error}") from error
        if not isinstance(found, dict):
            raise self._bad("not a JSON object")
        return found

    def _bad(self, message: str) -> DataError:
        return DataError("bad_line", message, url=f"{self.url}, line {self.number}")

    def close(self) -> None:
        self._source.close()


class _JsonValues:
    """Values of a JSONL file, ``{"cut_id": …, NAME: value}`` a line; a line without the value is a placeholder."""

    def __init__(self, name: str, lines: JsonLines) -> None:
        self._name, self._lines = name, lines

    def next(self) -> Value:
        found = self._lines.parse(self._lines.next())
        return Value(str(found.get("cut_id", "")), "", found.get(self._name), {})

    def tell(self) -> StreamPosition:
        return [self._lines.number]

    def close(self) -> None:
        self._lines.close()


class _TarValues:
    """Values of a tar: ``KEY.flac`` (or another suffix) and ``KEY.json``, or ``KEY.nodata`` and ``KEY.nometa``."""

    def __init__(self, url: str, access: Access, position: StreamPosition) -> None:
        self._url = url
        self._reader = TarReader(url, open_source(url, access), "wenet", *position, text="", payloads=None)
        self.tell, self.close = self._reader.tell, self._reader.close

    def next(self) -> Value:
        key, offset, fields = self._reader.next()
        manifest = fields.pop("json", fields.pop("nometa", None))
        if manifest is None or len(fields) != 1:
            lacking = "its data" if not fields else "its manifest (.json)"
            raise self._error("bad_pair", f"the member comes without {lacking}: write the shard again", key, offset)
        [(suffix, data)] = fields.items()
        if suffix == "nodata":
            return Value(key, suffix, None, {})
        try:
            found = parse_json(manifest.read() if isinstance(manifest, Ref) else manifest)
        except ValueError as error:
            raise self._error("bad_line", f"damaged JSON: {error}", f"{key}.json", offset) from error
        return Value(key, suffix, data, found if isinstance(found, dict) else {})

    def _error(self, reason: str, message: str, member: str, offset: int) -> DataError:
        return DataError(reason, message, url=self._url, member=member, offset=offset)


ValueStream = _JsonValues | _TarValues  # in the order of the cuts; after a DataError, ``next`` may be called again
AHEAD = 1000  # cuts looked at to find the one that data belong to

Fail = Callable[[DataError], None]


class SharCut(NamedTuple):
    """A line of the cuts: its number, its content, and the values that the other files have for it."""

    line: int
    content: dict[str, Any]
    values: dict[str, Value]


class SharReader:
    """Reader of ``files`` (by field, ``cuts`` among them) from ``at`` on, as an earlier reader's ``tell()`` gave it.

    ``fail`` is called with each failure. Raises: DataError if a file cannot be opened.
    """

    def __init__(
        self, files: dict[str, str], access: Access, fail: Fail, at: dict[str, StreamPosition] | None = None
    ) -> None:
        at = at or {}
        self.files, self._fail = files, fail
        self._streams: dict[str, ValueStream] = {}
        self._held: dict[str, Value] = {}  # of a cut further on
        self._cuts: deque[SharCut] = deque()  # parsed, but not their turn yet
        self._over = False
        try:
            self._taken = at["cuts"][0] if at else 0
            self._lines = JsonLines(files["cuts"], access, self._taken)
            for field, url in files.items():
                if field != "cuts":
                    position = at.get(field, [])  # []: from the beginning
                    if field == "cuts" or ".jsonl" in name_of(url):
                        self._streams[field] = _JsonValues(field, JsonLines(url, access, *position))
                    else:
                        self._streams[field] = _TarValues(url, access, position)
        except DataError:
            self.close()
            raise

    def tell(self) -> dict[str, StreamPosition]:
        return {"cuts": [self._taken], **{field: [*stream.tell()] for field, stream in self._streams.items()}}

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        if hasattr(self, "_lines"):
            self._lines.close()

    def next(self) -> SharCut:
        """Return the next cut that all files have. Raises: StopIteration at the end of the shard."""
        while not self._over:
            if not self._cuts:
                self._look_ahead(1)
            if not self._cuts:
                self._finish()
                break
            cut = self._cuts.popleft()
            self._taken = cut.line
            for field in self._streams:
                value = self._value(field, str(cut.content.get("id", "")))
                if value is not None:
                    cut.values[field] = value
            if len(cut.values) == len(self._streams):
                return cut
        raise StopIteration

    def _look_ahead(self, count: int) -> None:
        """Read cuts ahead until ``count`` are at hand, or all that are left."""
        while len(self._cuts) < count:
            try:
                line = self._lines.next()
                if line.strip():
                    self._cuts.append(SharCut(self._lines.number, self._lines.parse(line), {}))
            except StopIteration:
                return
            except DataError as error:
                self._fail(error)

    def _value(self, field: str, key: str) -> Value | None:
        while not self._over:
            value = self._held.pop(field, None) or self._next_value(field, key)
            if value is None or value.key == key:
                return value
            self._look_ahead(AHEAD)
            if any(cut.content.get("id") == value.key for cut in self._cuts):
                self._held[field] = value
                message = f"{self.files[field]} has nothing for this cut: write the shard again"
                self._fail(DataError(f"missing_{field}", message, url=self.files["cuts"], member=key))
                return None
            message = f"no cut in {self.files['cuts']} (near {key!r}) has this name: write the shard again"
            self._fail(DataError("missing_cut", message, url=self.files[field], member=value.key))
        return None

    def _next_value(self, field: str, key: str) -> Value | None:
        """Return the next value of a file; None at its end, when the rest of the shard is lost."""
        while True:
            try:
                return self._streams[field].next()
            except StopIteration:
                lost = 1 + self._left()
                message = f"the file ends before {key!r}: {lost} of the shard's cuts are lost; fetch or write it again"
                self._fail(DataError("short_shard", message, url=self.files[field]))
                self._over = True
                return None
            except DataError as error:
                self._fail(error)
                if error.reason in UNREADABLE:
                    self._over = True
                    return None

    def _left(self) -> int:
        """Count the cuts that are still to come."""
        left = len(self._cuts)
        try:
            while True:
                left += bool(self._lines.next().strip())
        except (StopIteration, DataError):
            return left

    def _finish(self) -> None:
        """Check, at the end of the cuts, that the other files end too."""
        self._over = True
        for field, stream in self._streams.items():
            try:
                value = self._held.pop(field, None) or stream.next()
            except StopIteration:
                continue
            except DataError as error:
                self._fail(error)
            else:
                message = (
                    f"the cuts end before {value.key!r}, which has data: fetch or write {self.files['cuts']} again"
                )
                self._fail(DataError("short_shard", message, url=self.files[field], member=value.key))


_EVERYTHING = WantedFields(())


def as_fields(cut: dict[str, Any], values: dict[str, Value], wanted: WantedFields = _EVERYTHING) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``speaker``, …, ``wav`` or ``feat``, ``supervisions`` and custom fields.

    Raises: DataError ``unsupported_cut``, ``bad_cut``, ``bad_segment``, ``missing_audio`` or ``bad_features``.
    """
    try:
        return placed(wanted.named(_fields(cut, values), cut))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"the cut or one of its manifests cannot be read ({type(error).__name__}: {error}): write it again"
        raise DataError("bad_cut", message) from error


def _fields(cut: dict[str, Any], values: dict[str, Value]) -> dict[str, Any]:
    start, duration = check_cut(cut)
    fields = described(cut, lambda name, manifest: None)  # a Shar's data are in its other files
    for name, value in values.items():
        if value.data is None:
            fields.pop(name, None)
        elif name == "recording":
            fields |= {"wav": _audio(cut, value), **_times(start, duration, value.meta)}
        elif name == "features":
            fields["feat"] = _features(cut, value)
        else:
            fields[name] = _custom(value, start, duration)
    return fields


def _audio(cut: dict[str, Any], recording: Value) -> Payload:
    """Return the audio; if channels matter, as a recording of which segments take those they are of."""
    sources = recording.meta.get("sources") or []
    several = sum(len(source["channels"]) for source in sources) > 1
    named = any(said.get("channel") for said in cut.get("supervisions") or [])
    if "num_samples" not in recording.meta or not (several or named):
        payload: Payload = recording.data
        return payload
    return Recorded(recording.meta, cut.get("channel"), PLAIN, None, [recording.data])


def _times(start: float, duration: float | None, recording: dict[str, Any]) -> dict[str, float]:
    """Return the cut's segment of its recording: a Shar stores what the cut needs, but cuts edited later need less."""
    if "num_samples" not in recording:
        return {"start": start} if start > 0 else {}
    return times(window_of(recording, start, duration), recording["sampling_rate"])


def _custom(value: Value, start: float, duration: float | None) -> Any:
    meta = value.meta
    if value.suffix and "array" in meta:
        return TimedArray(member_loader(value.data, value.suffix), meta, (start, end_of(start, duration)))
    if value.suffix and "shape" in meta:
        return StoredArray(member_loader(value.data, value.suffix))
    if value.suffix and is_recording(meta) and "num_samples" in meta:
        return Recorded(meta, None, PLAIN, window_of(meta, start, duration), [value.data])
    return value.data


def _features(cut: dict[str, Any], value: Value) -> Payload | StoredFeatures:
    if value.suffix == "npy" and "frame_shift" not in value.meta:
        payload: Payload = value.data
        return payload
    return CutFeatures(cut, value.meta, member_loader(value.data, value.suffix))
