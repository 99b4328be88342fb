"""Filter banks through a graph: torchaudio's numbers, planned frames, dither."""

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torchaudio.compliance.kaldi as kaldi
from helpers_bad import audio, keys, planned, raw_items, run, shard
from tones import check_near

import uio_pipes as uio
from uio_pipes.dsp.fbank import _tables

REAL = Path(__file__).parents[3] / "shared/data/wenet/test/resources"


def spoken() -> list[tuple[str, bytes]]:
    """Real recordings if they are at hand, and generated ones: tones with silence, full scale, noise."""
    real = [(path.stem, path.read_bytes()) for path in sorted(REAL.glob("*.wav"))]
    time = np.arange(24_000) / 16_000
    shapes = {
        "tone": 0.3 * np.sin(2 * np.pi * 440 * time) * (time > 0.5),
        "loud": np.sign(np.sin(2 * np.pi * 100 * time)) * 0.999,
        "silent": np.zeros(24_000),
        "chirp": 0.1 * np.sin(2 * np.pi * (100 + 2000 * time) * time),
    }
    for name, wave in shapes.items():
        buffer = io.BytesIO()
        soundfile.write(buffer, wave, 16_000, format="WAV", subtype="PCM_16")
        real.append((name, buffer.getvalue()))
    return real


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    parts = [(f"{key}.{s}", d) for key, wav in spoken() for s, d in (("txt", b"t"), ("wav", wav))]
    return shard(tmp_path_factory.mktemp("fbank") / "x.tar", parts)


@pytest.mark.parametrize("bins", [23, 40, 80])
@pytest.mark.parametrize("window", ["povey", "hamming"])
def test_equal_to_torchaudio(corpus: str, bins: int, window: str) -> None:
    graph = uio.from_shard_list(corpus).decode_audio().fbank(num_mel_bins=bins, window_type=window)
    batches, _ = run(graph, failures="raise")
    assert len(batches) == len(spoken())
    for batch in batches:
        want = kaldi.fbank(batch["wav"] * 32768, num_mel_bins=bins, window_type=window, dither=0.0, energy_floor=0.0)
        assert batch["feat"].shape == want.shape
        check_near(batch["feat"], want)


def test_equal_to_torchaudio_with_other_frames_and_rates(corpus: str) -> None:
    graph = uio.from_shard_list(corpus).decode_audio().resample(8_000).fbank(40, frame_length=32, frame_shift=8)
    for batch in run(graph, failures="raise")[0]:
        want = kaldi.fbank(
            batch["wav"] * 32768,
            sample_frequency=8_000,
            num_mel_bins=40,
            frame_length=32,
            frame_shift=8,
            dither=0.0,
            energy_floor=0.0,
        )
        check_near(batch["feat"], want)


def test_an_utterance_has_the_same_features_alone_and_in_a_batch(corpus: str) -> None:
    """Padding and neighbours change nothing in an utterance's features."""
    graph = uio.from_shard_list(corpus).decode_audio().fbank(80)
    alone = {b["key"]: b["feat"] for b in run(graph)[0]}
    (batch,), _ = run(graph.batch(100).pad())
    for i, key in enumerate(batch["keys"]):
        length = batch["feats_lengths"][i]
        assert torch.equal(batch["feats"][i, :length], alone[key])
        assert not batch["feats"][i, length:].any()


@pytest.mark.parametrize("kind", [torch.float64, torch.float16], ids=str)
def test_the_type_that_torch_makes_tensors_of_changes_nothing(corpus: str, kind: torch.dtype) -> None:
    """Dither's tables, the room for padding and what is resampled are float32: the kernel reads them by address."""
    audio = uio.from_shard_list(corpus).decode_audio()
    graphs = [
        audio.resample(8_000).fbank(40, dither=0.5),
        audio.log_mel_spectrogram(80),
        audio.pitch_shift().mfcc(20, num_ceps=13),
    ]
    expected = [[b["feat"] for b in run(graph)[0]] for graph in graphs]
    _tables.cache_clear()
    torch.set_default_dtype(kind)
    try:
        found = [[b["feat"] for b in run(graph)[0]] for graph in graphs]
    finally:
        torch.set_default_dtype(torch.float32)
        _tables.cache_clear()
    for ours, others in zip(found, expected, strict=True):
        assert all(map(torch.equal, ours, others))


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
def test_planned_frames_are_the_real_ones_at_every_length(tmp_path: Path, rate: int) -> None:
    window = int(rate * 0.025)
    lengths = [window, window + 1, window + int(rate * 0.01) - 1, window + int(rate * 0.01), rate + 7]
    parts = [(f"{n}.{s}", d) for n in lengths for s, d in (("txt", b"t"), ("wav", audio(n, rate=rate)))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20)
    plans, samples = planned(graph)
    assert [plans[s["key"]].frames for s in samples] == [len(s["feat"]) for s in samples]
    assert [plans[str(n)].frames for n in lengths[:4]] == [1, 1, 1, 2]


def test_shorter_than_a_window_is_a_failure(tmp_path: Path) -> None:
    parts = [(f"{n}.{s}", d) for n in (199, 200) for s, d in (("txt", b"t"), ("wav", audio(n)))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20)
    for each in (graph.batch(2).pad(), graph.sort(2).batch(2).pad(), graph.dynamic_batch(100).pad()):
        batches, loader = run(each)
        assert keys(batches) == ["200"]
        assert loader.stats().skipped == {"too_short": 1}


# Dither


def dithered(path: str, dither: float) -> dict[str, torch.Tensor]:
    loader = uio.Loader(uio.from_shard_list(path).decode_audio().fbank(80, dither=dither))
    return {b["key"]: b["feat"] for b in loader}


def test_dither_on_silence_has_the_strength_of_kaldi_s(tmp_path: Path) -> None:
    """Log energies of dithered silence agree in mean and spread with torchaudio's, which draws its own noise."""
    path = shard(tmp_path / "x.tar", [("a.txt", b"t"), ("a.wav", _silence(16_000 * 20))])
    for dither in (0.1, 1.0):
        (feat,) = dithered(path, dither).values()
        torch.manual_seed(0)
        want = kaldi.fbank(torch.zeros(1, 16_000 * 20), num_mel_bins=80, dither=dither, energy_floor=0.0)
        assert abs(float(feat.mean() - want.mean())) < 0.03
        assert abs(float(feat.std() - want.std())) < 0.05
        assert (feat.mean(0) - want.mean(0)).abs().max() < 0.2


def test_utterances_get_noise_of_their_own(tmp_path: Path) -> None:
    parts = [(f"{k}.{s}", d) for k in "ab" for s, d in (("txt", b"t"), ("wav", _silence(16_000)))]
    feats = dithered(shard(tmp_path / "x.tar", parts), 1.0)
    assert not torch.equal(feats["a"], feats["b"])
    correlation = torch.corrcoef(torch.stack([feats["a"].flatten(), feats["b"].flatten()]))[0, 1]
    spread = torch.stack(list(feats.values())).mean((0, 1))
    assert float(correlation) < 0.99
    assert spread.shape == (80,)


def _silence(samples: int) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(samples), 16_000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


@pytest.mark.skipif(not REAL.exists(), reason="WeNet's files are not at hand")
def test_wenet_s_own_shard_is_read() -> None:
    path = REAL / "dataset/shards/shards_000000000.tar"
    batches, _ = run(uio.from_shard_list(path).decode_audio().fbank(80).batch(2).pad(), failures="raise")
    with tarfile.open(path) as tar:
        names = [m.name.rsplit(".", 1)[0] for m in tar if m.name.endswith(".wav")]
    assert sorted(keys(batches)) == sorted(names)


def test_dither_is_the_utterances_own_in_every_thread(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 6) * 4).decode_audio().fbank(8, dither=1.0).batch(3).pad()

    def bits() -> list[torch.Tensor]:
        return [batch["feats"] for batch in uio.Loader(graph)]

    expected = bits()
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: bits(), range(12)):
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
