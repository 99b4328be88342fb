"""Claims: what ``.cache`` has kept is read at 90 % of the speed of packed features; to keep it costs 5 % of 20 ms.

Features of 80 bins of recordings of 4 s, padded to batches of 16, by CPU time: computed from the shards, computed and
kept, found in the cache, and read from shards of the same features; and the same with a ``map`` of 20 ms of CPU before,
which takes next to nothing once its results are kept: ``python -m benchmarks.cache``.
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
UTTERANCES, SHARDS = sized(400, 20), 4
RATE, SECONDS, WORK = 16_000, 4, 0.02
COMPUTED, MISSED, FOUND, PACKED = "computed", "computed and kept", "found", "packed features"
SLOW, SLOW_MISSED, SLOW_FOUND = "map, computed", "map, computed and kept", "map, found"
WAYS = (COMPUTED, MISSED, FOUND, PACKED, SLOW, SLOW_MISSED, SLOW_FOUND)


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

    folder, cold = Path(data), way in (MISSED, SLOW_MISSED)
    cache = Path(tempfile.mkdtemp(dir=data)) if cold else folder / "cache"
    if way == PACKED:
        graph = uio.from_shard_list(str(folder / "features.list"), text=None)
    else:
        graph = uio.from_shard_list(str(folder / "audio.list"), text=None).decode_audio()
        graph = (graph.map(slow, length="same") if way in (SLOW, SLOW_MISSED, SLOW_FOUND) else graph).fbank(80)
        graph = graph if way in (COMPUTED, SLOW) else graph.cache(cache, fields=["feat"])
    if way in (FOUND, SLOW_FOUND):
        _epoch(graph)
    took = min(_epoch(graph) for _ in range(1 if cold or way == SLOW else 3))
    if cold:
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
        found = report.ran(rounds(MODULE, {way: {"way": way} for way in WAYS}, arguments.repeats, data=folder))
    report.table(
        "Each utterance", ["", "µs of CPU"], [[way, spread(runs, "us", ",.0f")] for way, runs in found.items()]
    )
    computed, missed, hit, packed, slow_, kept, mapped = (median(found.get(way, []), "us") for way in WAYS)
    report.target("found at 90 % of the speed of packed features", hit <= packed / 0.9, ratio(packed, hit))
    report.target("a miss costs at most 5 % of 20 ms", kept <= 1.05 * slow_, f"{100 * (kept / slow_ - 1):.1f} %")
    report.text(f"To keep features of plain wav takes {missed / computed:.1f} × as long as to compute them.")
    left = mapped - hit
    report.target("a map of 20 ms takes at most 0.1 % of that once it is kept", left <= 1_000 * WORK, f"{left:.0f} µs")
    report.write()


if __name__ == "__main__":
    main()
