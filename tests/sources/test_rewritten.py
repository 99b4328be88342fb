"""Files that are rewritten in place while they are read: same inode and size, other bytes. That is counted."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from indexed_corpus import indexed

import uio_pipes as uio
from uio_pipes.io import local

COUNT = 8


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard that was written long ago."""
    found = Path(corpus.shards(tmp_path, [COUNT], seconds=(0.3, 0.4)).list.read_text().split()[-1])
    os.utime(found, ns=(1, 1))
    return found


def rewritten(path: Path) -> None:
    """Turn all samples over, as a new recording of the same length would."""
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 20_000):
        data[at] ^= 0x55
    with path.open("r+b") as file:
        file.write(data)


def rows(shard: Path) -> uio.Pipeline:
    table = [{"key": f"K{i:04d}", "wav": f"K{i:04d}.wav", "txt": "x"} for i in range(COUNT)]
    return uio.from_table(table, archives=shard, fields={"key": "key", "wav": "wav", "txt": "txt"})


def by_index(shard: Path) -> uio.Pipeline:
    indexed(shard, shard.parent)
    return uio.from_tar_index(shard, indexes=str(shard.parent))


def no_audio(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x" * path.stat().st_size)


@pytest.mark.parametrize("source", [rows, by_index])
@pytest.mark.parametrize(("look", "change"), [(0.0, rewritten), (1e18, no_audio)])
def test_random_reads_notice_it(
    source: Callable[[Path], uio.Pipeline], shard: Path, monkeypatch: pytest.MonkeyPatch, look: float, change: Any
) -> None:
    """Audio that is none any more is of a changed file, however short a time ago that was looked at."""
    monkeypatch.setattr(local, "LOOK", look)
    loader = uio.Loader(source(shard).decode_audio())
    samples = iter(loader)
    next(samples)["wav"]
    change(shard)
    assert list(samples) == []
    assert loader.stats().skipped == {"changed_file": COUNT - 1}


@pytest.mark.parametrize("after", [1, COUNT - 1])
def test_a_shard_that_is_read_through_notices_it_at_its_end(shard: Path, after: int) -> None:
    loader = uio.Loader(uio.from_shard_list(shard))
    samples = iter(loader)
    for _ in range(after):
        next(samples)
    rewritten(shard)
    _ = list(samples)
    assert loader.stats().skipped["changed_file"] >= 1  # and once more if an utterance failed for it


def test_nothing_is_said_of_files_at_rest(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOOK", 0.0)
    for source in (rows(shard), by_index(shard), uio.from_shard_list(shard)):
        loader: Any = uio.Loader(source.decode_audio())
        assert len(list(loader)) == COUNT
        assert not loader.stats().skipped
