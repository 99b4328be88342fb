"""Claim: a full-size Conformer on a GPU trains at 98 % of the speed that it has on batches kept in its memory.

The hybrid Conformer of ``recipes`` (12 + 6 layers, 256 wide, bfloat16) learns from the loader's first batches, 12,000
padded frames each: once with features made by the workers, once with waveforms and ``uio.FbankModule`` before the
model; and from the same batches when they are on the device already. Without a GPU a small model only shows that the
script runs: ``python -m benchmarks.gpu --workers 8``.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import prepare
from benchmarks.peers import DITHER, MELS
from recipes.common.config import ModelConfig
from recipes.common.model import AsrModel

MODULE = "benchmarks.gpu"
VOCABULARY = 4_233
TARGET = 0.98
WARM, STEPS, LISTED = sized((20, 120, 20), (1, 3, 1))  # steps; how often the shards are listed
SMALL = ModelConfig(layers=2, dim=64, channels=8, feed_forward=64, decoder_layers=1, decoder_feed_forward=64)


def measure(data: str, features: str, workers: int) -> dict[str, Any]:
    """Measure the seconds of the steps on batches from the loader, and on batches kept in memory."""
    gpu = torch.cuda.is_available()
    warm, steps = (WARM, STEPS) if gpu else (1, 3)
    trainer = _Trainer("cuda" if gpu else "cpu", features == "GPU", ModelConfig() if gpu else SMALL)
    shards = prepare(Path(data)).shards("tar") * LISTED
    kept = list(itertools.islice(_loader(shards, features, workers, trainer.device), warm + steps))
    trainer.run(kept)  # every shape once: what is chosen and allocated for it counts for neither
    in_memory, busy_in_memory = trainer.run(kept[warm:])
    keys = [batch["keys"] for batch in kept]
    del kept
    loader = _loader(shards, features, workers, trainer.device)
    batches = iter(loader)
    trainer.run(itertools.islice(batches, warm))
    waited = loader.stats().waited
    from_loader, busy = trainer.run(itertools.islice(batches, steps))
    assert trainer.keys == keys[warm:]
    return {
        "share": in_memory / from_loader,
        "step": from_loader / steps,
        "waited": (loader.stats().waited - waited) / from_loader,
        "busy": busy,
        "busy_in_memory": busy_in_memory,
        "device": torch.cuda.get_device_name() if gpu else "none: a small model on the CPU",
    }


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
    prepare(arguments.data)
    report = Report("gpu", "A Conformer's speed on batches from the loader")
    rows = []
    for features in ("CPU", "GPU"):
        found = child(MODULE, data=arguments.data, features=features, workers=arguments.workers)
        if "error" in found:
            report.text(f"- features on the {features} did not run: {found['error']}")
            continue
        busy = ["–" if found[name] is None else f"{100 * found[name]:.0f} %" for name in ("busy", "busy_in_memory")]
        shares = [f"{100 * found[name]:.1f} %" for name in ("share", "waited")]
        rows.append([f"features on the {features}", f"{1e3 * found['step']:.1f}", *shares, *busy])
        print(*rows[-1], sep=", ", flush=True)  # if the time is up before the table
        report.target(f"features on the {features}: 98 %", found["share"] >= TARGET, f"{shares[0]}, {found['device']}")
    columns = ["", "ms a step", "of the speed in memory", "waiting", "GPU busy", "in memory"]
    report.table(f"{arguments.workers} workers", columns, rows, plot=[2])
    report.write()


if __name__ == "__main__":
    main()
