"""Kaldi's tables, ``KEY rest of the line``: the file's bytes and a few arrays of positions, not an object a line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError

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
