"""Claim: Parquet becomes padded batches twice as fast as by streaming with Hugging Face's ``datasets``.

The corpus as Hugging Face stores audio: ``{bytes, path}``, 100 rows a row group, 6 files. ``datasets`` streams it with
undecoded audio through torch's ``DataLoader``; soundfile decodes, torch pads, torchaudio makes the 80-bin fbank. Both
shuffle files or row groups and 1,000 rows, and make batches of 32: ``python -m benchmarks.parquet``.
"""

from __future__ import annotations

import gc
import io
import resource
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, settle, sized, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.parquet"
TIMES = 2.0
BATCH, WINDOW, GROUP, MELS = 32, 1000, 100, 80
TASKS: dict[str, dict[str, Any]] = {
    "waveforms of wav, one process": {"kind": "tar", "workers": 0, "features": False},
    "waveforms of wav, two workers": {"kind": "tar", "workers": 2, "features": False},
    "waveforms of FLAC, one process": {"kind": "flac", "workers": 0, "features": False},
    "fbank of wav, one process": {"kind": "tar", "workers": 0, "features": True},
}
READERS = ("uio_pipes", "datasets")
_WHOSE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def measure(data: str, reader: str, kind: str, workers: int, features: bool) -> dict[str, Any]:
    """Measure one epoch of one reader, with warm files; the clock starts when the libraries are there."""
    corpus = prepare(Path(data))
    files = written(Path(data), kind)
    for file in files:
        Path(file).read_bytes()
    for library in ("pyarrow.parquet", "soundfile", *(["torchaudio.compliance.kaldi"] if reader == "datasets" else [])):
        import_module(library)
    batches = {"uio_pipes": _uio, "datasets": _datasets}[reader](files, workers, features)
    settle()
    began, cpu = time.perf_counter(), _cpu_seconds()
    count = values = 0
    for sizes, shape in batches:
        count, values = count + len(sizes), values + sum(sizes) * (shape[2] if len(shape) > 2 else 1)
    took = time.perf_counter() - began
    del batches
    gc.collect()  # ends the workers, so that their time is known
    cpu = _cpu_seconds() - cpu
    memory = max(resource.getrusage(who).ru_maxrss for who in _WHOSE) / 1024
    return {
        "speed": corpus.seconds / took,
        "cpu_speed": corpus.seconds / cpu,
        "utterances": count,
        "values": values,
        "memory": memory,
    }


def _cpu_seconds() -> float:
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _WHOSE))


def written(folder: Path, kind: str) -> list[str]:
    """Return the corpus as Parquet files; write them if they are not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import uio_pipes as uio

    names = []
    for shard in prepare(folder).shards(kind):
        name = folder / "parquet" / kind / f"{Path(shard).stem}.parquet"
        names.append(str(name))
        if name.exists():
            continue
        name.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": s["key"], "audio": {"bytes": s["wav"], "path": f"{s['key']}.{kind}"}, "text": s["txt"]}
            for s in uio.Loader(uio.from_shard_list(shard))
        ]
        pq.write_table(pa.Table.from_pylist(rows), f"{name}.partial", row_group_size=GROUP)
        Path(f"{name}.partial").rename(name)
    return names


def _uio(files: list[str], workers: int, features: bool) -> Iterator[tuple[list[int], Any]]:
    import uio_pipes as uio

    graph = uio.from_parquet(files, shuffle=True).decode_audio()
    graph = graph.fbank(num_mel_bins=MELS) if features else graph
    loader = uio.Loader(graph.shuffle(WINDOW).batch(BATCH).pad(), num_workers=workers, seed=1)
    data, lengths = ("feats", "feats_lengths") if features else ("pcm", "pcm_length")
    return ((batch[lengths].tolist(), batch[data].shape) for batch in loader)


class Padded:
    """Makes batches of the rows that ``datasets`` gives, as its users write it."""

    def __init__(self, features: bool) -> None:
        self.features = features

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        import soundfile
        import torch
        from torchaudio.compliance import kaldi

        made = []
        for row in rows:
            samples, rate = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float32")
            wave = torch.from_numpy(samples)
            if self.features:
                wave = kaldi.fbank(wave[None] * 32768, num_mel_bins=MELS, energy_floor=0.0, sample_frequency=rate)
            made.append(wave)
        lengths = torch.tensor([len(one) for one in made])
        data = torch.nn.utils.rnn.pad_sequence(made, batch_first=True)
        return {"keys": [row["id"] for row in rows], "data": data, "lengths": lengths}


def _datasets(files: list[str], workers: int, features: bool) -> Iterator[tuple[list[int], Any]]:
    from datasets import Audio, config, load_dataset
    from torch.utils.data import DataLoader

    config.SLEEP_TIME_ON_THREADS_SHUTDOWN = sized(config.SLEEP_TIME_ON_THREADS_SHUTDOWN, 0.2)  # 5 s at each end
    data = load_dataset("parquet", data_files=files, split="train", streaming=True)
    data = data.cast_column("audio", Audio(decode=False)).shuffle(seed=1, buffer_size=WINDOW)
    loader: Any = DataLoader(data, batch_size=BATCH, num_workers=workers, collate_fn=Padded(features))
    return ((batch["lengths"].tolist(), batch["data"].shape) for batch in loader)


def main() -> None:
    """Measure all and write results/parquet.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    corpus = prepare(arguments.data)
    for kind in ("tar", "flac"):
        written(arguments.data, kind)
    report = Report("parquet", "From Parquet to padded batches")
    report.text(f"{corpus.utterances:,} utterances in 6 files, {corpus.seconds / 3600:.2f} h; files in the page cache.")
    for title, task in TASKS.items():
        results = report.ran(
            rounds(MODULE, {r: {"reader": r} for r in READERS}, arguments.repeats, data=arguments.data, **task),
            f"{title}: ",
        )
        mine = {field: median(results.get("uio_pipes", []), field) for field in ("speed", "cpu_speed")}
        rows = [
            [
                name,
                *(v for f in mine for v in (spread(runs, f, ",.0f"), ratio(mine[f], median(runs, f)))),
                f"{median(runs, 'memory'):,.0f}",
            ]
            for name, runs in results.items()
        ]
        report.table(
            title,
            ["reader", "s of audio per s", "uio_pipes is", "per s of CPU", "uio_pipes is", "MB at most"],
            rows,
            [1],
        )
        times = mine["cpu_speed"] / median(results.get("datasets", []), "cpu_speed")
        report.target(f"{title}: {TIMES} × datasets by CPU time", times >= TIMES, f"{times:.2f}×")
        same = {(run["utterances"], run["values"]) for runs in results.values() for run in runs}
        report.text(f"All gave the same number of utterances and values: {'yes' if len(same) == 1 else 'NO'}.")
    report.write()


if __name__ == "__main__":
    main()
