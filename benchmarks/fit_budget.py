"""Claim: no batch of ``uio.fit_budget`` takes more than the limit; it forecasts the memory of every batch within 5 %
(on a CPU 15 %), and on a GPU its buckets bring 15 % more utterances a second than a hand-set ``max_frames``.

A Conformer of ``recipes`` trains an epoch of utterances of 1 to 30 s, most of them short, by batches that hold as much
as the memory allows: by the largest ``max_frames`` with which no batch is above it, sorted or in buckets, and by the
proposed buckets. With a GPU it is the full model; without one a small one, by CPU time, as resident size is measured.
``python -m benchmarks.fit_budget --memory 3e9``.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch

import uio_pipes as uio
from benchmarks.common import Report, begin, child, median, parser, rounds, sized, spread
from recipes.common.config import ModelConfig
from recipes.common.model import AsrModel
from uio_pipes.inspect.fit_budget import LENGTHS, MemoryModel, peak
from uio_pipes.run.planning import plan_lanes

MODULE = "benchmarks.fit_budget"
GPU = torch.cuda.is_available()
UTTERANCES, PEAKS = sized((4_000 if GPU else 1_000, 40), (40, 2))  # in an epoch; steps whose memory is measured
LONGEST, MELS, VOCABULARY = sized(3_000, 400), 80, 400
BARE = peak(lambda: None, GPU)  # bytes of the process without a batch: 0.8e9 on a CPU
MEMORY = 20e9 if GPU else sized(2e9, BARE / 0.9 + 2e8)
SMALL = ModelConfig(  # heads and feed-forward in proportion to the width, channels to the layers, as in the full model
    layers=2, dim=64, heads=1, channels=8, feed_forward=512, decoder_layers=1, decoder_feed_forward=512
)
WITHIN, GAIN = 5 if GPU else 15, 1.15  # on a CPU a step takes as long as its frames do: no gain is expected there
SORTED, BUCKETS, FITTED = "sort(500) + dynamic_batch(max_frames)", "bucket_batch(max_frames)", "bucket_batch of the fit"


def measure(way: str, memory: float, peaks: bool = False, **batches: Any) -> dict[str, Any]:
    """Fit, or train an epoch by ``batches``, the arguments of the stage that makes them."""
    return _fit(memory) if way == "fit" else _train(_graph(way, batches), peaks)


def _utterances() -> uio.Pipeline:
    """Return utterances with exponentially distributed lengths, 6 s on average, and 3 labels a second."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((LONGEST, MELS), dtype=np.float32)
    frames = rng.exponential(600, 20 * UTTERANCES).astype(int)
    frames = frames[(frames >= 100) & (frames <= LONGEST)][:UTTERANCES]
    labels = np.maximum(1, frames * 0.03 * rng.normal(1, 0.3, len(frames)).clip(0.3, 2)).astype(int)
    return uio.from_iterable(
        [
            {"key": f"U{i:05d}", "feat": noise[:t], "label": rng.integers(3, VOCABULARY, u).tolist()}
            for i, (t, u) in enumerate(zip(frames.tolist(), labels.tolist(), strict=True))
        ]
    )


def _graph(way: str, batches: dict[str, Any]) -> uio.Pipeline:
    if way == FITTED:
        batches = batches | {"cost": MemoryModel(tuple(batches["cost"]), 0.0).cost}
    if way == SORTED:
        return _utterances().sort(500).dynamic_batch(**batches).pad()
    return _utterances().bucket_batch(**batches).pad()


class _Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.device = "cuda" if GPU else "cpu"
        self.model = AsrModel(ModelConfig() if GPU else SMALL, VOCABULARY).to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)

    def step(self, batch: dict[str, Any]) -> None:
        names = ("feats", "feats_lengths", "target", "target_lengths")
        loss = self.model(*(batch[name].to(self.device) for name in names))["loss"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def _fit(memory: float) -> dict[str, Any]:
    began = time.perf_counter()
    fit = uio.fit_budget(_Trainer().step, uio.Loader(_utterances().batch(1).pad()), memory)
    took = time.perf_counter() - began
    return {
        "text": str(fit),
        "took": took,
        "limit": fit.limit,
        "weights": fit.model.weights,
        "probes": len(fit.probes),
        FITTED: fit.options | {"cost": fit.model.weights},
        **{way: {"max_frames": _largest(way, fit)} for way in (SORTED, BUCKETS)},
    }


def _largest(way: str, fit: uio.BudgetFit) -> int:
    """Return the largest ``max_frames`` with which no planned batch is above what the proposal uses."""
    fits, over, budget = LONGEST, 100 * LONGEST, fit.options["max_cost"] + fit.model.weights[0]
    while over - fits > 100:
        middle = (fits + over) // 2
        (plan,) = plan_lanes(_graph(way, {"max_frames": middle}), 1, 0, 0, by=LENGTHS)
        most = fit.model.bytes(np.array([plan.counts, *(one.longest for one in plan.sizes)]).T).max()
        fits, over = (middle, over) if most <= budget else (fits, middle)
    return fits


def _train(graph: uio.Pipeline, peaks: bool) -> dict[str, Any]:
    """Train an epoch and measure its speed, or the peak memory of steps, evenly spread over it."""
    trainer, loader = _Trainer(), uio.Loader(graph)
    clock = time.perf_counter if GPU else time.process_time
    (plan,) = plan_lanes(graph, 1, 0, 0)
    measured, seconds = {}, 0.0
    trainer.step(next(iter(uio.Loader(graph))))
    for number, batch in enumerate(loader):
        if not peaks:
            began = clock()
            trainer.step(batch)
            if GPU:
                torch.cuda.synchronize()
            seconds += clock() - began
        elif number % max(1, len(plan.counts) // PEAKS) == 0:
            shape = (len(batch["keys"]), batch["feats"].shape[1], batch["target"].shape[1])
            measured[shape] = peak(partial(trainer.step, batch), GPU)
    stats = loader.stats()
    if not peaks:
        return {"speed": stats.utterances / seconds}
    return {"steps": stats.batches, "padding": 100 * stats.padding_ratio, "peaks": list(measured.items())}


def main() -> None:
    """Fit, train by all ways and write results/fit_budget.md."""
    made = parser(__doc__, repeats=2)
    made.add_argument("--memory", type=float, default=MEMORY, help="bytes that a step may take; a tenth stays free")
    arguments = begin(measure, made)
    report = Report("fit_budget", "Batches that fill the memory")
    fit = child(MODULE, way="fit", memory=arguments.memory)
    if "error" in fit:
        report.text(f"- the fit did not run: {fit['error']}")
        return
    report.text(f"The fit took {fit['took']:.0f} s, for {fit['probes']} probes:")
    report.text(f"```\n{fit['text']}\n```")
    report.write()
    jobs = {way: {"way": way, **fit[way]} for way in (SORTED, BUCKETS, FITTED)}
    measured = report.ran(rounds(MODULE, jobs, 1, memory=arguments.memory, peaks=True), "memory: ")
    speeds = report.ran(rounds(MODULE, jobs, arguments.repeats, memory=arguments.memory))
    epochs = {way: runs[0] for way, runs in measured.items() if way in speeds}
    if len(epochs) < len(jobs):
        return
    model, rows, off, most = MemoryModel(tuple(fit["weights"]), 0.0), [], 0.0, 0.0
    for way, epoch in epochs.items():
        forecast = model.bytes([shape for shape, _ in epoch["peaks"]])
        peaks = np.array([found for _, found in epoch["peaks"]])
        errors, full = 100 * (forecast / peaks - 1), 100 * peaks / fit["limit"]
        off, most = max(off, float(np.abs(errors).max())), max(most, float(full.max()))
        rows.append(
            [
                way if way == FITTED else f"{way}={fit[way]['max_frames']:,}",
                f"{epoch['steps']}",
                f"{epoch['padding']:.1f} %",
                f"{100 * (forecast.mean() - model.weights[0]) / (fit['limit'] - model.weights[0]):.0f} %",
                f"{full.max():.1f} %",
                f"{errors.min():+.1f} … {errors.max():+.1f} %",
                spread(speeds[way], "speed", ".1f"),
            ]
        )
    columns = ["", "steps", "padding", "mean fill", "fullest batch", "forecast off by", "utterances a second"]
    report.table("An epoch", columns, rows, plot=[1, 6])
    where = torch.cuda.get_device_name() if GPU else "a CPU, by CPU time"
    report.target(f"the forecast of every batch is within {WITHIN} %", off <= WITHIN, f"{off:.1f} %, {where}")
    report.target("no batch takes more than the limit", most <= 100, f"at most {most:.1f} %")
    speed = {way: median(runs, "speed") for way, runs in speeds.items()}
    for way in (SORTED, BUCKETS) if GPU else ():
        steps = 1 - epochs[FITTED]["steps"] / epochs[way]["steps"]
        gain = speed[FITTED] / speed[way]
        claim = f"{GAIN:.2f}× the utterances a second of {way}"
        report.target(claim, gain >= GAIN, f"{gain:.2f}×, with {100 * steps:.0f} % fewer steps, {where}")
    report.write()


if __name__ == "__main__":
    main()
