"""A small Shar, written without Lhotse (tests/interop has those that Lhotse wrote)."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import corpus


def shar(root: Path, sizes: Sequence[int], rate: int = 8000) -> Path:
    """Shards of ``sizes`` cuts."""
    root.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, size in enumerate(sizes):
        cuts, members = [], []
        for i in range(first, first + size):
            audio = corpus.wav_bytes(i, rate, (0.3, 1.5))
            samples = (len(audio) - 44) // 2
            recording = {"id": f"r{i}", "sampling_rate": rate, "num_samples": samples, "duration": samples / rate}
            cut = {"id": f"C{i:03d}", "start": 0, "duration": samples / rate, "channel": 0, "type": "MonoCut"}
            cuts.append(cut | {"supervisions": [{"id": f"s{i}", "text": f"文{i}", "speaker": f"S{i % 3}"}]})
            members += [(f"C{i:03d}.wav", audio), (f"C{i:03d}.json", json.dumps(recording).encode())]
        lines = "".join(json.dumps(cut) + "\n" for cut in cuts)
        (root / f"cuts.{number:06d}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        (root / f"recording.{number:06d}.tar").write_bytes(corpus._tar(members))
        first += size
    return root
