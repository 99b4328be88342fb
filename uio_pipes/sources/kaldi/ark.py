"""Audio and feature matrices within an ark, to which lines of ``wav.scp`` and ``feats.scp`` point.

A matrix is ``\0BFM `` (float), ``\0BDM `` (double) or ``\0BCM ``, ``\0BCM2 ``, ``\0BCM3 `` (compressed, see
Kaldi's compressed-matrix.h), the numbers of rows and columns, and the data; kaldiio decodes it. Nothing is unpickled.
"""

from __future__ import annotations

import io
import os
import re
from codecs import getincrementaldecoder
from struct import Struct, pack_into
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import redact, suffix_of
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES
from uio_pipes.io.access import Access
from uio_pipes.io.command import parse_command
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.io.references import RandomFile, Ref
from uio_pipes.sources.kaldi.tables import KaldiLines

HEAD = 256  # bytes read of audio: its own header is among them
_MATRIX = 32  # bytes: the longest header of a matrix and more
_TOLERANCE = 3  # rows by which Kaldi lets a range end after the matrix
_POINTER = re.compile(r"(?P<path>.*?)(?::(?P<offset>\d{1,18}))?(?:\[(?P<range>[\d:,\s]*)\])?", re.DOTALL)
_RANGE = re.compile(r"(\d{1,9}):(\d{1,9})")
_BEHIND = 256  # bytes read after a matrix, where the next object's key must be
_OBJECT = re.compile(rb"\0(B|$)|RIFF|AUDIO| *\[|$")
_PLAIN, _COMPRESSED, _SIZE = Struct("<cici").unpack_from, Struct("<ffii").unpack_from, Struct("<I").unpack_from

Range = tuple[int, int] | None  # first and last, both included


class Pointer(NamedTuple):
    """``path:offset[rows,columns]``."""

    path: str
    offset: int | None = None
    rows: Range = None
    columns: Range = None


class _Matrix(NamedTuple):
    kind: bytes
    rows: int
    columns: int
    at: int  # bytes from the beginning of the object to its data
    rows_at: int  # and to its number of rows
    row: int  # bytes a row
    fixed: int  # bytes before the rows


def parse_pointer(text: str) -> Pointer:
    """Parse the value of a line of an scp. Raises: DataError ``bad_range``."""
    found = _POINTER.fullmatch(text)
    if found is None:
        return Pointer(text)
    offset = found["offset"]
    ranges = [_range(part.strip(), text) for part in (found["range"] or "").split(",")]
    if len(ranges) > 2:
        raise _bad_range(text)
    return Pointer(found["path"], None if offset is None else int(offset), *ranges)


def _range(part: str, text: str) -> Range:
    if part in ("", ":"):
        return None
    found = _RANGE.fullmatch(part)
    if found is None or int(found[1]) > int(found[2]):
        raise _bad_range(text)
    return int(found[1]), int(found[2])


def _bad_range(text: str) -> DataError:
    message = f"{text[-40:]!r} does not end in a range of Kaldi's, [first:last] or [first:last,first:last]"
    return DataError("bad_range", f"{message}, counted from 0, including the last: correct it")


def ark_audio(file: RandomFile, offset: int) -> Ref:
    """Return audio in an ark: a wav, as wav-copy writes it, or kaldiio's ``AUDIO``. Raises: DataError."""
    head = file.read_upto(offset, HEAD)
    if head[:4] == b"RIFF" and len(head) > 12:
        size = _SIZE(head, 4)[0] + 8
        if 44 <= size < 0xFFFFFFFF:
            return Ref(file, offset, size, head[:size])
    if head[:5] == b"AUDIO" and len(head) > 6 and head[5] <= 8:
        begin = 6 + head[5]
        size = int.from_bytes(head[6:begin], "little")
        return Ref(file, offset + begin, size, head[begin : begin + size])
    if not head:
        raise DataError("truncated", "the ark ends before this offset: copy it again", url=file.path, offset=offset)
    if head[:3] in (b"NPY", b"PKL"):
        what = (
            'a numpy array, as write_function="numpy"' if head[:3] == b"NPY" else 'a pickle, as write_function="pickle"'
        )
        message = (
            f"{what} of kaldiio makes it, neither audio nor a matrix of Kaldi's: write the ark again by "
            "kaldiio.save_ark without write_function, (rate, samples) for audio, a float32 matrix for features"
        )
        raise DataError("bad_ark", message, url=file.path, offset=offset)
    message = (
        f"no audio whose size is given, but {head[:8]!r}: an ark of audio holds wavs, as Kaldi's wav-copy writes them, "
        "or kaldiio's AUDIO"
    )
    raise DataError("bad_ark", message, url=file.path, offset=offset)


def _begins_object(data: bytes) -> bool:
    """Return whether an object may begin there: ``KEY `` and its first bytes, these alone, or the end of the ark."""
    key, _, first = data.partition(b" ")
    try:
        named = getincrementaldecoder("utf-8")().decode(key).isprintable()  # of a long key, the last character is cut
    except UnicodeDecodeError:
        named = False
    return _OBJECT.match(data) is not None or (named and _OBJECT.match(first) is not None)


class ArkMatrix(StoredFeatures):
    """A matrix at ``offset`` of ``file``. ``frames``: its number of rows, if a table gives it; else its header does."""

    __slots__ = ("_frames", "columns", "file", "offset", "rows")

    def __init__(self, file: RandomFile, pointer: Pointer, frames: int | None = None) -> None:
        self.file, self.offset = file, pointer.offset or 0
        self.rows, self.columns, self._frames = pointer.rows, pointer.columns, frames

    @property
    def frames(self) -> int:
        if self._frames is None:
            first, last = self._cut(self._header(self.file.read_upto(self.offset, _MATRIX)))
            self._frames = last - first
        return self._frames

    def load(self) -> npt.NDArray[np.float32]:
        from kaldiio.matio import read_kaldi

        head = self.file.read_upto(self.offset, _MATRIX)
        header = self._header(head)
        first, last = self._cut(header)
        low, high = self.columns or (0, header.columns - 1)
        if high >= header.columns:
            raise self._error("bad_range", f"column {high} is wanted, there are {header.columns}")
        if header.fixed:  # column by column: all of it is needed
            data = self._read(header.at, header.fixed + header.rows * header.row, last=True)
            array = _of_columns(data, header, *_COMPRESSED(head, header.at - 16)[:2])[first:last]
        else:
            part = bytearray(head[: header.at])
            pack_into("<i", part, header.rows_at, last - first)
            data = self._read(header.at + first * header.row, (last - first) * header.row, last=last == header.rows)
            array = read_kaldi(io.BytesIO(bytes(part) + data))
        return np.require(array[:, low : high + 1], np.float32, ["C", "W"])

    def _read(self, at: int, size: int, last: bool) -> bytes:
        """Return a part of the matrix. If it is the ``last``, the file must end there, or another object begin."""
        if self.offset + at + size > self.file.size:  # before anything of an absurd size is asked for
            raise self._error("truncated", "the ark ends within the matrix: copy it again")
        if not last:
            return self.file.read(self.offset + at, size)
        data = self.file.read_upto(self.offset + at, size + _BEHIND)
        if len(data) < size:
            raise self._error("truncated", "the ark ends within the matrix: copy it again")
        if not _begins_object(behind := data[size:]):
            message = f"no other object begins where the matrix should end, but {behind[:8]!r}: its header is damaged"
            raise self._error("bad_features", f"{message}, or the offset is wrong")
        return data[:size]

    def _cut(self, header: _Matrix) -> tuple[int, int]:
        """Return the first row and the one after the last."""
        if self.rows is None:
            return 0, header.rows
        first, last = self.rows
        if first >= header.rows or last >= header.rows + _TOLERANCE:
            raise self._error("bad_range", f"rows {first} to {last} are wanted, the matrix has {header.rows}")
        return first, min(last + 1, header.rows)

    def _header(self, head: bytes) -> _Matrix:
        """Parse a matrix's header. Raises: DataError ``bad_features``, ``text_ark`` or ``truncated``."""
        kind = head[2:6].split(b" ")[0]
        at = len(kind) + 3
        if head[:2] == b"\0B" and kind in (b"FM", b"DM", b"CM", b"CM2", b"CM3") and len(head) >= at + 16:
            if kind in (b"FM", b"DM"):
                before, rows, between, columns = _PLAIN(head, at)
                if before + between != b"\4\4":  # sizes of the two numbers
                    raise self._no_matrix(head)
                row = columns * (4 if kind == b"FM" else 8)
                header = _Matrix(kind, rows, columns, at + 10, at + 1, row, 0)
            else:
                rows, columns = _COMPRESSED(head, at)[2:]
                row, fixed = columns * (2 if kind == b"CM2" else 1), columns * 8 if kind == b"CM" else 0
                header = _Matrix(kind, rows, columns, at + 16, at + 8, row, fixed)
            if header.rows > 0 and header.columns > 0:
                return header
        raise self._no_matrix(head)

    def _no_matrix(self, head: bytes) -> DataError:
        if len(head) < _MATRIX and self.offset + _MATRIX > self.file.size and head[:2] in (b"", b"\0", b"\0B"):
            return self._error("truncated", "the ark ends before the matrix does: copy it again")
        if head.lstrip()[:1] == b"[":
            message = "a matrix written as text: make a binary ark (copy-feats scp:feats.scp ark,scp:new.ark,new.scp)"
            return self._error("text_ark", message)
        message = f"no matrix of features, but {head[:8]!r}: the offset is wrong, or these are vectors"
        return self._error("bad_features", message)

    def _error(self, reason: str, message: str) -> DataError:
        return DataError(reason, message, url=self.file.path, offset=self.offset)

    def __repr__(self) -> str:
        return f"ArkMatrix({redact(self.file.path)!r}, offset={self.offset})"


_BYTES = np.arange(256, dtype=np.float32)


def _of_columns(data: bytes, header: _Matrix, least: float, span: float) -> npt.NDArray[np.float32]:
    """Return the matrix of Kaldi's CM: of each column four quantiles, between which its bytes are spread evenly. What a
    byte stands for is computed once in a column, by the operations of kaldiio, which does it for each value."""
    count = header.columns
    quantiles = least + np.frombuffer(data, "<u2", 4 * count).astype(np.float32) * span / 65535.0
    p0, p25, p75, p100 = quantiles.reshape(count, 4, 1).swapaxes(0, 1)
    low, middle, high = _BYTES[:65], _BYTES[65:193] - 64.0, _BYTES[193:] - 192.0
    parts = p0 + (p25 - p0) * low / 64.0, p25 + (p75 - p25) * middle / 128.0, p75 + (p100 - p75) * high * (1 / 63.0)
    values = np.frombuffer(data, np.uint8, -1, 8 * count).reshape(count, header.rows)
    found: npt.NDArray[np.float32] = np.concatenate(parts, axis=1).ravel()[values.T + 256 * np.arange(count)]
    return found


LOOKED_AT = 8  # lines, to distinguish features from audio


def check_pipes(scp: KaldiLines, allowed: bool) -> None:
    """Refuse pipes that are not allowed, or that need a shell. Raises: ListError."""
    piped = scp.ends_with(b"|")
    if not piped:
        return
    first = piped[0]
    if not allowed:
        raise ListError(
            f"{scp.place(first)} is a pipe, a command to be run ({scp.value(first)[:80]!r}; {len(piped)} "
            "lines in all): if you trust the file, allow it with from_kaldi(…, allow_pipes=True), or --allow-pipes of "
            "a command"
        )
    try:
        parse_command(scp.value(first))
    except DataError as error:
        raise ListError(f"{scp.place(first)}: {error.message}") from error


def points_at_features(scp: KaldiLines, access: Access) -> bool:
    """Return whether the scp points at features, by the first of its objects that can be read. Raises: ListError."""
    trouble: DataError | None = None
    for number in range(min(LOOKED_AT, len(scp))):
        try:
            value = scp.value(number)
            pointer = parse_pointer(value)
            if value.endswith("|") or (pointer.offset is None and suffix_of(pointer.path) in AUDIO_SUFFIXES):
                return False
            head = open_file(pointer.path, access).read_upto(pointer.offset or 0, 16)
            return head[:2] == b"\0B" or head.lstrip()[:1] == b"["  # a matrix in Kaldi's binary form, or as text
        except DataError as error:
            trouble = trouble or error
    assert trouble is not None
    near = is_local(trouble.url) is not None and not os.path.isabs(trouble.url)
    hint = f" (relative paths start at the working directory, as in Kaldi: {os.getcwd()})" if near else ""
    raise ListError(f"none of the first lines of {scp.name} can be read, from {scp.place(0)} on: {trouble}{hint}")
