"""Claim: one process packs Kaldi's features into shards no slower than kaldiio and webdataset's ShardWriter do.

That is how CAT's ``pack_data`` works. Both read the same arks and write shards of 500 utterances, ``KEY.npy`` and
``KEY.txt``; imports are not measured. ``uio pack`` also writes a manifest with CRC32s and a journal, and looks for NaN.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread

MODULE = "benchmarks.pack_features"
UTTERANCES = sized(1000, 20)
FRAMES, BINS, SIZE = 500, 80, 500
FORMS = {"float": None, "compressed": 2}  # compression methods of kaldiio
WAYS = ("uio pack", "kaldiio + webdataset")


def measure(data: str, way: str, form: str) -> dict[str, Any]:
    """Pack the features twice, as the first time imports modules; return seconds and CPU seconds of the second."""
    pack = _uio if way == "uio pack" else _webdataset
    with tempfile.TemporaryDirectory(dir=data) as out:
        pack(Path(data) / form, Path(out) / "first")()
        prepared = pack(Path(data) / form, Path(out) / "second")
        began, cpu = time.perf_counter(), time.process_time()
        prepared()
        return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def _uio(source: Path, out: Path) -> Callable[[], object]:
    from uio_pipes.tools.data.pack import PackSettings, pack

    return lambda: pack(source, out, out / "shards.list", PackSettings(SIZE))


def _webdataset(source: Path, out: Path) -> Callable[[], object]:
    import kaldiio
    import webdataset

    def pack() -> None:
        texts = dict(line.split(maxsplit=1) for line in (source / "text").read_text().splitlines())
        out.mkdir()
        with webdataset.ShardWriter(str(out / "data-%05d.tar"), maxcount=SIZE, verbose=0) as sink:
            for key, features in kaldiio.load_scp(str(source / "feats.scp")).items():
                sink.write({"__key__": key, "npy": features, "txt": texts[key]})

    return pack


def _prepare(folder: Path) -> None:
    import kaldiio

    rng = np.random.default_rng(0)
    features = {f"U{i:06d}": rng.standard_normal((FRAMES, BINS)).astype(np.float32) for i in range(UTTERANCES)}
    for form, method in FORMS.items():
        (folder / form).mkdir()
        ark, scp = str(folder / form / "feats.ark"), str(folder / form / "feats.scp")
        kaldiio.save_ark(ark, features, scp=scp, compression_method=method)
        (folder / form / "text").write_text("".join(f"{key} 今天很热\n" for key in features))


def main() -> None:
    """Measure all and write results/pack_features.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    report = Report("pack_features", "Packing Kaldi's features")
    report.text(f"{UTTERANCES:,} utterances of {FRAMES} × {BINS}, {SIZE} in a shard; one process.")
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        for form in FORMS:
            jobs = {way: {"way": way, "form": form} for way in WAYS}
            found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=folder), f"{form}: ")
            rows = [[way, spread(runs, "seconds"), spread(runs, "cpu")] for way, runs in found.items()]
            report.table(f"{form} matrices", ["way", "seconds", "CPU seconds"], rows)
            mine, theirs = (median(found.get(way, []), "cpu") for way in WAYS)
            claim = f"{form} matrices: no more CPU time than kaldiio + webdataset"
            report.target(claim, mine <= theirs, f"{ratio(theirs, mine)} as fast")
    report.write()


if __name__ == "__main__":
    main()
