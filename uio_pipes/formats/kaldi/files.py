"""The files of Kaldi's tables: named one by one, or found by their usual names in a data folder."""

from __future__ import annotations

import os
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import folder_of, inside, is_named, name_of, path_of
from uio_pipes.formats.kaldi.lines import KaldiLines
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary


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
