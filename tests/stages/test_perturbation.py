"""What all stages that change some waveforms have in common: shape, draws, short and odd input, torchaudio or not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import raw_items, run

import uio_pipes as uio

Stage = Callable[..., uio.Pipeline]
STAGES: dict[str, Stage] = {
    "lowpass": lambda graph, **options: graph.lowpass((500, 3000), **options),
    "codec": lambda graph, **options: graph.codec(["mp3", "gsm", "mulaw"], **options),
    "clip": lambda graph, **options: graph.clip((3, 20), **options),
    "loudness": lambda graph, **options: graph.loudness(**options),
    "pitch_shift": lambda graph, **options: graph.pitch_shift((1, 4), **options),
    "reverberate": lambda graph, **options: graph.reverberate(rt60=(0.1, 0.4), **options),
}
ON_TORCHAUDIO = ("lowpass", "loudness", "pitch_shift")
every_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


def given(wavs: list[Any], rate: int = 8000) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{i}", "wav": wav, "sample_rate": rate} for i, wav in enumerate(wavs)])


def noise(*shape: int) -> torch.Tensor:
    return 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def changed(stage: Stage, wavs: list[Any], rate: int = 8000, **options: Any) -> list[torch.Tensor]:
    return [s["wav"] for s in run(stage(given(wavs, rate), **options), failures="raise")[0]]


@every_stage
@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_shape_and_type_stay_and_the_users_tensor_too(stage: Stage, rate: int) -> None:
    """Half a second, 10 ms, as few samples as channels; one channel and two."""
    wavs = [noise(channels, samples) for channels in (1, 2) for samples in (rate // 2, rate // 100, channels)]
    before = [wav.clone() for wav in wavs]
    out = changed(stage, wavs, rate)
    assert [(w.shape, w.dtype) for w in out] == [(w.shape, torch.float32) for w in wavs]
    assert all(w.isfinite().all() for w in out)
    assert not torch.equal(out[0], wavs[0])
    assert not torch.equal(out[3], wavs[3])
    assert all(torch.equal(a, b) for a, b in zip(wavs, before, strict=True))


@every_stage
def test_silence_stays_silent(stage: Stage) -> None:
    for wav in changed(stage, [torch.zeros(1, 8000), torch.zeros(2, 8000), torch.zeros(1, 1)]):
        assert float(wav.abs().max()) < 0.001


@every_stage
def test_integers_are_pcm_and_one_dimension_is_one_channel_drawn_or_not(stage: Stage) -> None:
    pcm = (noise(8000) * 32768).to(torch.int16)
    floats = (pcm.float() / 32768)[None]
    forms = [floats, pcm, pcm[None], pcm.numpy(), floats.double(), floats[0].numpy()]

    def out(wav: Any, probability: float) -> torch.Tensor:
        """What comes of a waveform that a function of the user's has made."""
        rows = [{"key": "0", "wav": np.zeros(9), "sample_rate": 8000}]
        made = uio.from_iterable(rows).map(lambda sample: {"key": "0", "wav": wav, "sample_rate": 8000})
        (batch,), _ = run(stage(made, probability=probability), failures="raise")
        found: torch.Tensor = batch["wav"]
        return found

    for probability in (0.0, 1.0):
        assert all(torch.equal(out(form, probability), out(floats, probability)) for form in forms)


@every_stage
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_probability_is_the_share_that_is_changed(stage: Stage, probability: float) -> None:
    wav = noise(1, 4000)
    count = sum(not torch.equal(out, wav) for out in changed(stage, [wav] * 200, probability=probability))
    assert abs(count - 200 * probability) <= 3.3 * (200 * probability * (1 - probability)) ** 0.5


@every_stage
def test_draws_belong_to_seed_epoch_and_utterance(stage: Stage, tmp_path: Path) -> None:
    items = raw_items(tmp_path, 8, samples=4000)

    def out(items: list[dict[str, Any]], **options: Any) -> dict[str, bytes]:
        graph = stage(uio.from_raw_list(items).decode_audio(), probability=0.7)
        return {s["key"]: s["wav"].numpy().tobytes() for s in run(graph, failures="raise", **options)[0]}

    first = out(items)
    assert out(items) == first
    assert out(items, num_workers=2, lanes=3) == first
    assert out(items[:3]) == {key: first[key] for key in ("R000", "R001", "R002")}
    assert out(items, seed=1) != first


@every_stage
def test_planned_length_is_the_real_one(stage: Stage, tmp_path: Path) -> None:
    plans = {}

    def remember(sample: uio.Sample) -> bool:
        plans[sample["key"]] = sample.plan.length
        return True

    graph = stage(uio.from_raw_list(raw_items(tmp_path, 6)).decode_audio()).filter(remember)
    real = {batch["key"]: -(-batch["wav"].shape[1] // 80) for batch in run(graph, failures="raise")[0]}
    assert real == plans


@every_stage
@pytest.mark.parametrize("probability", [-0.1, 1.1, "often"])
def test_wrong_probabilities_are_refused(stage: Stage, probability: Any) -> None:
    with pytest.raises(uio.PipelineError, match="probability"):
        stage(given([]), probability=probability)


@pytest.mark.parametrize("name", STAGES)
def test_without_torchaudio_describing_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    if name in ON_TORCHAUDIO:
        with pytest.raises(
            uio.PipelineError, match=rf"^{name} needs .*torchaudio.* pip install 'uio_pipes\[augment\]'"
        ):
            STAGES[name](given([]))
    else:
        assert len(changed(STAGES[name], [noise(1, 4000)])) == 1


@pytest.mark.parametrize("name", ON_TORCHAUDIO)
def test_a_torchaudio_that_cannot_be_imported_is_told_when_the_loader_starts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = STAGES[name](given([noise(1, 4000)]))
    monkeypatch.setitem(sys.modules, "torchaudio.functional", None)
    with pytest.raises(uio.PipelineError, match=rf"{name} needs torchaudio, .* fits your PyTorch, pip install"):
        list(uio.Loader(graph))


def test_torchaudio_is_imported_only_when_a_stage_that_needs_it_is_built() -> None:
    code = """
import sys, numpy as np, uio_pipes as uio
rows = [{"key": "a", "wav": np.ones((1, 800), np.float32) / 9, "sample_rate": 8000}]
graph = uio.from_iterable(rows).codec(["gsm"]).clip().reverberate(rt60=(0.1, 0.2))
assert len(list(uio.Loader(graph))) == 1
described = graph.lowpass().loudness().pitch_shift()
assert "torchaudio" not in sys.modules
list(uio.Loader(described))
assert "torchaudio" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_not_a_range_is_refused() -> None:
    graph = given([np.zeros(9)])
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: graph.lowpass((5000, 100)), r"lowpass: cutoff must be \(lowest, highest\), within 10 to"),
        (lambda: graph.lowpass(4000), "cutoff must be"),  # type: ignore[arg-type]
        (lambda: graph.codec(["opus", "speex"]), "codecs must be a list of 'opus', 'mp3'"),
        (lambda: graph.codec([]), "codecs must be"),
        (lambda: graph.codec(3), "codecs must be"),  # type: ignore[arg-type]
        (lambda: graph.codec(compression_level=(0.5, 1.5)), r"compression_level must be .*, within 0 to 1, not"),
        (lambda: graph.clip((1, 2, 3)), "gain_db must be"),
        (lambda: graph.clip(hard=2), "hard must be a probability"),
        (lambda: graph.loudness((-20, 10)), "target must be .*within -70 to 0 LUFS"),
        (lambda: graph.pitch_shift((0, float("nan"))), "semitones must be"),
        (lambda: graph.reverberate(rt60=(0, 1)), "rt60 must be .*within 0.05 to 10 s"),
        (lambda: graph.reverberate(rt60=(0.1, 0.2), room_size=(0, 5)), "room_size must be"),
        (lambda: graph.reverberate(), "give either impulse_responses, recorded ones, or rt60"),
        (lambda: graph.reverberate("rooms.list", rt60=(0.1, 0.2)), "give either"),
    ]
    for make, message in wrong:
        with pytest.raises(uio.PipelineError, match=message):
            make()
