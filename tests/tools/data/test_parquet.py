"""Parquet files for the commands: inspect, verify, convert, simulate."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from converting import convert
from parquet_corpus import rows, write

import uio_pipes as uio
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.verify import verify
from uio_pipes.tools.reports.inspect import inspect


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, count in enumerate((13, 7)):
        write(tmp_path / "data" / f"train-{number}.parquet", rows(count, 20 * number), write_page_checksum=True)
    return tmp_path / "data"


def test_files_globs_and_lists_are_recognized(folder: Path) -> None:
    (folder / "train.list").write_text("".join(f"{path}\n" for path in sorted(folder.glob("*.parquet"))))
    for path, kind, count in (
        (folder / "train-0.parquet", "Parquet file", 13),
        (folder / "*.parquet", "Parquet file", 20),
        (folder / "train.list", "list of Parquet files", 20),
    ):
        found = recognize(str(path))
        assert found.kind == kind
        seen = inspect(found.pipeline)
        assert (seen.utterances, seen.rates) == (count, {8000: count})
    with pytest.raises(uio.ListError, match=r"name them by a glob in quotes \('.*/\*\.parquet'\)"):
        recognize(str(folder))
    (folder / "train-0.parquet").rename(folder / "train")
    with pytest.raises(uio.ListError, match="without the suffix"):
        recognize(str(folder / "train"))


def test_verify_finds_what_is_damaged(folder: Path) -> None:
    path = folder / "train-1.parquet"
    given = rows(7, 20)
    given[3]["audio"]["bytes"] = given[3]["audio"]["bytes"][:60]
    given[5]["audio"] = None
    given[6]["id"] = "P0000"
    write(path, given, group=4, write_page_checksum=True, use_dictionary=False)
    *_, report = verify([str(folder / "*.parquet")], WantedChecks(decode=True))
    assert report.reasons == {"duplicate_key": 1, "missing_audio": 1, "truncated_audio": 1}
    assert report.utterances == 20
    data = bytearray(path.read_bytes())
    data[pq.ParquetFile(path).metadata.row_group(1).column(1).data_page_offset + 40] ^= 1
    path.write_bytes(data)
    for jobs in (1, 2):
        *_, report = verify([str(path), str(folder / "train-0.parquet")], WantedChecks(decode=True), jobs=jobs)
        assert report.reasons == {"bad_page": 3, "duplicate_key": 1, "truncated_audio": 1}
    assert "row group 1, row 0" in str(next(f for f in report.findings if f.reason == "bad_page"))


def test_verify_looks_at_features_and_text(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", [{"text": "a"}, {"text": "b"}])
    write(tmp_path / "f.parquet", [{"feat": np.ones((3, 2)).tolist(), "txt": "a"}, {"feat": None, "txt": "b"}])
    *_, report = verify([str(tmp_path / "t.parquet"), str(tmp_path / "f.parquet")])
    assert (report.utterances, report.reasons) == (4, {"missing_features": 1})


@pytest.mark.parametrize("decoded", [True, False])
def test_samples_that_are_lists_are_looked_at(tmp_path: Path, decoded: bool) -> None:
    given: list[dict[str, Any]] = []
    for i in range(3):
        samples, rate = [0.1 * i] * (8000 + i), 8000
        audio = {"audio": {"array": samples, "sampling_rate": rate}}
        given.append({"id": f"P{i}", "text": "a"} | (audio if decoded else {"wav": samples, "sample_rate": rate}))
    path = write(tmp_path / "a.parquet", given)
    seen = inspect(recognize(str(path)).pipeline)
    assert (seen.utterances, seen.rates, seen.channels, seen.failures) == (3, {8000: 3}, {1: 3}, {})
    assert seen.codecs == {"samples": 3}
    assert seen.seconds == pytest.approx(3 + 3 / 8000, abs=0.01)
    *_, report = verify([str(path)], WantedChecks(decode=True, rate=16000))
    assert (report.utterances, report.reasons) == (3, {"wrong_rate": 3})


@pytest.mark.parametrize("to", ["indexed", "shards", "raw"])
def test_conversion_sample_by_sample(folder: Path, tmp_path: Path, to: str) -> None:
    done = convert(str(folder / "*.parquet"), str(tmp_path / "out"), to=to, per_part=6)  # type: ignore[arg-type]
    assert (done.utterances, done.failed) == (20, {})
    start = {"indexed": uio.from_indexed, "shards": uio.from_shard_list, "raw": uio.from_raw_list}[to]
    got = list(uio.Loader(start(done.data_list).decode_audio()))  # type: ignore[operator]
    right = list(uio.Loader(uio.from_parquet(str(folder / "*.parquet")).decode_audio()))
    assert [(s["key"], s["txt"]) for s in got] == [(s["key"], s["txt"]) for s in right]
    assert all(torch.equal(a["wav"], b["wav"]) for a, b in zip(got, right, strict=True))
