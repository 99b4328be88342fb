"""A shard under way: utterances are counted, and keys checked, whatever it is written as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType

from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio, CutResult, Failure
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.journal import Finished


class Unit(ABC):
    """One shard under way: counts its utterances, and those that failed."""

    def __init__(self, out: Folder, name: str) -> None:
        self.out, self.name = out, name
        self.seen, self.utterances, self.frames = 0, 0, 0
        self.failed, self._keys = list[list[str]](), set[str]()
        self._stack = ExitStack()

    def add(self, utterance: Utterance, audio: CutResult) -> None:
        """Add one utterance, or its failure."""
        self.seen += 1
        audio = self._checked(utterance.key, audio)
        if isinstance(audio, Failure):
            self.failed.append([utterance.key, audio.reason, audio.detail])
            return
        self._keys.add(utterance.key)
        self._store(utterance, audio)
        self.utterances += 1
        self.frames += max(audio.frames, 0)

    def _checked(self, key: str, audio: CutResult) -> CutResult:
        parts = key.split("/")
        if key.startswith("/") or ".." in parts or not key.isprintable():
            return Failure(
                "bad_key", f"{key!r} cannot be a name in a tar: it must not begin with / nor hold .. or breaks"
            )
        if key in self._keys:
            return Failure("duplicate_key", f"{self.name} has an utterance {key!r} already: readers would join them")
        return audio

    @abstractmethod
    def _store(self, utterance: Utterance, audio: Audio) -> None: ...

    @abstractmethod
    def finish(self) -> Finished:
        """Move the shard to its place, or remove it if it is empty."""

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the incomplete shard."""
        self._stack.__exit__(kind or GeneratorExit, error or GeneratorExit(), trace)
