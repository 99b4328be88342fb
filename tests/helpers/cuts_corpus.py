"""Manifests of cuts, written without Lhotse (tests/interop has those that Lhotse wrote)."""

import gzip
import json
from pathlib import Path
from typing import Any

import corpus

RATE = 8000


def cut_of(root: Path, number: int, rate: int = RATE) -> dict[str, Any]:
    """A cut of a recording of its own; every third is only a part of it. Its text ends in its number."""
    path = root / f"a{number}.wav"
    path.write_bytes(corpus.wav_bytes(number, rate, (0.3, 1.5)))
    samples = (path.stat().st_size - 44) // 2
    recording = {
        "id": f"r{number}",
        "sources": [{"type": "file", "channels": [0], "source": str(path)}],
        "sampling_rate": rate,
        "num_samples": samples,
        "duration": samples / rate,
        "channel_ids": [0],
    }
    start = 0.05 if number % 3 == 0 else 0.0
    length = samples / rate - 2 * start
    said = {"id": f"s{number}", "recording_id": f"r{number}", "start": 0.0, "duration": length, "channel": 0}
    return {
        "id": f"C{number:03d}",
        "start": start,
        "duration": length,
        "channel": 0,
        "supervisions": [said | {"text": f"文{number}", "speaker": f"S{number % 3}", "language": "zh"}],
        "recording": recording,
        "custom": {"snr": number / 2},
        "type": "MonoCut",
    }


def write_cuts(path: Path, found: list[dict[str, Any]]) -> Path:
    """One cut a line, compressed if the name ends in .gz."""
    text = "".join(json.dumps(cut, ensure_ascii=False) + "\n" for cut in found).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def cuts(root: Path, count: int) -> Path:
    """A compressed manifest of ``count`` cuts."""
    return write_cuts(root / "cuts.jsonl.gz", [cut_of(root, number) for number in range(count)])
