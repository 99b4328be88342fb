"""Writing shards: one open in each folder, each in its place when it is complete, and then noted in the journal."""

from __future__ import annotations

import io
import tarfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from uio_pipes.prep.cutting import Failure
from uio_pipes.prep.files import atomic_path
from uio_pipes.prep.journal import Finished, Journal
from uio_pipes.prep.lists import Utterance

Audio = bytes | Failure


class ShardWriter:
    """Writes the shards, one open in each folder; each appears when it is complete."""

    def __init__(self, out: Path, journal: Journal) -> None:
        self.out, self.journal = out, journal
        self._open: dict[Path, _Shard] = {}

    def add(self, shard: str, utterance: Utterance, audio: Audio) -> None:
        """Shards of one folder come one after the other."""
        folder = (self.out / shard).parent
        current = self._open.get(folder)
        if current is None or current.name != shard:
            self._finish(folder)
            current = self._open[folder] = _Shard(self.out, shard)
        current.add(utterance, audio)

    def _finish(self, folder: Path) -> None:
        if (shard := self._open.pop(folder, None)) is not None:
            self.journal.add(shard.finish())

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for folder in list(self._open):
            if kind is None:
                self._finish(folder)
            else:
                self._open.pop(folder).abandon(kind, error, trace)


class _Shard:
    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name = out, name
        self.utterances, self.failed = 0, list[list[str]]()
        self._stack = ExitStack()
        temporary = self._stack.enter_context(atomic_path(out / name))
        self._tar = self._stack.enter_context(tarfile.TarFile(temporary, "w", format=tarfile.USTAR_FORMAT))

    def add(self, utterance: Utterance, audio: Audio) -> None:
        if isinstance(audio, Failure):
            self.failed.append([utterance.key, audio.reason, audio.detail])
            return
        self._member(f"{utterance.key}.txt", utterance.txt.encode())
        self._member(f"{utterance.key}.{'flac' if audio[:4] == b'fLaC' else 'wav'}", audio)
        self.utterances += 1

    def _member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)  # no time, no owner: equal content gives equal shards
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))

    def finish(self) -> Finished:
        self._stack.close()
        path = self.out / self.name
        if not self.utterances:
            path.unlink()
        size = path.stat().st_size if self.utterances else 0
        return Finished(self.name, size, self.utterances, self.failed)

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
