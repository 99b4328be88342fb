"""Kaldi's tables, ``KEY rest of the line``, given one by one or found by their usual names in a data folder, and joined
by their keys. In memory are the places of every fourth line, and 8 bytes a line to find keys."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import folder_of, inside, is_named, name_of, path_of
from uio_pipes.formats.lists.table import Parts
from uio_pipes.formats.rows.content import Content
from uio_pipes.formats.rows.numbered import HashedRows
from uio_pipes.formats.tables.rows import RowIndex, hashes_of
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local

Ints = npt.NDArray[np.int64]


class KaldiLines(Parts):
    """The lines of a table, which may be in several files; blank lines are skipped.

    ``files``: paths, URLs, or what has been opened already. ``least``, ``most``: how many words may follow the key.

    Raises: ListError for a file that cannot be read, a line with fewer or more words, and a key that comes twice.
    """

    def __init__(
        self, files: Sequence[str | Content], least: int, most: int | None = None, access: Access | None = None
    ) -> None:
        self._files = [HashedRows.known(file, access) for file in files]
        super().__init__(map(len, self._files))
        names = [file.name for file in self._files]
        self.name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        if empty := [file.name for file in self._files if not len(file)]:
            raise ListError(f"{empty[0]} is empty: each line of a Kaldi table is `KEY …`")
        self.notes = [note for file in self._files for note in file.notes]
        self.digest = "".join(file.hash.hexdigest() for file in self._files)
        self._hashes = hashes_of(self._keys(least, most), len(self))
        self._index = RowIndex(self._hashes.copy(), len(self))
        self._refuse_twice()

    def rows(self) -> Iterator[bytes]:
        """Yield all lines, unparsed."""
        for file in self._files:
            yield from file.rows()

    def parts(self, number: int) -> tuple[bytes, bytes]:
        """Return the key, and the rest of the line, stripped."""
        file, within = self.locate(number)
        key, *rest = self._files[file].raw(within).split(None, 1)
        return key, rest[0].rstrip() if rest else b""

    def raw_key(self, number: int) -> bytes:
        return self.parts(number)[0]

    def key(self, number: int) -> str:
        """Return the key, for messages too: bytes that are not UTF-8 are shown as Python writes them."""
        return self.raw_key(number).decode("utf-8", "backslashreplace")

    def raw(self, number: int) -> bytes:
        return self.parts(number)[1]

    def value(self, number: int) -> str:
        """Return :meth:`raw` as text. Raises: DataError ``bad_text``."""
        try:
            return self.raw(number).decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"the line is not UTF-8 ({error.reason})"
            raise DataError("bad_text", message, url=self.place(number), member=self.key(number)) from error

    def place(self, number: int) -> str:
        """Return the place of a line for messages: ``wav.scp, line 7``."""
        file, within = self.locate(number)
        return self._files[file].place(within)

    def number_of(self, key: bytes) -> int:
        """Return the number of the line with this key, -1 if there is none."""
        return next((number for number in self._index.find(key) if self.raw_key(number) == key), -1)

    def find(self, other: KaldiLines) -> Ints:
        """Return for each line of ``other`` the number of the line here with the same key; -1 if there is none.

        Keys are compared by 64-bit hashes, which tables have until they are settled.
        """
        order = np.argsort(self._hashes)
        hashes = self._hashes[order]
        at = np.minimum(np.searchsorted(hashes, other._hashes), len(hashes) - 1)
        return np.where(hashes[at] == other._hashes, order[at], -1)

    def settle(self) -> None:
        """Let go of the memory that :meth:`find` needs; it can then no longer be called."""
        self._hashes = np.zeros(0, np.uint64)

    def ends_with(self, byte: bytes) -> list[int]:
        """Return the numbers of the lines that end with ``byte``."""
        return [number for number, line in enumerate(self.rows()) if line.rstrip().endswith(byte)]

    def numbers(self, word: int) -> npt.NDArray[np.float64]:
        """Return of every line word ``word`` after the key, as a number. Raises: ListError."""
        words = [line.split(None, word + 2)[word + 1] for line in self.rows()]
        try:
            found = np.array(words).astype(np.float64)
        except ValueError:
            found = np.array([_number(w) for w in words])
        if len(bad := np.flatnonzero(~np.isfinite(found))):
            i = int(bad[0])
            raise ListError(f"{self.place(i)}: {words[i].decode('utf-8', 'replace')!r} is not a number")
        return found

    def _keys(self, least: int, most: int | None) -> Iterator[bytes]:
        """Yield all keys. Raises: ListError for a line with fewer or more words."""
        cuts = max(least, 1) if most is None else most + 1
        fewest, longest = least + 1, cuts + 1 if most is None else most + 1
        for number, line in enumerate(self.rows()):
            words = line.split(None, cuts)
            if not fewest <= len(words) <= longest:
                text, wanted = line.strip()[:80].decode("utf-8", "replace"), " ".join(["KEY", *["…"] * (least or 1)])
                raise ListError(
                    f"{self.place(number)} is {text!r}; its lines must be `{wanted}`: correct the line, or name the "
                    "right file"
                )
            yield words[0]

    def _refuse_twice(self) -> None:
        twice = list[tuple[int, int]]()
        for numbers in self._index.twins():
            first = dict[bytes, int]()
            pairs = ((first.setdefault(self.raw_key(number), number), number) for number in numbers)
            twice += [(one, other) for one, other in pairs if one != other]
        if twice:
            places = [self.place(number).rpartition(", line ") for number in min(twice)]
            (one, _, line), (other, _, again) = places
            where = f"{one} twice, in lines {line} and {again}"
            if one != other:
                where = f"{one}, line {line}, and in {other}, line {again}"
            key, remedy = self.key(min(twice)[1]), "give each utterance a key of its own"
            raise ListError(f"{key!r} appears in {where} ({len(twice)} keys in all): {remedy}")


def _number(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


class KaldiFiles:
    """The tables of a data folder. ``scp`` may be that folder, in which tables that are not given are then looked for.

    ``utt2dur`` (seconds) and ``utt2num_frames`` are used if they lie beside the scp. Raises: ListError.
    """

    def __init__(self, scp: str, text: str | None, segments: str | None, utt2spk: str | None, access: Access) -> None:
        self._access = access
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
    def tables(self) -> list[KaldiLines]:
        """The existing tables."""
        given = (self.scp, self.text, self.segments, self.speakers, self._durations, self._frames)
        return [table for table in given if table is not None]

    @property
    def digest(self) -> str:
        """A hash of all bytes read."""
        return blake2b(repr([table.digest for table in self.tables]).encode(), digest_size=16).hexdigest()

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
        try:
            return self._table(inside(folder, name), least, most)
        except ListError as error:
            if isinstance(error.__cause__, DataError) and error.__cause__.reason == "missing_file":
                return None
            raise

    def _table(self, path: str, least: int, most: int | None = None) -> KaldiLines:
        return KaldiLines([path], least, most, self._access)


def is_folder(name: str) -> bool:
    """Return whether this names a folder. A remote folder cannot be distinguished from a file: files have a suffix."""
    path = is_local(name)
    return "." not in name_of(path_of(name).rstrip("/")) if path is None else os.path.isdir(path)
