"""Claim: 1,000 batches made again from checkpoints are bit for bit those of the run, each in at most 5 s, in an epoch
of a million utterances with an index.

The utterances are a TouchDataset of noise, some frames long each, as reading and planning do not depend on their
length. The run is a whole epoch that keeps a checkpoint every 1,000 steps and at its end, and a digest of each batch.
Random steps are made again from the nearest checkpoints around them, as ``uio replay FOLDER`` does, and from only the
one before: ``python -m benchmarks.replay``.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, child, parser, sized

MODULE = "benchmarks.replay"
MILLION, FEW = sized((1_000_000, 60_000), (1_000, 500))
EVERY = sized(1_000, 20)  # steps between two checkpoints
JOBS = {
    "a million, 8 lanes": {"utterances": MILLION, "lanes": 8, "steps": sized(100, 3)},
    "a million, 64 lanes": {"utterances": MILLION, "lanes": 64, "steps": sized(100, 3)},
    "60,000, 8 lanes": {"utterances": FEW, "lanes": 8, "steps": sized(1_000, 5)},
}
GRAPH = """import uio_pipes as uio

source = uio.from_indexed({folder!r}, shuffle=True).decode_audio().speed_perturb().fbank(num_mel_bins=20, dither=0.1)
pipeline = source.spec_aug().shuffle(1500).sort(500).dynamic_batch(180).pad()
"""


def measure(data: str, utterances: int, lanes: int, steps: int) -> dict[str, Any]:
    """Run an epoch, and make steps of it again: seconds of each, and how many were not the same."""
    import uio_pipes as uio
    from uio_pipes.tools.reports.replay import Replay

    script = _script(Path(data), utterances)
    names: dict[str, Any] = {}
    exec(script.read_text(), names)
    loader = uio.Loader(names["pipeline"], seed=777, lanes=lanes)
    digests, states = list[str](), list[dict[str, str]]()
    for step, batch in enumerate(loader):
        if step % EVERY == 0:
            states.append(loader.state_dict())
        digests.append(_digest(batch))
    states.append(loader.state_dict())
    around, before, wrong = list[float](), list[float](), 0
    for number, step in enumerate(random.Random(lanes).choices(range(len(digests)), k=steps)):
        began = time.perf_counter()
        batch = Replay(names["pipeline"], states, step, 0, 1, None).batch()
        around.append(time.perf_counter() - began)
        wrong += _digest(batch) != digests[step]
        if number % 10 == 0:
            began = time.perf_counter()
            only = max(0, (step - 1) // EVERY)  # the state after step 0 has number 1
            batch = Replay(names["pipeline"], [states[only]], step, 0, 1, None).batch()
            before.append(time.perf_counter() - began)
            wrong += _digest(batch) != digests[step]
    return {
        "around": around, "before": before, "wrong": wrong, "steps": len(digests),
        "command": _command(Path(data), script, states, digests),
    }  # fmt: skip


def _digest(batch: Any) -> str:
    made = blake2b(repr((batch["keys"], batch["feats"].shape)).encode(), digest_size=8)
    made.update(batch["feats"].numpy())
    return made.hexdigest()


def _command(data: Path, script: Path, states: list[dict[str, str]], digests: list[str]) -> float:
    """Return the seconds that ``uio replay`` takes for the step in the middle, with all states in a folder."""
    folder = data / "replay_states"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, state in enumerate(states):
        (folder / f"step_{number * EVERY}.json").write_text(json.dumps(state))
    arguments = ["replay", str(folder), f"{script}:pipeline", "--step", str(len(digests) // 2), "--json"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "uio_pipes.tools.cli.main", *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def _script(data: Path, utterances: int) -> Path:
    """Return the file with the pipeline; its data is made once."""
    folder = data / f"replay_{utterances}"
    script = folder.with_suffix(".py")
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(1)
        lengths = np.clip(np.exp(draw.normal(6.2, 0.5, utterances)), 240, 2000).astype(np.int64)
        noise = draw.integers(-9000, 9000, 1 << 20).astype("<i2").tobytes()
        left = 2 * int(lengths.sum())
        with (folder / "audio.bin").open("wb") as file:
            while left:
                left -= file.write(noise[:left])
        lines = [b'{"key":"u%07d","sample_rate":8000,"txt":"a"}' % number for number in range(utterances)]
        (folder / "metainfo.bin").write_bytes(b"".join(lines))
        _index(folder / "audio.idx", 3, lengths, 2)
        _index(folder / "metainfo.idx", 1, np.array([len(line) for line in lines]), 1)
        part = script.with_suffix(".part")
        part.write_text(GRAPH.format(folder=str(folder)))
        os.replace(part, script)
    return script


def _index(path: Path, code: int, lengths: Any, width: int) -> None:
    count = len(lengths)
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, count, count + 1)
    offsets = np.concatenate([[0], np.cumsum(lengths[:-1] * width)])
    columns = (lengths.astype("<i4"), offsets.astype("<i8"), np.arange(count + 1, dtype="<i8"))
    path.write_bytes(head + b"".join(column.tobytes() for column in columns))


def main() -> None:
    """Measure all and write results/replay.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    report = Report("replay", "Batches made again from checkpoints")
    rows, slowest, wrong = [], 0.0, 0
    for name, job in list(JOBS.items())[: sized(len(JOBS), 1)]:
        found = child(MODULE, data=arguments.data, **job)
        if "error" in found:
            report.text(f"- {name} did not run: {found['error']}")
            continue
        shown = [f"{np.median(found[way]):.2f}, at most {max(found[way]):.2f}" for way in ("around", "before")]
        rows.append([name, f"{found['steps']:,}", str(len(found["around"])), *shown, f"{found['command']:.2f}"])
        slowest, wrong = max(slowest, *found["around"]), wrong + found["wrong"]
    columns = ["epoch", "steps", "made again", "s, from states around it", "s, from the one before", "s, the command"]
    report.table(f"Median and most seconds of a batch; checkpoints every {EVERY:,} steps, one rank", columns, rows)
    report.target("every batch is bit for bit that of the run", not wrong, f"{wrong} differ")
    report.target("each in at most 5 s", slowest <= 5, f"{slowest:.2f} s")
    report.write()


if __name__ == "__main__":
    main()
