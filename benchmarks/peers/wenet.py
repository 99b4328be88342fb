"""A small equivalent of WeNet's current graph, on IterDataPipes, written from a description of its stages.

The order is: list shuffle, tar as a stream, decode, fbank, spec-augment, shuffle, sort, dynamic batch, pad. Every
utterance has its features before it enters a buffer. Tokenizer and filters are left out, as in all peers. WeNet goes on
with the next epoch after a stop: there is no way to go on in the middle of one.
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import IterableWrapper, Mapper, Shuffler

from benchmarks.peers import SHUFFLE, Batch, Work
from benchmarks.peers.stages import Divided, Utterance, batched, by_soundfile, in_workers, padded, prepared

__all__ = ["soundfile_batches", "tar_utterances", "torchaudio_batches"]

AUDIO = frozenset(["wav", "flac", "mp3", "m4a", "ogg", "opus", "wma"])


def tar_utterances(paths: Iterable[str]) -> Iterator[Utterance]:
    """Yield key, txt and bytes of the audio: consecutive members of one name, by Python's tarfile in stream mode."""
    for path in paths:
        with (
            (gzip.open if path.endswith(".gz") else open)(path, "rb") as file,
            tarfile.open(fileobj=file, mode="r|") as tar,
        ):
            utterance: Utterance = {}
            for member in tar:
                key, _, suffix = member.name.rpartition(".")
                if utterance and utterance["key"] != key:
                    yield utterance
                    utterance = {}
                data = tar.extractfile(member)
                assert data is not None
                utterance["key"] = key
                if suffix == "txt":
                    utterance["txt"] = data.read().decode("utf8").strip()
                else:
                    utterance["wav" if suffix in AUDIO else suffix] = data.read()
            if utterance:
                yield utterance


class _Stage(IterDataPipe[Any]):
    """A generator function as a stage."""

    def __init__(self, source: IterDataPipe[Any], function: Callable[[Any], Iterator[Any]]) -> None:
        self.source, self.function = source, function

    def __iter__(self) -> Iterator[Any]:
        yield from self.function(self.source)


def _by_torchaudio(utterance: Utterance) -> Utterance:
    import torchaudio

    utterance["waveform"], utterance["sample_rate"] = torchaudio.load(io.BytesIO(utterance.pop("wav")))
    return utterance


def _graph(paths: list[str], decode: Callable[[Utterance], Utterance], work: Work) -> Iterable[Batch]:
    pipe: IterDataPipe[Any] = _Stage(IterableWrapper(paths), tar_utterances)
    pipe = Mapper(Mapper(pipe, decode), partial(prepared, work=work))
    if work.buffers:
        pipe = Shuffler(pipe, buffer_size=SHUFFLE).set_seed(work.seed)
    return Mapper(_Stage(pipe, partial(batched, work=work)), padded)


def _batches(decode: Callable[[Utterance], Utterance], work: Work) -> Iterator[Batch]:
    paths = Path(work.corpus.list(work.kind)).read_text().split()
    random.Random(work.seed).shuffle(paths)
    yield from in_workers(Divided(paths, partial(_graph, decode=decode, work=work)), work.workers)


def torchaudio_batches(work: Work) -> Iterator[Batch]:
    """Decode as WeNet does: by torchaudio.load, which uses torchcodec and FFmpeg."""
    yield from _batches(_by_torchaudio, work)


def soundfile_batches(work: Work) -> Iterator[Batch]:
    """Decode by soundfile."""
    yield from _batches(by_soundfile, work)
