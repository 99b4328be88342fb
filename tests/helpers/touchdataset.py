"""The layout of a TouchDataset as its description says, written and read field by field: independent of the package."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}
Utterance = tuple[np.ndarray, dict[str, Any]]


def write_pair(prefix: Path, items: list[np.ndarray], offsets: list[int] | None = None, bounds: int = 1) -> None:
    """``offsets``: where items lie that do not follow one another; ``bounds``: items a document."""
    dtype = items[0].dtype if items else np.dtype(np.uint8)
    at = np.cumsum([0, *(item.nbytes for item in items)]).tolist() if offsets is None else offsets
    data = bytearray(max([o + i.nbytes for o, i in zip(at, items, strict=False)], default=0))
    for offset, item in zip(at, items, strict=False):
        data[offset : offset + item.nbytes] = item.tobytes()
    documents = [*range(0, len(items), bounds), len(items)]
    index = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", CODES[dtype.name])
    index += struct.pack("<Q", len(items)) + struct.pack("<Q", len(documents))
    index += b"".join(struct.pack("<i", len(item)) for item in items)
    index += b"".join(struct.pack("<q", offset) for offset in at[: len(items)])
    index += b"".join(struct.pack("<q", document) for document in documents)
    Path(f"{prefix}.bin").write_bytes(bytes(data))
    Path(f"{prefix}.idx").write_bytes(index)


def write(folder: Path, utterances: list[Utterance], metainfo: str = "metainfo") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps(fields, ensure_ascii=False).encode() for _, fields in utterances]
    write_pair(folder / "audio", [samples for samples, _ in utterances])
    write_pair(folder / metainfo, [np.frombuffer(text, np.uint8) for text in texts])
    return folder


def read_pair(prefix: Path) -> tuple[list[bytes], list[int]]:
    """Items' bytes, and bounds of documents."""
    index, data = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, count, documents = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    width = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}[code]
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    offsets = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    bounds = struct.unpack_from(f"<{documents}q", index, 34 + 12 * count)
    assert len(index) == 34 + 12 * count + 8 * documents
    return [data[o : o + n * width] for o, n in zip(offsets, lengths, strict=True)], list(bounds)


def speech(count: int, rate: int = 8000, seconds: tuple[float, float] = (0.3, 1.5), seed: int = 0) -> list[Utterance]:
    """Noise, with metadata as TouchDataset's users write it."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        samples = (rng.standard_normal(int(rate * rng.uniform(*seconds))) * 3000).astype("<i2")
        fields = {"key": f"T{i:04d}", "wav": f"/data/T{i:04d}.wav", "txt": f"文{i}", "sample_rate": rate}
        made.append((samples, fields | {"speaker": f"S{i % 3}", "info": {"url": "x"}}))
    return made
