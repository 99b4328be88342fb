"""Servers that lie, over real sockets: what is sound is delivered, what is missing is counted, and the epoch ends.

Each trial has one file on a lying server, among others that are sound; lies are for ever, or pass after some answers.
"""

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import pytest
from corpus import raw_list, shards
from fault_server import FaultServer, Lie, serving
from lies import LIES, first_times
from sweeps.sweep import Outcome, Result, rows, trials

import uio_pipes as uio
from uio_pipes.io import connections, readahead, retry

BOUND = 60.0  # seconds that no trial may take, many times what they do take
THINGS = ("list", "raw list's audio", "tar", "tar.gz")
Seen = Counter[str]


@contextmanager
def impatience() -> Iterator[None]:
    """The package's own limits, shorter; and blocks so small that a file has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "FIRST", 0.001)
        patch.setattr(retry, "ATTEMPTS", 3)
        patch.setattr(retry, "TOTAL", 0.5)
        patch.setattr(connections, "STALL", 0.12)
        patch.setattr(connections, "SLOWEST", 10**6)
        patch.setattr(readahead, "BEGIN", 8_000)
        patch.setattr(readahead, "SMALLEST", 8_000)
        patch.setattr(readahead, "LARGEST", 16_000)
        yield


class Corpora:
    """The sound data: for each thing its files, and which of them a server has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tars = {name: self._shards(folder / name, name == "tar.gz") for name in ("tar", "tar.gz")}
        lines = raw_list(folder / "raw", 6).list.read_text().splitlines()
        self.raw = [line for line in map(json.loads, lines) if "start" not in line]

    def _shards(self, folder: Path, packed: bool) -> list[Path]:
        shards(folder, [3, 4], seconds=(0.5, 0.8), compress="gz" if packed else "")
        return sorted(folder.glob("*.tar*"))

    def pipeline(self, thing: str, server: FaultServer, lie: Lie | None) -> uio.Pipeline:
        if thing == "list":
            data = "".join(f"{json.dumps(line)}\n" for line in self.raw * 60).encode()
            return uio.from_raw_list(self._add(server, "raw.list", data, lie))
        if thing == "raw list's audio":
            first = Path(self.raw[0]["wav"])
            url = self._add(server, first.name, first.read_bytes(), lie)
            return uio.from_raw_list([{**self.raw[0], "wav": url}, *self.raw[1:]]).decode_audio()
        near, far = self.tars[thing]
        return uio.from_shard_list([str(near), self._add(server, far.name, far.read_bytes(), lie)]).decode_audio()

    def _add(self, server: FaultServer, name: str, data: bytes, lie: Lie | None) -> str:
        return server.add(name, data, lie=lie)


def epoch(pipeline: uio.Pipeline) -> tuple[Seen, Counter[str]]:
    """Return the utterances delivered, and the counts of those skipped; for an unusable list, of a ListError."""
    seen, loader = Seen(), uio.Loader(pipeline.batch(4))
    try:
        for batch in loader:
            for one in batch:
                wav = one["wav"]
                data = wav.encode() if isinstance(wav, str) else wav.numpy().tobytes()
                seen[f"{one['key']} {one['txt']} {blake2b(data, digest_size=8).hexdigest()}"] += 1
    except uio.ListError:
        return seen, Counter(["ListError"])
    return seen, Counter(loader.stats().skipped)


def servers(count: int, seed: int) -> Iterator[Outcome]:
    """``count`` trials, each lie in turn for each thing."""
    draw = random.Random(seed)
    cases = [(thing, name) for name in LIES for thing in THINGS]
    with tempfile.TemporaryDirectory() as folder, serving() as server, impatience():
        corpora = Corpora(Path(folder))
        sound = {thing: epoch(corpora.pipeline(thing, server, None)) for thing in THINGS}
        assert all(not skipped and seen for seen, skipped in sound.values())
        for trial in range(count):
            thing, name = cases[trial % len(cases)]
            times = draw.choice([1, 2, 3, 10**9])
            yield _outcome(corpora, server, thing, name, times, sound[thing][0])


def _outcome(corpora: Corpora, server: FaultServer, thing: str, name: str, times: int, sound: Seen) -> Outcome:
    begun = time.monotonic()
    seen, skipped = epoch(corpora.pipeline(thing, server, first_times(times, LIES[name])))
    spent = time.monotonic() - begun
    seed = f"{thing}, {name}, {times} times"
    assert spent < BOUND, f"{seed}: {spent:.0f} s"
    least = {"list": 0, "raw list's audio": len(sound) - 1}.get(thing, 3)  # the others are sound, and on this machine
    kept = sum((sound & seen).values())
    assert kept >= least, f"{seed}: {kept} of {len(sound)} utterances, {skipped}"
    result: Result = "unchanged" if seen == sound else "reported" if skipped and not seen - sound else "silent"
    return Outcome(f"{thing} on a server", f"the server {name}", result, tuple(skipped), seed)


def test_servers() -> None:
    outcomes = list(servers(trials(len(LIES) * len(THINGS)), 11))
    table = rows(outcomes)
    assert [row.silent for row in table.values() if row.silent] == []
    assert len({outcome.damage for outcome in outcomes}) >= 25
    results = Counter(outcome.result for outcome in outcomes)
    assert results["reported"] > 20
    assert results["unchanged"] > 20
