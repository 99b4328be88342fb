"""The loader counts the bytes that its processes read, and requests to servers that were made again."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus import Corpus
from fault_server import FaultServer

import uio_pipes as uio
from uio_pipes.base.memory import READ


def tars(corpus: Corpus) -> tuple[uio.Pipeline, int]:
    files = corpus.list.read_text().split("\n")[2:-1]
    return uio.from_shard_list(corpus.list), sum(map(os.path.getsize, files))


def read_by(pipeline: uio.Pipeline, workers: int, epochs: int = 1) -> list[uio.Stats]:
    loader, found = uio.Loader(pipeline.decode_audio().batch(3).pad(), num_workers=workers), list[uio.Stats]()
    for _ in range(epochs):
        assert sum(len(batch["keys"]) for batch in loader) > 10
        found.append(loader.stats())
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_shards_plain_and_compressed(plain_corpus: Corpus, gz_corpus: Corpus, workers: int) -> None:
    for corpus in (plain_corpus, gz_corpus):
        pipeline, size = tars(corpus)
        first, second = read_by(pipeline, workers, 2)
        for stats in (first, second):
            assert 0.9 * size < stats.bytes_read < 1.6 * size, (corpus.list, stats.bytes_read / size)
        assert first.retries == 0


@pytest.mark.parametrize("form", ["wav", "flac", "ogg"])
def test_raw_files_are_read_once_and_their_headers_twice(tmp_path: Path, form: str) -> None:
    lines = []
    for number in range(12):
        path = tmp_path / f"{number}.{form}"
        soundfile.write(path, np.random.default_rng(number).uniform(-0.5, 0.5, 8_000), 8_000)
        lines.append({"key": f"R{number}", "wav": str(path), "txt": "a"})
    size = sum(map(os.path.getsize, tmp_path.iterdir()))
    (stats,) = read_by(uio.from_raw_list(lines), 0)
    assert 0.9 * size < stats.bytes_read < 4 * size, stats.bytes_read / size


@pytest.mark.parametrize("workers", [0, 1])
def test_a_server_that_fails_now_and_then(
    server: FaultServer, plain_corpus: Corpus, workers: int, tmp_path: Path
) -> None:
    paths = [Path(line) for line in plain_corpus.list.read_text().split("\n")[2:-1]]
    faults = {2: ["503", "short 100"]}
    urls = [server.add(path.name, path.read_bytes(), *faults.get(n, [])) for n, path in enumerate(paths)]
    (tmp_path / "urls.list").write_text("\n".join(urls))
    (stats,) = read_by(uio.from_shard_list(tmp_path / "urls.list"), workers)
    size = sum(map(os.path.getsize, paths))
    assert size <= stats.bytes_read < 1.3 * size, stats.bytes_read / size
    assert stats.retries == 2


def test_a_fork_counts_its_own() -> None:
    READ[:] = 5, 1
    if not (pid := os.fork()):
        os._exit(READ != [0, 0])
    assert os.waitpid(pid, 0)[1] == 0
    assert READ == [5, 1]
    READ[:] = 0, 0
