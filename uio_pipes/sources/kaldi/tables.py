"""Kaldi's tables, ``KEY rest of the line``: the file's bytes and a few arrays of positions, not an object a line. They
are named one by one or found by their usual names in a data folder, and joined by their keys."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import folder_of, inside, is_named, name_of, path_of
from uio_pipes.formats.lists.lines import unclear_end
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary

CHUNK = 1 << 24  # bytes parsed at a time
MAX_KEY = 4096  # bytes
_BLANK = np.zeros(256, bool)
_BLANK[list(b" \t\n\r\v\f")] = True  # Kaldi splits at these bytes
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

Ints = npt.NDArray[np.int64]


class _Tokens(NamedTuple):
    """All tokens of a chunk; of each line that is not blank, its first token, its number of tokens and its number."""

    first: Ints
    words: Ints
    line: Ints
    starts: Ints
    ends: Ints


class KaldiLines:
    """The lines of a table ``name``, which holds ``data``. Blank lines are passed over.

    ``least``, ``most``: how many words may follow the key. Raises: ListError for a line with fewer or more, and for a
    key that comes twice.
    """

    def __init__(self, name: str, data: bytes, least: int, most: int | None = None) -> None:
        self._read([(name, data)], least, most)

    @classmethod
    def joined(cls, files: Sequence[tuple[str, bytes]], least: int, most: int | None = None) -> KaldiLines:
        """Return one table of the lines of several files, each a name and its content; keys come once in all of them.

        Raises: ListError as for one file.
        """
        table = cls.__new__(cls)
        table._read(files, least, most)
        return table

    def _read(self, files: Sequence[tuple[str, bytes]], least: int, most: int | None) -> None:
        self._names = [name for name, _ in files]
        self.name = self._names[0] if len(files) == 1 else f"{self._names[0]} and {len(files) - 1} more"
        self._least, self._most = least, most
        self.data = self._put_together([data.removeprefix(b"\xef\xbb\xbf") for _, data in files])
        parts = [*self._parsed()]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        self._start = columns[0]
        self._key_size, self._at, self._size, self._line = (column.astype(np.int32) for column in columns[1:])
        self._hashes = self._hashed(self._start, self._key_size)
        self._order = np.argsort(self._hashes, kind="stable")
        self._refuse_twice()

    def _put_together(self, contents: list[bytes]) -> bytes:
        """Return the content of all files, and note where each one begins. Raises: ListError if one has no lines."""
        self._begins, self._lines_before = list[int](), list[int]()
        size = lines = 0
        for i, content in enumerate(contents):
            if not content or content.isspace():
                raise ListError(f"{self._names[i]} is empty: a table of Kaldi's has `KEY …` a line")
            if i < len(contents) - 1 and not content.endswith(b"\n"):
                content = contents[i] = content + b"\n"
            self._begins.append(size)
            self._lines_before.append(lines)
            size += len(content)
            lines += content.count(b"\n") if len(contents) > 1 else 0
        return contents[0] if len(contents) == 1 else b"".join(contents)

    def __len__(self) -> int:
        return len(self._start)

    def raw_key(self, number: int) -> bytes:
        start = int(self._start[number])
        return self.data[start : start + int(self._key_size[number])]

    def key(self, number: int) -> str:
        """Return the key, for messages too: bytes that are not UTF-8 are shown as Python writes them."""
        return self.raw_key(number).decode("utf-8", "backslashreplace")

    def raw(self, number: int) -> bytes:
        """Return the rest of the line after the key, stripped."""
        start = int(self._start[number]) + int(self._at[number])
        return self.data[start : start + int(self._size[number])]

    def value(self, number: int) -> str:
        """Return :meth:`raw` as text. Raises: DataError ``bad_text``."""
        try:
            return self.raw(number).decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"the line is not UTF-8 ({error.reason})"
            raise DataError("bad_text", message, url=self.place(number), member=self.key(number)) from error

    def place(self, number: int) -> str:
        """Return the place of a line for messages: ``wav.scp, line 7``."""
        file, line = self._at_line(int(self._start[number]), int(self._line[number]))
        return f"{file}, line {line}"

    def _at_line(self, start: int, line: int) -> tuple[str, int]:
        """Return the file of the byte ``start``, and the number there of line ``line`` of all files."""
        file = bisect_right(self._begins, start) - 1
        return self._names[file], line - self._lines_before[file]

    def find(self, other: KaldiLines) -> Ints:
        """Return for each line of ``other`` the number of the line here with the same key; -1 if there is none.

        Keys are found by their 64-bit hashes: whoever uses the line compares the keys themselves.
        """
        return self._found(other._hashes)

    def find_words(self, other: KaldiLines) -> Ints:
        """As :meth:`find`, by the first word after each key of ``other`` (all its lines have one)."""
        starts = other._start + other._at.astype(np.int64)
        return self._found(other._hashed(starts, other._word_sizes(starts)))

    def _found(self, wanted: npt.NDArray[np.uint64]) -> Ints:
        hashes = self._hashes[self._order]
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return np.where(hashes[at] == wanted, self._order[at], -1)

    def settle(self) -> None:
        """Let go of the memory that :meth:`find` needs; it can then no longer be called."""
        self._hashes, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)

    def ends_with(self, byte: bytes) -> Ints:
        """Return the numbers of the lines whose value ends with ``byte``."""
        last = np.frombuffer(self.data, np.uint8)[self._start + self._at + np.maximum(self._size, 1) - 1]
        return np.flatnonzero((last == byte[0]) & (self._size > 0))

    def numbers(self, word: int) -> npt.NDArray[np.float64]:
        """Return of every line word ``word`` after the key, as a number. Raises: ListError."""
        words = [self.raw(i).split()[word] for i in range(len(self))]
        try:
            found = np.array(words).astype(np.float64)
        except ValueError:
            found = np.array([_number(w) for w in words])
        if len(bad := np.flatnonzero(~np.isfinite(found))):
            i = int(bad[0])
            raise ListError(f"{self.place(i)}: {words[i].decode('utf-8', 'replace')!r} is not a number")
        return found

    def _parsed(self) -> Iterator[tuple[Ints, Ints, Ints, Ints, Ints]]:
        first, line = 0, 1
        while first < len(self.data):
            end = self.data.find(b"\n", first + CHUNK)
            end = len(self.data) if end < 0 else end + 1
            chunk = np.frombuffer(self.data, np.uint8, end - first, first)
            tokens = _tokens(chunk)
            self._check(tokens, first, line)
            if len(tokens.first):
                start, last = tokens.starts[tokens.first], tokens.ends[tokens.first + tokens.words - 1]
                key_end = tokens.ends[tokens.first]
                at = np.where(tokens.words > 1, tokens.starts[tokens.first + (tokens.words > 1)], key_end)
                yield start + first, key_end - start, at - start, last - at, tokens.line + line
            line += int(np.count_nonzero(chunk == 10))
            first = end

    def _check(self, tokens: _Tokens, first: int, line: int) -> None:
        words = tokens.words - 1  # without the key
        wrong = (words < self._least) | (words > (self._most if self._most is not None else words))
        wrong |= tokens.ends[tokens.first] - tokens.starts[tokens.first] > MAX_KEY
        if not wrong.any():
            return
        i = int(np.flatnonzero(wrong)[0])
        begin, end = tokens.starts[tokens.first[i]], tokens.ends[tokens.first[i] + tokens.words[i] - 1]
        text = self.data[first + begin : first + min(end, begin + 80)].decode("utf-8", "replace")
        wanted = " ".join(["KEY", *["…"] * (self._least or 1)])
        name, at = self._at_line(first + int(begin), int(tokens.line[i]) + line)
        raise ListError(
            f"{name}, line {at} is {text!r}; its lines must be `{wanted}`, "
            f"with a key of at most {MAX_KEY} bytes: correct the line, or name the right file"
        )

    def _hashed(self, starts: Ints, sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
        """Return the FNV-1a hashes of the words there."""
        data = np.frombuffer(self.data, np.uint8)
        hashes = np.full(len(starts), _OFFSET, np.uint64)
        for i in range(int(sizes.max())):
            longer = np.flatnonzero(sizes > i)
            hashes[longer] = (hashes[longer] ^ data[starts[longer] + i]) * _PRIME
        return hashes

    def _word_sizes(self, starts: Ints) -> npt.NDArray[np.int32]:
        data = np.frombuffer(self.data, np.uint8)
        sizes = np.zeros(len(starts), np.int32)
        longer = np.arange(len(starts))
        for i in range(MAX_KEY):
            longer = longer[
                (starts[longer] + i < len(data)) & ~_BLANK[data[np.minimum(starts[longer] + i, len(data) - 1)]]
            ]
            if not len(longer):
                break
            sizes[longer] = i + 1
        return sizes

    def _refuse_twice(self) -> None:
        hashes = self._hashes[self._order]
        twice = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(twice):
            a, b = sorted(int(n) for n in self._order[twice[0] : twice[0] + 2])
            one, other = (self._at_line(int(self._start[n]), int(self._line[n])) for n in (a, b))
            where = f"{one[0]} twice, in lines {one[1]} and {other[1]}"
            if one[0] != other[0]:
                where = f"{one[0]}, line {one[1]}, and in {other[0]}, line {other[1]}"
            raise ListError(
                f"{self.key(b)!r} stands in {where} ({len(twice)} keys in all): give each utterance a key of its own"
            )


def _tokens(chunk: npt.NDArray[np.uint8]) -> _Tokens:
    blank = np.concatenate([[True], _BLANK[chunk], [True]])
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    starts, ends = edges[0::2], edges[1::2]
    newlines = np.flatnonzero(chunk == 10)
    bounds = np.searchsorted(starts, np.concatenate([newlines, [len(chunk)]]))
    counts = np.diff(bounds, prepend=0)
    lines = np.flatnonzero(counts)
    return _Tokens(bounds[lines] - counts[lines], counts[lines], lines, starts, ends)


def _number(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


class KaldiFiles:
    """The tables, read. ``scp`` may be a data folder, in which tables that are not named are then looked for.

    ``utt2dur`` (seconds) and ``utt2num_frames`` are used if they lie beside the scp. Raises: ListError.
    """

    def __init__(self, scp: str, text: str | None, segments: str | None, utt2spk: str | None, access: Access) -> None:
        self._access = access
        self._hash, self.notes = blake2b(digest_size=16), list[DataError]()
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
        self.notes += [unclear_end(path)] if b"\n" in data and not data.endswith(b"\n") else []
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
