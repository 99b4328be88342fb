"""Target: an epoch of a Lhotse manifest is planned 1.25 × as fast as Lhotse reads and samples it.

100,000 cuts in a ``cuts.jsonl.gz``, as Lhotse writes it, whose recordings are never opened. Measured from the call that
names the manifest to the last batch of an epoch, shuffled and batched by length, in one process; in its CPU time, which
other jobs of the machine disturb less. ``python -m benchmarks.manifests_lhotse``.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread

MODULE = "benchmarks.manifests_lhotse"
CUTS = sized(100_000, 300)
SECONDS = 120.0  # of audio in a batch
RATE = 16_000
TIMES = 1.25
WAYS = {
    "uio_pipes, shuffle, sort, dynamic_batch": "ours_dynamic",
    "uio_pipes, shuffle, bucket_batch": "ours_buckets",
    "Lhotse, DynamicCutSampler": "dynamic",
    "Lhotse, DynamicBucketingSampler": "buckets",
    "Lhotse, lazy reading alone": "reading",
}
AGAINST = {"ours_dynamic": "dynamic", "ours_buckets": "buckets"}


def measure(data: str, what: str) -> dict[str, Any]:
    """Measure one epoch: cuts in a second of CPU time, and how many were seen."""
    path = manifest(Path(data))
    run = {"ours_dynamic": _dynamic, "ours_buckets": _buckets, "reading": _reading}.get(what, _sampler(what))
    _imports(what)
    began = time.process_time()
    seen = sum(run(path))
    return {"speed": seen / (time.process_time() - began), "seen": seen}


def _imports(what: str) -> None:
    """Import first what the measured call would import."""
    for module in ("uio_pipes.api", "uio_pipes.run.planning") if what.startswith("ours") else ("lhotse.dataset",):
        import_module(module)


def manifest(folder: Path) -> str:
    """Return the manifest, which is made once; its lines are as Lhotse writes them."""
    path = folder / f"cuts_{CUTS}.jsonl.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw, part = random.Random(1), path.with_suffix(".part")
        with gzip.open(part, "wt", compresslevel=5) as file:
            file.writelines(json.dumps(_cut(number, draw)) + "\n" for number in range(CUTS))
        part.replace(path)
    return str(path)


def _cut(number: int, draw: random.Random) -> dict[str, Any]:
    samples = draw.randrange(RATE, 16 * RATE)
    name, duration = f"rec-{number:07d}", samples / RATE
    said = {"id": f"sup-{number:07d}", "recording_id": name, "start": 0.0, "duration": duration, "channel": 0}
    text = " ".join(draw.choices(("seven", "people", "went", "down", "to", "the", "water"), k=round(3 * duration)))
    source = {"type": "file", "channels": [0], "source": f"/data/audio/{number % 97:02d}/{name}.flac"}
    recording = {"id": name, "sources": [source], "sampling_rate": RATE, "num_samples": samples}
    return {
        "id": f"cut-{number:07d}",
        "start": 0.0,
        "duration": duration,
        "channel": 0,
        "supervisions": [said | {"text": text, "language": "English", "speaker": f"S{draw.randrange(900)}"}],
        "recording": recording | {"duration": duration, "channel_ids": [0]},
        "type": "MonoCut",
    }


def _planned(graph: Any) -> Iterator[int]:
    from uio_pipes.run.planning import plan_lanes

    for lane in plan_lanes(graph, 1, 777, 0):
        yield sum(lane.counts)


def _dynamic(path: str) -> Iterator[int]:
    import uio_pipes as uio

    graph = uio.from_lhotse_cuts(path, shuffle=True).decode_audio()
    return _planned(graph.sort(500).dynamic_batch(max_frames=round(100 * SECONDS)))


def _buckets(path: str) -> Iterator[int]:
    import uio_pipes as uio

    graph = uio.from_lhotse_cuts(path, shuffle=True).decode_audio()
    return _planned(graph.bucket_batch(max_frames=round(100 * SECONDS)))


def _sampler(name: str) -> Any:
    def run(path: str) -> Iterator[int]:
        from lhotse import CutSet
        from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler

        cuts = CutSet.from_jsonl_lazy(path)
        if name == "dynamic":
            return map(len, DynamicCutSampler(cuts, max_duration=SECONDS, shuffle=True))
        return map(len, DynamicBucketingSampler(cuts, max_duration=SECONDS, num_buckets=30, shuffle=True))

    return run


def _reading(path: str) -> Iterator[int]:
    from lhotse import CutSet

    return (1 for _ in CutSet.from_jsonl_lazy(path))


def main() -> None:
    """Measure and write results/manifests_lhotse.md."""
    made = parser(__doc__ or "", 3)
    made.add_argument("--lhotse", metavar="FOLDER", help="measure the Lhotse there, too: pip install --target FOLDER …")
    arguments = begin(measure, made)
    manifest(Path(arguments.data))
    report = Report("manifests_lhotse", "Planning an epoch of a Lhotse manifest")
    jobs: dict[str, dict[str, object]] = {name: {"what": way} for name, way in WAYS.items()}
    if arguments.lhotse:
        others = {name: way for name, way in WAYS.items() if not way.startswith("ours")}
        jobs |= {
            f"{name}, of {arguments.lhotse}": {"what": w, "packages": arguments.lhotse} for name, w in others.items()
        }
    results = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    by_way = {WAYS[name]: runs for name, runs in results.items() if name in WAYS}
    rows = [[name, spread(runs, "speed", ",.0f"), f"{runs[0]['seen']:,}"] for name, runs in results.items()]
    report.table(f"An epoch of {CUTS:,} cuts", ["", "cuts per CPU second", "cuts seen"], rows, plot=[1])
    for mine, theirs in AGAINST.items():
        if mine in by_way and theirs in by_way:
            speeds = median(by_way[mine], "speed"), median(by_way[theirs], "speed")
            report.target(f"{mine} ≥ {TIMES:g} × {theirs}", speeds[0] >= TIMES * speeds[1], ratio(*speeds))
    report.write()


if __name__ == "__main__":
    main()
