"""A small equivalent of WeNet's current graph, on IterDataPipes, written from a description of its stages.

Their order: list shuffle, tar as a stream, decode, fbank, spec-augment, shuffle, sort, dynamic batch, pad. Every
utterance has its features before it enters a buffer. Tokenizer and filters are left out, here as everywhere.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import soundfile
import torch
from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import IterableWrapper, Mapper, Shuffler

from benchmarks.corpus import Corpus
from benchmarks.peers import SHUFFLE, Batch
from benchmarks.peers.stages import Utterance, add_fbank, by_budget, mask, padded, sorted_blocks

__all__ = ["soundfile_batches", "tar_utterances", "torchaudio_batches"]

AUDIO = frozenset(["wav", "flac", "mp3", "m4a", "ogg", "opus", "wma"])


def tar_utterances(paths: Iterable[str]) -> Iterator[Utterance]:
    """Key, txt and bytes of the audio: consecutive members of one name, by Python's tarfile in stream mode."""
    for path in paths:
        with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
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


def _by_soundfile(utterance: Utterance) -> Utterance:
    samples, utterance["sample_rate"] = soundfile.read(io.BytesIO(utterance.pop("wav")), dtype="float32")
    utterance["waveform"] = torch.from_numpy(samples).unsqueeze(0)
    return utterance


def _graph(decode: Callable[[Utterance], Utterance], corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    paths = Path(corpus.list("tar")).read_text().split()
    random.Random(seed).shuffle(paths)
    pipe: IterDataPipe[Any] = _Stage(IterableWrapper(paths), tar_utterances)
    pipe = Mapper(pipe, decode)
    pipe = Mapper(pipe, partial(add_fbank, dither=0.0)) if check else Mapper(Mapper(pipe, add_fbank), mask)
    pipe = Shuffler(pipe, buffer_size=SHUFFLE).set_seed(seed)
    return iter(Mapper(_Stage(_Stage(pipe, sorted_blocks), by_budget), padded))


def torchaudio_batches(corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    """WeNet's way: torchaudio.load, which goes through torchcodec and FFmpeg."""
    yield from _graph(_by_torchaudio, corpus, seed, check)


def soundfile_batches(corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    """The same with soundfile."""
    yield from _graph(_by_soundfile, corpus, seed, check)
