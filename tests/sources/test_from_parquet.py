"""``from_parquet``: rows of Parquet files, dealt by row groups; read as pyarrow and ``datasets`` wrote them."""

import gc
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import wav_bytes
from datasets import Audio, Dataset
from parquet_corpus import rows, write

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.sources.parquet.files import ParquetFile
from uio_pipes.sources.parquet.table import RowGroup, RowOrder


def delivered(pipeline: uio.Pipeline, **options: Any) -> list[Any]:
    return list(uio.Loader(pipeline, **options))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, tuple[str, ...]]]:
    """File, row group and columns of each read."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    read = ParquetFile.read

    def noted(self: ParquetFile, group: int, columns: list[str]) -> Any:
        found.append((Path(self.url).name, group, tuple(columns)))
        return read(self, group, columns)

    monkeypatch.setattr(ParquetFile, "read", noted)
    return found


# What comes out


def test_the_rows_of_a_file_that_datasets_wrote(tmp_path: Path) -> None:
    given = rows(12)
    data = Dataset.from_list(given).cast_column("audio", Audio(decode=False))
    data.to_parquet(str(tmp_path / "train.parquet"), batch_size=5)
    got = delivered(uio.from_parquet(tmp_path / "train.parquet"))
    assert [dict(sample) for sample in got] == [
        {"key": r["id"], "wav": r["audio"]["bytes"], "txt": r["text"], "speaker_id": r["speaker_id"]} for r in given
    ]


def test_audio_is_bytes_paths_or_samples(tmp_path: Path) -> None:
    sound = wav_bytes(3)
    (tmp_path / "a.wav").write_bytes(sound)
    path = str(tmp_path / "a.wav")
    pcm = np.frombuffer(sound[44:], "<i2").astype(np.float32) / 32768
    forms: dict[str, list[Any]] = {
        "binary": [sound],
        "path": [path],
        "bytes_in_struct": [{"bytes": sound, "path": None}],
        "path_in_struct": [{"bytes": None, "path": path}],
        "decoded": [{"array": pcm.tolist(), "sampling_rate": 8000}],
    }
    for name, column in forms.items():
        write(tmp_path / f"{name}.parquet", [{"audio": column[0], "text": "a"}])
        (sample,) = delivered(uio.from_parquet(tmp_path / f"{name}.parquet").decode_audio())
        assert sample["sample_rate"] == 8000, name
        assert np.array_equal(sample["wav"].numpy(), pcm[None]), name
        assert sample["key"] == f"{name}-000000"
    for binary, string in ((pa.large_binary(), pa.large_string()), (pa.binary_view(), pa.string_view())):
        table = pa.table({"audio": pa.array([sound], binary), "text": pa.array(["a"], string)})
        pq.write_table(table, tmp_path / "large.parquet")
        (sample,) = delivered(uio.from_parquet(tmp_path / "large.parquet"))
        assert (sample["wav"], sample["txt"]) == (sound, "a")
    write(tmp_path / "list.parquet", [{"wav": pcm.tolist(), "sample_rate": 8000}])
    (sample,) = delivered(uio.from_parquet(tmp_path / "list.parquet").decode_audio())
    assert np.array_equal(sample["wav"].numpy(), pcm[None])


def test_features_are_arrays_and_text_needs_no_audio(tmp_path: Path) -> None:
    feat = np.arange(12, dtype=np.float32).reshape(4, 3)
    write(tmp_path / "f.parquet", [{"feat": feat.tolist(), "txt": "a"}])
    (batch,) = delivered(uio.from_parquet(tmp_path / "f.parquet").batch(1).pad())
    assert np.array_equal(batch["feats"][0].numpy(), feat)
    write(tmp_path / "t.parquet", [{"text": "a b"}, {"text": None}, {"text": 7 * "c"}])
    assert [dict(s) for s in delivered(uio.from_parquet(tmp_path / "t.parquet"))] == [
        {"txt": "a b", "key": "t-000000"},
        {"key": "t-000001"},
        {"txt": "ccccccc", "key": "t-000002"},
    ]


def test_names_and_columns_are_chosen_and_no_others_are_read(tmp_path: Path, asked: list[Any]) -> None:
    given = [
        {"utt": i, "speech": wav_bytes(i), "sentence": f"s{i}", "age": i, "picture": b"x" * 1000, "duration": 9.0}
        for i in range(6)
    ]
    file = write(tmp_path / "a.parquet", given, group=3)
    names = {"key": "utt", "wav": "speech", "txt": "sentence"}
    got = delivered(uio.from_parquet(file, fields=names, columns=["age"]))
    assert sorted(got[1]) == ["age", "duration", "key", "txt", "wav"]
    assert (got[1]["key"], got[1]["age"], got[1]["txt"]) == ("1", 1, "s1")
    assert not any("picture" in columns for _, _, columns in asked)
    assert delivered(uio.from_parquet(file, fields=names))[1]["picture"] == b"x" * 1000
    asked.clear()
    loader = uio.Loader(uio.from_parquet(file, fields=names).decode_audio().filter(min_frames=5).batch(2).pad())
    assert len(loader) == 3
    assert not any({"picture", "speech"} & set(columns) for _, _, columns in asked), "duration gives the length"


# The order


def test_the_path_of_the_file_is_a_name_in_expressions(tmp_path: Path) -> None:
    for lang in ("de", "pl"):
        (tmp_path / lang).mkdir()
        write(tmp_path / lang / "train.parquet", rows(2))
    samples = delivered(uio.from_parquet(f"{tmp_path}/*/*.parquet", fields={"lang": "table | folder | name"}))
    assert Counter(sample["lang"] for sample in samples) == {"de": 2, "pl": 2}


@pytest.mark.parametrize("key", [None, 77], ids=["in order", "shuffled"])
@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("sizes", [[1000], [5, 1, 7, 100, 3], [1] * 9, [2]], ids=str)
def test_an_order_deals_each_row_once_and_evenly(sizes: list[int], lanes: int, key: int | None) -> None:
    order = RowOrder(sizes, lanes, key)
    numbers = [order[p] for p in range(len(order))]
    assert sorted(numbers) == list(range(sum(sizes)))
    ends = np.cumsum(sizes)
    entered: Counter[int] = Counter()
    for lane in range(lanes):
        groups = [int(np.searchsorted(ends, n, side="right")) for n in numbers[lane::lanes]]
        runs = [g for i, g in enumerate(groups) if i == 0 or groups[i - 1] != g]
        assert len(runs) == len(set(runs)), "no row group is left and entered again"
        entered.update(runs)
        told = [order.following(p) for p in range(lane, len(order), lanes)]
        assert told == [next((g for g in runs[runs.index(now) + 1 :]), None) for now in groups]
    assert entered.total() <= len(sizes) + lanes - 1
    if lanes == 1 and key is None:
        assert numbers == sorted(numbers)


def test_a_lane_reads_each_of_its_row_groups_once_and_the_next_one_ahead(tmp_path: Path, asked: list[Any]) -> None:
    file = write(tmp_path / "a.parquet", rows(40), group=5)
    node = uio.from_parquet(file, shuffle=True).build(Lane(Ledger(), 0, 2, seed=5))
    node.reset(None)
    node.next()
    end = time.monotonic() + 30
    while len({group for _, group, _ in asked}) < 2 and time.monotonic() < end:
        time.sleep(0.01)  # it is read in the background
    assert len({group for _, group, _ in asked}) == 2, "the first and the second"
    kept = []
    while True:
        try:
            kept.append(node.next())
        except StopIteration:
            break
        held = [thing for thing in gc.get_objects() if isinstance(thing, RowGroup) and thing.file.url == str(file)]
        assert len(held) <= 2, "samples do not keep row groups"
        del held
    assert Counter(group for _, group, columns in asked if "audio.bytes" in columns).most_common(1)[0][1] == 1
    assert len(asked) == 2 * 4, "small columns and audio, of four row groups"
