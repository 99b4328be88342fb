"""Claim: a modality of a TouchDataset that nothing touches costs nothing.

The same graph reads ``audio+metainfo`` and ``audio+video+metainfo`` in random order up to padded waveforms; every
utterance has 256 KiB of video. Bytes are counted where they are read. ``python -m benchmarks.modalities``.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread

MODULE = "benchmarks.modalities"
COUNT, SAMPLES, VIDEO = sized(2000, 40), 32_000, 256 << 10
WORDS = {"audio+metainfo": "audio+metainfo", "audio+video+metainfo": "audio+video+metainfo"}


def measure(data: str, word: str) -> dict[str, Any]:
    """Measure the second epoch, when files and memory are warm, and what both have read."""
    import uio_pipes as uio
    from uio_pipes.io.local import LocalFile

    folder, taken, read = _folder(Path(data)), Counter[str](), LocalFile.read_upto

    def counting(self: LocalFile, offset: int, size: int) -> bytes:
        found = read(self, offset, size)
        taken[Path(self.path).name] += len(found)
        return found

    LocalFile.read_upto = counting  # type: ignore[method-assign]
    try:
        source = uio.from_indexed(f"{folder} {word}", shuffle=True)
        loader = uio.Loader(source.decode_audio().shuffle(500).sort(100).batch(16).pad())
        for _ in loader:
            pass
        began, cpu = time.perf_counter(), time.process_time()
        count = sum(len(batch["keys"]) for batch in loader)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        LocalFile.read_upto = read  # type: ignore[method-assign]
    sizes = {"read": sum(taken.values()) - taken["video.idx"], "video": taken["video.bin"], "index": taken["video.idx"]}
    return {"us": took / count * 1e6, "cpu_us": cpu / count * 1e6, **sizes}


def _folder(data: Path) -> Path:
    """Return a folder with noise as audio, and zeros as video."""
    from uio_pipes.tools.data.writing.parts import PairWriter

    folder = data / f"modalities-{COUNT}"
    if (folder / "metainfo.idx").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(-3000, 3000, 2 * SAMPLES, np.int16)
    record = bytes(VIDEO)
    with PairWriter(folder / "video", np.uint8) as video:
        for _ in range(COUNT):
            video.add(record)
    with PairWriter(folder / "audio", np.int16) as audio, PairWriter(folder / "metainfo", np.uint8) as texts:
        for i in range(COUNT):
            audio.add(noise[i : i + SAMPLES - 5 * (i % 1000)])
            texts.add(json.dumps({"key": f"u{i}", "txt": f"text {i}", "sample_rate": 16_000}).encode())
    return folder


def main() -> None:
    """Measure both, report."""
    arguments = begin(measure, parser(__doc__, 9))
    report = Report("modalities", "TouchDataset: a modality that is not touched")
    _folder(arguments.data)
    jobs = {name: {"word": word} for name, word in WORDS.items()}
    results = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    rows = [
        [name, spread(found, "us", ".0f"), spread(found, "cpu_us", ".0f")]
        + [f"{median(found, size):,.0f}" for size in ("read", "video", "index")]
        for name, found in results.items()
    ]
    columns = ["list", "µs", "µs of CPU", "bytes, two epochs", "of video.bin", "of video.idx"]
    report.table("Padded waveform of an utterance", columns, rows, plot=[1, 2])
    plain, video = (results[name] for name in WORDS)
    cost = median(video, "cpu_us") / median(plain, "cpu_us")
    report.target("at most 5 % more CPU time", cost <= 1.05, ratio(median(video, "cpu_us"), median(plain, "cpu_us")))
    report.target("nothing is read of video.bin", median(video, "video") == 0, f"{median(video, 'video'):.0f} bytes")
    same = median(video, "read") == median(plain, "read")
    report.target("no other byte more, but video.idx once", same, ratio(median(video, "read"), median(plain, "read")))
    report.write()


if __name__ == "__main__":
    main()
