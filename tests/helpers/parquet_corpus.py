"""Parquet files as Hugging Face's ``datasets`` and pyarrow write them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from corpus import wav_bytes


def rows(count: int, first: int = 0, seconds: tuple[float, float] = (0.3, 1.5)) -> list[dict[str, Any]]:
    """Utterances as Hugging Face's audio data sets have them."""
    return [
        {
            "id": f"P{i:04d}",
            "audio": {"bytes": wav_bytes(i, seconds=seconds), "path": f"P{i:04d}.wav"},
            "text": f"文{i}",
            "speaker_id": i % 3,
        }
        for i in range(first, first + count)
    ]


def write(path: Path, given: list[dict[str, Any]], group: int = 5, **options: Any) -> Path:
    """A file with ``group`` rows in each row group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(given), path, row_group_size=group, **options)
    return path
