"""The features to be packed: of one or more of Kaldi's ``feats.scp``, with their ``text``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.io.access import PLAIN
from uio_pipes.io.local import RandomFile
from uio_pipes.io.opening import open_file
from uio_pipes.prep.reading.data_list import exists, read_lines, read_tables
from uio_pipes.prep.reading.utterance_lists import Bad, Utterance
from uio_pipes.sources.kaldi.ark import ArkMatrix, parse_pointer, points_at_features
from uio_pipes.sources.kaldi.tables import KaldiJoin, KaldiLines, is_folder

UNKNOWN, UNREADABLE = -1, -2  # numbers of frames
HEAD = 1 << 16  # bytes of an scp whose lines show what it points at


class FeatureTables(KaldiJoin):
    """The utterances of several ``feats.scp``, as if all were one; ``wav`` of an utterance is its pointer into an ark.

    ``sources``: scps, or folders with ``feats.scp``. ``texts``: tables of transcripts, which may name the keys in
    any order; without any, the ``text`` beside each scp; None if there need be none. ``utt2spk`` and
    ``utt2num_frames`` beside the scps are used.
    ``measured``: give each utterance its ``frames``, by the header of its matrix if no table says it.

    Raises: ListError, also for a key that comes twice, in one file or in two.
    """

    def __init__(self, sources: Sequence[str], texts: Sequence[str] | None = (), measured: bool = False) -> None:
        scps = [f"{source}/feats.scp" if is_folder(source) else source for source in sources]
        contents = [(name, b"".join(read_lines(name))) for name in scps]
        for name, data in contents:
            if not points_at_features(KaldiLines(name, _first_lines(data), 1), PLAIN):
                raise ListError(f"{name} does not point at features: to pack audio, name the folder with wav.scp")
        scp, beside = KaldiLines.joined(contents, 1), _beside(scps, "text")
        text = _optional(beside, 0, None) if texts is None else read_tables([*texts] or beside, 0)
        self._needs_text = texts is not None
        speakers, frames = (_optional(_beside(scps, name)) for name in ("utt2spk", "utt2num_frames"))
        digest = blake2b(digest_size=16)
        for table in (scp, text, speakers, frames):
            digest.update(b"\0" if table is None else table.data)
        self._frames = np.full(len(scp), UNKNOWN, np.int64) if frames is None else _told(frames, scp)
        super().__init__(scp, text, None, speakers)
        self._arks: dict[str, RandomFile] = {}
        if measured:
            self._measure()
            digest.update(self._frames.data)  # the utterances' places depend on it
        self.digest = digest.hexdigest()

    def __iter__(self) -> Iterator[Utterance | Bad]:
        for number in range(len(self)):
            try:
                yield self._one(number)
            except DataError as error:
                error.url = error.url or self.place(number)
                yield Bad(self.key(number), error.reason, str(error))

    def _one(self, number: int) -> Utterance:
        line = self.recording(number)  # none, for what only has a text
        key, txt = self.key(line), self.value("text", line) if self._needs_text else self.find("text", line)
        frames = int(self._frames[number])
        if frames == UNREADABLE:
            frames = self._matrix(number).frames  # fails again
        speaker = self.find("speaker", number) or ""
        return Utterance(key, self._pointer(number), txt, speaker=speaker, frames=None if frames < 0 else frames)

    def _pointer(self, number: int) -> str:
        value = self.scp.value(number)
        if value.endswith("|"):
            message = "a command in place of an ark: write its output to one (copy-feats … ark,scp:feats.ark,feats.scp)"
            raise DataError("pipe_not_allowed", message, url=self.scp.place(number))
        return value

    def _matrix(self, number: int) -> ArkMatrix:
        pointer = parse_pointer(self._pointer(number))
        file = self._arks.get(pointer.path) or self._arks.setdefault(pointer.path, open_file(pointer.path))
        return ArkMatrix(file, pointer)

    def _measure(self) -> None:
        for number in np.flatnonzero(self._frames == UNKNOWN):
            try:
                self._frames[number] = self._matrix(int(number)).frames
            except DataError:
                self._frames[number] = UNREADABLE


def _first_lines(data: bytes) -> bytes:
    return data if len(data) <= HEAD else data[:HEAD].rpartition(b"\n")[0]


def _beside(scps: Sequence[str], name: str) -> list[str]:
    folders = (scp.rpartition("/")[0] for scp in scps)
    return list(dict.fromkeys(f"{folder}/{name}" if folder else name for folder in folders))


def _optional(urls: list[str], least: int = 1, most: int | None = 1) -> KaldiLines | None:
    found = [url for url in urls if exists(url)]
    return read_tables(found, least, most) if found else None


def _told(table: KaldiLines, scp: KaldiLines) -> npt.NDArray[np.int64]:
    """Return the numbers of frames that ``utt2num_frames`` gives. Raises: ListError."""
    lines, frames = table.find(scp), table.numbers(0)
    if len(bad := np.flatnonzero((frames < 1) | (frames != np.floor(frames)))):
        raise ListError(f"{table.place(int(bad[0]))}: frames are counted from 1 on: make {table.name} again")
    return np.where(lines < 0, UNKNOWN, frames[lines]).astype(np.int64)
