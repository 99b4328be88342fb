"""Parquet files at URLs: footers and the columns that are needed are fetched, and nothing else."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from contract import Case, check_cuts, digest, record
from fault_server import FaultServer
from hub import hub
from parquet_corpus import rows, write

import uio_pipes as uio
from uio_pipes.sources.parquet.files import TAIL

Span = tuple[int, int]


def files(tmp_path: Path, **more: Any) -> dict[str, Path]:
    """Two files, each much longer than its footer."""
    made = {}
    for number, count in enumerate((12, 7)):
        given = [{**r, "picture": b"%d" % i * 30_000, **more} for i, r in enumerate(rows(count, 20 * number))]
        made[f"data/train-{number}.parquet"] = write(tmp_path / f"train-{number}.parquet", given, compression="none")
    return made


def batches(pipeline: uio.Pipeline) -> uio.Pipeline:
    return pipeline.decode_audio().fbank(num_mel_bins=8).shuffle(3).batch(2).pad()


def chunks(path: Path, *wanted: str) -> set[Span]:
    """First and last byte + 1 of the columns in all row groups."""
    meta, found = pq.ParquetFile(path).metadata, set()
    for group in range(meta.num_row_groups):
        for i in range(meta.num_columns):
            column = meta.row_group(group).column(i)
            if column.path_in_schema in wanted:
                begin = column.dictionary_page_offset or column.data_page_offset
                found.add((begin, begin + column.total_compressed_size))
    return found


def test_over_http_in_spite_of_faults(server: FaultServer, tmp_path: Path) -> None:
    made = files(tmp_path)
    whole = [digest(b) for b in uio.Loader(batches(uio.from_parquet(list(made.values()), shuffle=True)))]
    urls = [server.add(n, p.read_bytes(), "", "reset 1000", "500") for n, p in made.items()]
    assert [digest(b) for b in uio.Loader(batches(uio.from_parquet(urls, shuffle=True)))] == whole
    for name, path in made.items():
        tail = path.stat().st_size - TAIL
        pictures = [span for span in chunks(path, "picture") if span[1] <= tail]
        assert pictures
        assert not [at for at in server.offsets(name) if any(begin <= at < end for begin, end in pictures)]


def test_the_hub_through_huggingface_hub(tmp_path: Path) -> None:
    """``hf://`` with the real client of the hub, and a server that stands for the hub."""
    made = files(tmp_path)
    local = uio.from_parquet(list(made.values()), shuffle=True)
    with hub({name: path.read_bytes() for name, path in made.items()}) as server:
        url, options = "hf://datasets/me/speech/data/*.parquet", {"endpoint": server.url}
        remote = uio.from_parquet(url, shuffle=True, storage_options=options)
        recorded = record(Case(batches(remote), {"lanes": 2}))
        assert recorded.digests == record(Case(batches(local), {"lanes": 2})).digests
        check_cuts(recorded, [0, 3, len(recorded.digests)])
        for name, path in made.items():
            size = path.stat().st_size
            asked = {(first, last + 1) for n, first, last in server.ranges if n == name} - {(size - TAIL, size)}
            needed = chunks(path, "audio.bytes", "audio.path", "id", "text", "speaker_id")
            assert all(any(a <= begin and end <= b for a, b in asked) for begin, end in needed)
            assert not any(a < end and begin < b for a, b in asked for begin, end in chunks(path, "picture"))


def test_planning_with_durations_fetches_no_audio(server: FaultServer, tmp_path: Path) -> None:
    made = files(tmp_path, duration=1.6)
    urls = [server.add(n, p.read_bytes()) for n, p in made.items()]
    loader = uio.Loader(uio.from_parquet(urls).decode_audio().filter(min_frames=1).dynamic_batch(400).pad())
    assert len(loader) == 10
    for name, path in made.items():
        audio = chunks(path, "audio.bytes")
        tail = path.stat().st_size - TAIL
        assert not [at for at in server.offsets(name) if at < tail and any(a <= at < b for a, b in audio)]


def test_a_remote_file_that_changes_is_counted(server: FaultServer, tmp_path: Path) -> None:
    path = next(iter(files(tmp_path).values()))
    url = server.add("a.parquet", path.read_bytes())
    loader = uio.Loader(uio.from_parquet(url).decode_audio().batch(1))
    batches = iter(loader)
    next(batches)
    server.files["a.parquet"].etag = '"two"'
    got = [s["key"] for batch in batches for s in batch]
    assert loader.stats().skipped == {"changed_file": 11 - len(got)}
    assert len(got) < 11


def test_a_remote_file_with_another_etag_is_refused_when_a_state_is_loaded(server: FaultServer, tmp_path: Path) -> None:
    url = server.add("a.parquet", next(iter(files(tmp_path).values())).read_bytes())
    pipeline = uio.from_parquet(url).decode_audio().batch(2)
    loader = uio.Loader(pipeline)
    next(iter(loader))
    state = loader.state_dict()
    uio.Loader(pipeline).load_state_dict(state)
    server.files["a.parquet"].etag = '"two"'
    with pytest.raises(uio.StateError, match="list changed"):
        uio.Loader(pipeline).load_state_dict(state)


def test_a_missing_url_is_not_a_relative_path(server: FaultServer) -> None:
    with pytest.raises(uio.ListError, match="no such file: correct the list or fetch") as error:
        list(uio.Loader(uio.from_parquet(f"http://127.0.0.1:{server.server_address[1]}/none.parquet")))
    assert "relative" not in str(error.value)


def test_a_cache_keeps_the_files(server: FaultServer, tmp_path: Path) -> None:
    made = files(tmp_path)
    urls = [server.add(n, p.read_bytes()) for n, p in made.items()]
    pipeline = uio.from_parquet(urls, cache=tmp_path / "cache").decode_audio()
    first = [s["key"] for s in uio.Loader(pipeline)]
    server.asked.clear()
    assert [s["key"] for s in uio.Loader(pipeline)] == first
    assert len(server.asked) <= 2 * len(urls), "by each table of files, only whether they are still the same"
