"""Claims: what ``.cache`` has kept is read at 90 % of the speed of packed features; a miss costs at most 5 % more.

Features of 80 bins of recordings of 4 s, padded to batches of 16, by CPU time: computed from the shards, computed and
kept, found in the cache, and read from shards of the same features. A ``map`` of 20 ms of CPU takes nothing once its
results are kept: ``python -m benchmarks.cache``.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import tar_of, wav_of

MODULE = "benchmarks.cache"
UTTERANCES, SHARDS = sized(1_000, 20), 4
RATE, SECONDS, WORK = 16_000, 4, 0.02
COMPUTED, MISSED, FOUND, PACKED, MAPPED = "computed", "computed and kept", "found", "packed features", "map, found"


def slow(sample: Any) -> Any:
    """Work for 20 ms, and halve the waveform."""
    began = time.process_time()
    while time.process_time() - began < WORK:
        pass
    sample["half"] = sample["wav"] * 0.5
    return sample


def measure(data: str, way: str) -> dict[str, Any]:
    """Run one epoch; return the CPU time of an utterance in µs."""
    import uio_pipes as uio

    folder = Path(data)
    audio = uio.from_shard_list(str(folder / "audio.list"), text=None).decode_audio()
    features, cache = audio.fbank(num_mel_bins=80), Path(tempfile.mkdtemp(dir=data)) if way == MISSED else folder
    graphs = {
        COMPUTED: features,
        MISSED: features.cache(cache / "cache", fields=["feat"]),
        FOUND: features.cache(cache / "cache", fields=["feat"]),
        PACKED: uio.from_shard_list(str(folder / "features.list"), text=None),
        MAPPED: audio.map(slow).cache(cache / "map").fbank(num_mel_bins=80),
    }
    if way in (FOUND, MAPPED) and not (folder / f"{way}.done").exists():
        _epoch(graphs[way])
        (folder / f"{way}.done").touch()
    took = min(_epoch(graphs[way]) for _ in range(1 if way == MISSED else 3))
    if way == MISSED:
        shutil.rmtree(cache)
    return {"us": took / UTTERANCES * 1e6}


def _epoch(graph: Any) -> float:
    import uio_pipes as uio

    loader, began = uio.Loader(graph.batch(16).pad()), time.process_time()
    assert sum(len(batch["keys"]) for batch in loader) == UTTERANCES
    return time.process_time() - began


def _prepare(folder: Path) -> None:
    import uio_pipes as uio

    rng = np.random.default_rng(0)
    names: dict[str, list[Path]] = {"audio": [], "features": []}
    for shard in range(SHARDS):
        keys = [f"U{number:06d}" for number in range(shard, UTTERANCES, SHARDS)]
        noise = (rng.standard_normal(RATE * SECONDS) * 3_000).astype(np.int16)
        audio = folder / f"audio-{shard}.tar"
        audio.write_bytes(tar_of((f"{key}.wav", wav_of(np.roll(noise, i))) for i, key in enumerate(keys)))
        made = uio.Loader(uio.from_shard_list([str(audio)], text=None).decode_audio().fbank(num_mel_bins=80))
        packed = folder / f"features-{shard}.tar"
        packed.write_bytes(tar_of((f"{one['key']}.npy", _npy(one["feat"].numpy())) for one in made))
        names["audio"] += [audio]
        names["features"] += [packed]
    for name, paths in names.items():
        (folder / f"{name}.list").write_text("".join(f"{path}\n" for path in paths))


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def main() -> None:
    """Measure all and write results/cache.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    report = Report("cache", "What is computed once")
    report.text(f"{UTTERANCES:,} utterances of {SECONDS} s; one process; CPU time.")
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        jobs = {way: {"way": way} for way in (COMPUTED, MISSED, FOUND, PACKED, MAPPED)}
        found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=folder))
    report.table("Each utterance", ["", "µs of CPU"], [[way, spread(runs, "us", ".0f")] for way, runs in found.items()])
    computed, missed, hit, packed, mapped = (median(found.get(way, []), "us") for way in jobs)
    report.target("found at 90 % of the speed of packed features", hit <= packed / 0.9, ratio(packed, hit))
    report.target("a miss costs at most 5 % more", missed <= 1.05 * computed, f"{100 * (missed / computed - 1):.1f} %")
    least = computed + WORK * 1e6 / 20
    report.target("a map of 20 ms costs nothing", mapped <= least, f"{mapped:.0f} µs, without it {computed:.0f}")
    report.write()


if __name__ == "__main__":
    main()
