"""Claim: a full-size Conformer on a GPU trains at 98 % of the speed that it has on batches kept in its memory.

The hybrid Conformer of ``recipes`` (12 + 6 layers, 256 wide, bfloat16) learns from the loader's first batches, 12,000
padded frames each: once with features made by the workers, once with waveforms and ``uio.FbankModule`` before the
model; and in turn from the same batches when they are on the device already, or in pinned memory, where no loader can
do better. Without a GPU a small model only shows that the
script runs: ``python -m benchmarks.gpu --workers 8``.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import prepare
from benchmarks.peers import DITHER, MELS
from recipes.common.config import ModelConfig
from recipes.common.model import AsrModel
from uio_pipes.run.device import Mover

MODULE = "benchmarks.gpu"
VOCABULARY = 4_233
TARGET = 0.98
WARM, ROUNDS, STEPS, LISTED = sized((10, 4, 15, 20), (1, 1, 2, 1))  # steps of a round; how often the shards are listed
MEMORY, PINNED, CURRENT, LOADER = (
    "in its memory",
    "in pinned memory, by a stream",
    "in pinned memory",
    "from the loader",
)
SMALL = ModelConfig(layers=2, dim=64, channels=8, feed_forward=64, decoder_layers=1, decoder_feed_forward=64)


def measure(data: str, features: str, workers: int) -> dict[str, Any]:
    """Measure the seconds of a step on batches from each place, in turn, as a machine's speed drifts."""
    gpu = torch.cuda.is_available()
    trainer = _Trainer("cuda" if gpu else "cpu", features == "GPU", ModelConfig() if gpu else SMALL)
    shards = prepare(Path(data), tar_only=True).shards("tar") * LISTED
    kept = list(itertools.islice(_loader(shards, features, workers, trainer.device), WARM + ROUNDS * STEPS))
    host = [_each(batch, lambda tensor: tensor.cpu().pin_memory() if gpu else tensor) for batch in kept]
    trainer.run(kept)  # every shape once: what is chosen and allocated for it does not count
    loader, mover = _loader(shards, features, workers, trainer.device), Mover(trainer.device)
    batches = iter(loader)
    trainer.run(itertools.islice(batches, WARM))
    waited, took, busy = loader.stats().waited, defaultdict(list), defaultdict(list)
    for first in range(WARM, WARM + ROUNDS * STEPS, STEPS):
        own = slice(first, first + STEPS)
        places: dict[str, Iterable[dict[str, Any]]] = {
            MEMORY: kept[own],
            PINNED: (mover.end(*mover.begin(batch)) for batch in host[own]),
            LOADER: itertools.islice(batches, STEPS),
        }
        for place, some in places.items():
            seconds, used = trainer.run(some)
            took[place].append(seconds / STEPS)
            busy[place] += [used] * (used is not None)
            assert trainer.keys == [batch["keys"] for batch in kept[own]]
    return {
        "took": took,
        "waited": (loader.stats().waited - waited) / (STEPS * sum(took[LOADER])),
        "busy": {place: statistics.fmean(found) for place, found in busy.items() if found},
        "device": torch.cuda.get_device_name() if gpu else "none: a small model on the CPU",
    }


def _each(batch: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    return {name: change(value) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def codes(text: str) -> list[int]:
    """Return the labels of a text."""
    return [1 + ord(c) % (VOCABULARY - 2) for c in text if c != " "]


def _loader(shards: list[str], features: str, workers: int, device: str) -> Any:
    import uio_pipes as uio
    from benchmarks.peers import uio as ours

    source = uio.from_shard_list(shards, shuffle=True).tokenize(codes)
    graph = ours.features(source) if features == "CPU" else ours.batched(source.decode_audio())
    return uio.to_device(uio.Loader(graph, seed=7, num_workers=workers), device)


class _Trainer:
    def __init__(self, device: str, features: bool, config: ModelConfig) -> None:
        import uio_pipes as uio

        self.device = device
        self.fbank = uio.FbankModule(MELS, dither=DITHER).to(device) if features else None
        self.model = AsrModel(config, VOCABULARY).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device == "cuda")
        self.keys: list[list[str]] = []

    def run(self, batches: Iterable[dict[str, Any]]) -> tuple[float, float | None]:
        """Return the seconds for a step on each batch, and how busy the GPU was, 0 to 1."""
        self.keys = []
        self._wait()
        with _Busy(self.device) as busy:
            began = time.perf_counter()
            for batch in batches:
                self.keys.append(batch["keys"])
                self._step(batch)
            self._wait()
            took = time.perf_counter() - began
        return took, busy.mean

    def _step(self, batch: dict[str, Any]) -> None:
        with torch.autocast(self.device, torch.bfloat16):
            if self.fbank is not None:
                feats, lengths = self.fbank(batch["pcm"], batch["pcm_length"])
            else:
                feats, lengths = batch["feats"], batch["feats_lengths"]
            loss = self.model(feats, lengths, batch["target"], batch["target_lengths"])["loss"]
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


class _Busy:
    """Samples how busy the GPU is, from NVML, if pynvml is installed."""

    def __init__(self, device: str) -> None:
        self._found: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True) if device == "cuda" else None

    def __enter__(self) -> _Busy:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        try:
            while not self._end.wait(0.2):
                self._found.append(torch.cuda.utilization() / 100)
        except Exception:  # no pynvml, or the driver does not tell, for which each has errors of its own
            return

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self._found) if self._found else None


def main() -> None:
    """Measure both and write results/gpu.md."""
    made = parser(__doc__, repeats=1)
    made.add_argument("--workers", type=int, default=2)
    arguments = begin(measure, made)
    prepare(arguments.data, tar_only=True)
    report = Report("gpu", "A Conformer's speed on batches from the loader")
    for features in ("CPU", "GPU"):
        found = child(MODULE, data=arguments.data, features=features, workers=arguments.workers)
        if "error" in found:
            report.text(f"- features on the {features} did not run: {found['error']}")
            continue
        rows = []
        for place, seconds in found["took"].items():
            share = statistics.median(a / b for a, b in zip(found["took"][MEMORY], seconds, strict=True))
            busy = f"{100 * found['busy'][place]:.0f} %" if place in found["busy"] else "–"
            spread = f"{1e3 * statistics.median(seconds):.1f} ({1e3 * min(seconds):.1f}…{1e3 * max(seconds):.1f})"
            rows.append([place, spread, f"{100 * share:.1f} %", busy])
        report.table(
            f"Features on the {features}", ["batches are", "ms a step", "of the speed in memory", "GPU busy"], rows
        )
        waited = f"waiting for batches {100 * found['waited']:.1f} % of it, {found['device']}"
        report.target(f"features on the {features}: 98 %", share >= TARGET, f"{100 * share:.1f} %, {waited}")
        report.write()


if __name__ == "__main__":
    main()
