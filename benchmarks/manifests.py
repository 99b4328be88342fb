"""Target: an epoch of a manifest is planned 1.25 × as fast as Lhotse reads and samples it.

To plan is to read the manifest and to say of every batch which utterances are in it; no audio is opened. 100,000 rows
in NeMo's form, with 5 buckets and a budget of 600 s a batch. Lhotse's half makes a cut of each row, lazily, as NeMo's
own adapter does for rows with a sample rate: ``python -m benchmarks.manifests``.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread

MODULE = "benchmarks.manifests"
ROWS = sized(100_000, 500)
SECONDS, BUCKETS = 600, 5
LEAST = 1.25
WAYS = {
    "uio_pipes, from_nemo, shuffled": "nemo",
    "Lhotse, cuts of NeMo's rows, shuffled": "lhotse_nemo",
    "uio_pipes, from_nemo, in order": "nemo_in_order",
    "Lhotse, cuts of NeMo's rows, in order": "lhotse_nemo_in_order",
}
PAIRS = [(ours, theirs) for ours, theirs in zip([*WAYS][::2], [*WAYS][1::2], strict=True)]


def measure(data: str, way: str) -> dict[str, Any]:
    """Plan one epoch; the process's first, so that nothing of the manifest is in its memory."""
    manifest = rows(Path(data))
    plan = PLANS[way]
    import_module("lhotse.dataset" if way.startswith("lhotse") else "uio_pipes.api")
    began, cpu = time.perf_counter(), time.process_time()
    utterances = sum(plan(manifest))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"us": took / ROWS * 1e6, "cpu_us": cpu / ROWS * 1e6, "utterances": utterances}


def rows(data: Path) -> Path:
    """Return a manifest in NeMo's form."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / f"nemo-{ROWS}.json"
    if not path.exists():
        draw = random.Random(1)
        with open(path, "w") as file:
            for i in range(ROWS):
                text = " ".join(f"word{draw.randrange(999)}" for _ in range(draw.randrange(4, 30)))
                audio = f"/data/speech/train/spk{i % 997:04d}/utt{i:08d}.wav"
                row = {"audio_filepath": audio, "duration": round(draw.uniform(1, 20), 3), "text": text, "lang": "en"}
                file.write(json.dumps({**row, "sampling_rate": 16_000}) + "\n")
    return path


def _uio(manifest: Path, shuffle: bool) -> Iterator[int]:
    import uio_pipes as uio
    from uio_pipes.run.planning import plan_lanes

    source = uio.from_nemo(manifest, shuffle=shuffle).decode_audio()
    for plan in plan_lanes(source.bucket_batch(max_frames=SECONDS * 100, num_buckets=BUCKETS).pad(), 1, 0, 0):
        yield from plan.counts


def _lhotse(manifest: Path, shuffle: bool) -> Iterator[int]:
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler

    sampler = DynamicBucketingSampler(
        CutSet(_Cuts(manifest)), max_duration=SECONDS, num_buckets=BUCKETS, shuffle=shuffle, rank=0, world_size=1
    )
    yield from map(len, sampler)


class _Cuts:
    """A cut for each row, made when it is read."""

    def __init__(self, manifest: Path) -> None:
        self.manifest = manifest

    def __iter__(self) -> Iterator[Any]:
        from lhotse import Recording, SupervisionSegment
        from lhotse.audio import AudioSource
        from lhotse.lazy import LazyJsonlIterator
        from lhotse.utils import compute_num_samples

        for row in LazyJsonlIterator(self.manifest):
            path, duration, rate = row.pop("audio_filepath"), row.pop("duration"), row.pop("sampling_rate")
            samples, source = compute_num_samples(duration, rate), AudioSource("file", [0], path)
            cut = Recording(path, [source], rate, samples, duration, channel_ids=[0]).to_cut()
            said = SupervisionSegment(cut.id, cut.recording_id, 0, duration, text=row["text"], language=row["lang"])
            cut.supervisions, cut.custom = [said], row
            yield cut


PLANS: dict[str, Callable[[Path], Iterator[int]]] = {
    "nemo": lambda manifest: _uio(manifest, True),
    "nemo_in_order": lambda manifest: _uio(manifest, False),
    "lhotse_nemo": lambda manifest: _lhotse(manifest, True),
    "lhotse_nemo_in_order": lambda manifest: _lhotse(manifest, False),
}


def main() -> None:
    """Measure all and write results/manifests.md."""
    arguments = begin(measure, parser(__doc__, 5))
    rows(arguments.data)
    jobs = {name: {"way": way} for name, way in WAYS.items()}
    report = Report("manifests", "Planning an epoch of a manifest")
    found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    cpu = {name: median(found.get(name, []), "cpu_us") for name in WAYS}
    report.text(f"{ROWS:,} rows, {BUCKETS} buckets, {SECONDS} s a batch; each in a process that has read nothing yet.")
    table = [[name, spread(one, "us", ".0f"), spread(one, "cpu_us", ".0f")] for name, one in found.items()]
    report.table("Reading and planning a row", ["way", "µs", "µs of CPU"], table, plot=[1, 2])
    for ours, theirs in PAIRS:
        times = ratio(cpu[theirs], cpu[ours])
        report.target(f"{LEAST:g} × as fast as {theirs}", cpu[theirs] / cpu[ours] >= LEAST, times)
    report.write()


if __name__ == "__main__":
    main()
