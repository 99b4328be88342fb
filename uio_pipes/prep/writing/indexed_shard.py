"""One folder of a TouchDataset, written like a shard: audio as 16-bit PCM, all else as metadata."""

from __future__ import annotations

import json
from struct import unpack_from
from typing import Any

import numpy as np

from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.indexed_writer import PairWriter
from uio_pipes.prep.writing.journal import Finished
from uio_pipes.prep.writing.unit import Unit

_HEADER = 44  # of the wav files that cutting makes; the rate is at byte 24


class ShardFolder(Unit):
    """``audio.bin``, ``audio.idx``, ``metainfo.bin``, ``metainfo.idx`` in a folder ``name``."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name)
        folder = self._stack.enter_context(out.staged_folder(name, mark))
        self._audio = self._stack.enter_context(PairWriter(folder / "audio", np.int16))
        self._metainfo = self._stack.enter_context(PairWriter(folder / "metainfo", np.uint8))
        self._samples = 0

    def _store(self, utterance: Utterance, audio: Audio) -> None:
        (rate,) = unpack_from("<I", audio.data, 24)
        known: dict[str, Any] = {"key": utterance.key, "wav": utterance.wav}
        known |= {"sample_rate": rate} if utterance.txt is None else {"txt": utterance.txt, "sample_rate": rate}
        if utterance.speaker:
            known["speaker"] = utterance.speaker
        samples = np.frombuffer(audio.data, "<i2", offset=_HEADER)
        self._audio.add(samples)
        self._metainfo.add(json.dumps(known, ensure_ascii=False).encode())
        self._samples += len(samples)

    def finish(self) -> Finished:
        self._stack.close()
        size = 2 * self._samples
        if not self.utterances:
            self.out.remove_folder(self.name)
        return Finished(self.name, size, self.utterances, self.frames, "", self.failed)
