"""Parquet files with conversations: a column that is a list of recordings is a stream."""

from pathlib import Path
from typing import Any

import pytest
from tones import tone, wav_bytes

import uio_pipes as uio

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def written(folder: Path, kind: str) -> list[str]:
    """Four rows: of two recordings, one, none, and null."""
    sizes: list[list[int] | None] = [[4000, 6000], [8000], [], None]
    rows = []
    for i, each in enumerate(sizes):
        audio: list[Any] | None = None if each is None else []
        for n, size in enumerate(each or []):
            path = folder / f"{i}-{n}.wav"
            path.write_bytes(wav_bytes(tone(size, 10 * i + n)))
            as_file = {"bytes": path.read_bytes() if n == 0 else None, "path": str(path)}
            assert audio is not None
            audio.append(str(path) if kind == "paths" else as_file)
        rows.append({"id": f"C{i}", "messages": [{"role": "user", "content": "x"}], "audio": audio})
    if kind == "paths":
        rows = rows[:3]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=2)
    return [str(folder / "a.parquet")]


@pytest.mark.parametrize("kind", ["files", "paths"])
def test_a_list_of_recordings(tmp_path: Path, kind: str) -> None:
    graph = uio.from_parquet(written(tmp_path, kind)).decode_audio(of="audio")
    found = {sample["key"]: [wav.shape[-1] for wav in sample["audio"]] for sample in uio.Loader(graph)}
    assert found == {"C0": [4000, 6000], "C1": [8000], "C2": []} | ({"C3": []} if kind == "files" else {})
    batch = next(iter(uio.Loader(graph.fbank(8, of="audio").sort(9, length="audio.frames").batch(4).pad())))
    assert batch["audio_feats"].shape[0] == 3


def test_a_recording_that_is_null_costs_its_conversation(tmp_path: Path) -> None:
    rows = [{"id": f"C{i}", "audio": [{"bytes": None if i == 1 else wav_bytes(tone(4000, i))}]} for i in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    loader = uio.Loader(uio.from_parquet(str(tmp_path / "a.parquet")).decode_audio(of="audio"))
    assert [sample["key"] for sample in loader] == ["C0", "C2"]
    assert loader.stats().skipped == {"missing_audio": 1}
