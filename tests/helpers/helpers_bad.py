"""Tiny fixtures for tests that need odd, broken or hand-made input: every byte is made here."""

import contextlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

import uio_pipes as uio
from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Failures, Ledger
from uio_pipes.core.origin import Origin
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage

Members = list[tuple[str, bytes]]
END = 1024  # bytes of a tar's end marker
RATE = 8000


def code_points(text: str) -> list[int]:
    return [ord(character) for character in text]


def ones(text: str) -> list[int]:
    return [1] * len(text)


def noise(samples: int, seed: int = 0, channels: int = 1) -> np.ndarray:
    """(S, C) float noise that 16 bits hold exactly."""
    rng = np.random.default_rng(seed)
    return rng.integers(-9000, 9000, (samples, channels)).astype(np.float64) / 32768


def audio(
    samples: int = 1600,
    seed: int = 0,
    rate: int = RATE,
    channels: int = 1,
    form: str = "WAV",
    subtype: str = "PCM_16",
) -> bytes:
    """An audio file of seeded noise."""
    buffer = io.BytesIO()
    soundfile.write(buffer, noise(samples, seed, channels), rate, format=form, subtype=subtype)
    return buffer.getvalue()


def members(count: int, first: int = 0, samples: int = 1600) -> Members:
    """``K000.txt``, ``K000.wav``, ``K001.txt``, …, each utterance 80 samples longer than the one before."""
    out: Members = []
    for i in range(first, first + count):
        out += [(f"K{i:03d}.txt", f"文字{i}".encode()), (f"K{i:03d}.wav", audio(samples + 80 * (i % 10), i))]
    return out


def tar(parts: Members) -> bytes:
    """A plain tar without padding beyond its end marker."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name, data in parts:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    size = sum(512 + -(-len(data) // 512) * 512 for _, data in parts)
    return buffer.getvalue()[: size + END]


def shard(path: Path, parts: Members) -> str:
    path.write_bytes(tar(parts))
    return str(path)


def shard_list(path: Path, shards: Iterable[object]) -> str:
    path.write_text("".join(f"{name}\n" for name in shards))
    return str(path)


def raw_items(root: Path, count: int, samples: int = 1600, **fields: Any) -> list[dict[str, Any]]:
    """Entries of a raw list, their recordings written to ``root``."""
    out = []
    for i in range(count):
        path = root / f"R{i:03d}.wav"
        path.write_bytes(audio(samples + 80 * (i % 10), i))
        out.append({"key": f"R{i:03d}", "wav": str(path), "txt": f"字{i}", **fields})
    return out


def raw_list(path: Path, lines: Iterable[Any]) -> str:
    """A raw list; what is no string is written as JSON."""
    texts = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in lines]
    path.write_bytes(("\n".join(texts) + "\n").encode())
    return str(path)


def run(pipeline: uio.Pipeline, **options: Any) -> tuple[list[Any], uio.Loader]:
    """All that one epoch gives (nothing, where all of it failed), and the loader that gave it."""
    loader = uio.Loader(pipeline, **options)
    try:
        return list(loader), loader
    except NothingRead:
        return [], loader


def counted(pipeline: uio.Pipeline, **options: Any) -> tuple[list[Any], uio.Stats]:
    """As ``run``, with the loader's statistics."""
    made, loader = run(pipeline, **options)
    return made, loader.stats()


def each_alone(pipeline: uio.Pipeline) -> tuple[list[Any], dict[str, int]]:
    """All utterances, and what was counted. If all of them failed, that is an error."""
    loader, samples = uio.Loader(pipeline.batch(1)), list[Any]()
    with contextlib.suppress(uio.TooManyFailures):
        samples.extend(sample for batch in loader for sample in batch)
    return samples, loader.stats().skipped


def texts(name: str, count: int) -> uio.Pipeline:
    """``count`` utterances of text, dealt to lanes."""
    return uio.from_iterable([{"key": f"{name}{i}", "txt": name} for i in range(count)]).sharding_filter()


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a nested value with another one at ``path``."""
    if not path:
        return new
    out = value.copy()
    out[path[0]] = replaced(value[path[0]], path[1:], new)
    return out


def planned(pipeline: uio.Pipeline, **options: Any) -> tuple[dict[str, Plan], list[Any]]:
    """The plan of each utterance by its key, and the utterances, none of which may fail."""
    plans: dict[str, Plan] = {}

    def look(sample: uio.Sample) -> bool:
        plans[sample["key"]] = sample.plan
        return True

    return plans, run(pipeline.filter(look), **{"failures": "raise", **options})[0]


def keys(batches: Iterable[Any]) -> list[str]:
    """Keys of samples, of lists of samples and of padded batches."""
    out: list[str] = []
    for batch in batches:
        if isinstance(batch, list):
            out += [sample["key"] for sample in batch]
        else:
            out += batch["keys"] if "keys" in batch else [batch["key"]]
    return out


class Given(Node):
    """A source of samples of the given lengths in frames, keyed 0, 1, 2, …"""

    state_fields = ("position",)

    def __init__(self, lengths: Sequence[int], lane: Lane) -> None:
        super().__init__()
        self.lengths, self.chain, self.run_key = lengths, Chain(), lane.run_key

    def start(self) -> None:
        self.position = 0

    def next(self) -> Sample:
        if self.position >= len(self.lengths):
            raise StopIteration
        number, self.position = self.position, self.position + 1
        fields = {"key": str(number), "feat": torch.zeros(self.lengths[number], 1)}
        return Sample(fields, Origin(number), self.run_key, self.chain)


def started(
    stage: Stage,
    lengths: Sequence[int],
    seed: int = 0,
    policy: Failures | None = None,
    lane: tuple[int, int] = (0, 1),
) -> tuple[Node, Ledger]:
    """``stage``'s node over samples of ``lengths``, at its beginning, and the ledger that it counts in."""
    ledger = Ledger(policy or Failures())
    where = Lane(ledger, *lane, seed=seed)
    node = stage.build(Given(lengths, where), where, Site(stage.name, 0))
    node.reset(None)
    return node, ledger


def drained(node: Node, limit: int = 100_000) -> Iterator[Any]:
    """Yield the items of ``node`` until its end. Raises: AssertionError if it does not end."""
    for _ in range(limit):
        try:
            yield node.next()
        except StopIteration:
            return
    raise AssertionError(f"no end after {limit} items")
