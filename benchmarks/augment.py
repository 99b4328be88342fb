"""Claim: augmentations of waveforms take at most the CPU time of Lhotse's or torchaudio's, or 1.1 × of it.

Tones of 5 s at 16 kHz, in memory, through a graph of this package with one stage, against the peer's function
called on the same waveforms. The peer gets a value from the middle of what the stage draws; as a cutoff, it draws one,
too: ``python -m benchmarks.augment``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import INSTALL, Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import RATE
from uio_pipes.tools.data.example_speech import toned

MODULE = "benchmarks.augment"
SAMPLES = sized(5 * RATE, RATE // 2)
COUNT = sized(20, 2)
SLOW = {"pitch_shift": 1, "lowpass": 2}  # calls of a peer that makes a huge filter for each
ROUND, SEMITONES = sized((2, 2), (1000, 12))  # a quick run's rates have large common divisors: the filters are small

AS_FAST = ("clip",)  # both are one tanh: no target (docs/decisions.md)

Wave = npt.NDArray[np.float32]
STAGES: dict[str, Callable[[Any], Any]] = {
    "codec, Opus": lambda graph: graph.codec(["opus"], (0.9, 0.9)),
    "codec, MP3": lambda graph: graph.codec(["mp3"], (0.9, 0.9)),
    "codec, Vorbis": lambda graph: graph.codec(["vorbis"], (0.9, 0.9)),
    "codec, GSM": lambda graph: graph.codec(["gsm"]),
    "codec, µ-law": lambda graph: graph.codec(["mulaw"]),
    "lowpass": lambda graph: graph.lowpass((3500, 7500)),
    "clip": lambda graph: graph.clip(hard=0),
    "loudness": lambda graph: graph.loudness(),
    "pitch_shift": lambda graph: graph.pitch_shift((-2, 2)),
    "reverberate, computed rooms": lambda graph: graph.reverberate(rt60=(0.1, 0.8)),
}


def peers() -> dict[str, tuple[str, Callable[[Wave], object]]]:
    """Return what others have for the same purpose: a name, and the function of a waveform (1, S)."""
    import torch
    import torchaudio.functional
    from lhotse.augmentation import Clipping, Compress, Resample, ReverbWithImpulseResponse

    cutoffs = np.random.default_rng(0)

    def coded(codec: str) -> Callable[[Wave], object]:
        return lambda wave: Compress(codec, 0.9)(wave, RATE)

    def lowpass(wave: Wave) -> object:
        rate = ROUND * int(2 * cutoffs.uniform(3500, 7500) / ROUND)
        return Resample(rate, RATE)(np.asarray(Resample(RATE, rate)(wave, RATE)), rate)

    def pitch(wave: Wave) -> object:
        return torchaudio.functional.pitch_shift(torch.from_numpy(wave), RATE, SEMITONES)

    room = {"sr": RATE, "max_T60": 0.8}
    return {
        "codec, Opus": ("Lhotse", coded("opus")),
        "codec, MP3": ("Lhotse", coded("mp3")),
        "codec, Vorbis": ("Lhotse", coded("vorbis")),
        "codec, GSM": ("Lhotse (takes 16 kHz for 8)", coded("gsm")),
        "lowpass": ("Lhotse, by resampling", lowpass),
        "clip": ("Lhotse", lambda wave: Clipping(hard=False, gain_db=10.0)(wave, RATE)),
        "loudness": ("torchaudio", lambda wave: torchaudio.functional.loudness(torch.from_numpy(wave), RATE)),
        "pitch_shift": ("torchaudio", pitch),
        "reverberate, computed rooms": (
            "Lhotse (FRA-RIR)",
            lambda wave: ReverbWithImpulseResponse(rir_generator=dict(room))(wave, RATE),
        ),
    }


def _wave(number: int) -> Wave:
    """Return tones with some noise, (1, S)."""
    noise = np.random.default_rng(number).standard_normal(SAMPLES).astype(np.float32)
    text = "".join(chr(97 + 7 * i * (number + 1) % 26) for i in range(-(-SAMPLES // RATE) * 4))
    return (0.2 * toned(text, RATE)[:SAMPLES] + 0.005 * noise)[None]


def measure(name: str, peer: bool) -> dict[str, Any]:
    """Measure the milliseconds of CPU for an utterance."""
    import uio_pipes as uio

    waves = [_wave(i) for i in range(COUNT)]
    if peer:
        function = peers()[name][1]
        waves = waves[: SLOW.get(name, COUNT)]
        if name not in SLOW:
            function(waves[0])  # tables and kernels are made
        began = time.process_time()
        for wave in waves:
            function(wave)
    else:
        rows = [{"key": str(i), "wav": wave, "sample_rate": RATE} for i, wave in enumerate(waves)]
        bare = uio.from_iterable(rows)
        graph = STAGES[name](bare)
        _epoch(graph, 1)
        return {
            "ms": (_epoch(graph, 2) - _epoch(bare, 2)) * 1e3 / len(waves)
        }  # of the stage, as of the peer's function
    return {"ms": (time.process_time() - began) * 1e3 / len(waves)}


def _epoch(graph: Any, seed: int) -> float:
    """Return the CPU seconds of an epoch."""
    import uio_pipes as uio

    loader, began = uio.Loader(graph, seed=seed), time.process_time()
    for _ in loader:
        pass
    return time.process_time() - began


def main() -> None:
    """Measure all and write results/augment.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    report = Report("augment", "Augmentations of waveforms")
    try:
        others = peers()
    except ImportError as error:
        report.text(f"- no peer did run: {error}: {INSTALL}")
        others = {}
    jobs = {
        (name, peer): {"name": name, "peer": peer} for name in STAGES for peer in (False, *[True] * (name in others))
    }
    results = rounds(MODULE, {f"{n}{' (peer)' * p}": job for (n, p), job in jobs.items()}, arguments.repeats)
    ran = report.ran(results)
    rows, slower = [], []
    for name in STAGES:
        mine, theirs = ran.get(name, []), ran.get(f"{name} (peer)", [])
        times = ratio(median(theirs, "ms"), median(mine, "ms")) if theirs else "–"
        rows.append([name, spread(mine, "ms"), spread(theirs, "ms"), others.get(name, ("none",))[0], times])
        if median(mine, "ms") > 1.1 * median(theirs, "ms") and name not in AS_FAST:
            slower.append(name)
    report.table("CPU milliseconds for 5 s", ["stage", "this package", "peer", "which", "as fast"], rows, plot=[1, 2])
    claim = f"none but {', '.join(AS_FAST)} takes more than 1.1 × its peer's time"
    report.target(claim, not slower, ", ".join(slower) or "none")
    report.write()


if __name__ == "__main__":
    main()
