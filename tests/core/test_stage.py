"""Stages in an order that makes one of them useless are refused while the graph is described."""

from __future__ import annotations

from typing import Any

import pytest

import uio_pipes as uio

AUDIO = uio.from_shard_list("x.list").decode_audio()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AUDIO.fbank().volume_perturb(), "volume_perturb works on audio, but fbank has made features"),
        (lambda: AUDIO.fbank().add_noise("n.list"), "add_noise works on audio"),
        (lambda: AUDIO.mfcc(num_ceps=13).shuffle(9).speed_perturb(), "speed_perturb works on audio, but mfcc"),
        (
            lambda: AUDIO.fbank().fbank(),
            "fbank makes features, but fbank before it has made some already: leave one out$",
        ),
        (lambda: AUDIO.spec_aug().fbank(), "fbank makes features, but spec_aug before it has worked on some"),
        (lambda: AUDIO.fbank().dynamic_batch(max_samples=10**6), "max_samples counts samples of waveforms"),
        (lambda: AUDIO.fbank().bucket_batch(max_samples=10**6), "max_samples counts samples of waveforms"),
        (lambda: AUDIO.mono(), "decode_audio keeps only channel 0 already"),
        (lambda: AUDIO.spec_aug(max_x=3), r"spec_aug: got an unexpected keyword argument 'max_x'; it takes num_t_mask"),
        (lambda: AUDIO.take(), "take: missing a required argument: 'number'"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(uio.PipelineError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AUDIO.clip(gain_db=3), r"gain_db must be \(lowest, highest\), within -100 to 100 dB, not 3; try \(3"),
        (lambda: AUDIO.lowpass(4000), r"cutoff must be \(lowest, highest\).* Hz, not 4000; try \(4000, 4000\)"),
        (lambda: AUDIO.loudness(target=-20), r"target must be \(lowest, highest\).* LUFS, not -20; try \(-20, -20\)"),
        (lambda: AUDIO.pitch_shift([1]), r"semitones must be .*, not \[1\]; give two numbers, the lower one first"),
        (lambda: AUDIO.codec(compression_level=0.5), r"compression_level must be .*; try \(0.5, 0.5\)"),
        (lambda: AUDIO.add_noise("n.list", snr=5), r"snr must be .*; try \(5, 5\)"),
        (lambda: AUDIO.add_noise("n.list", part=0.5), r"part must be .*; try \(0.5, 0.5\)"),
        (lambda: AUDIO.reverberate(rt60=0.3), r"rt60 must be .*; try \(0.3, 0.3\)"),
        (lambda: AUDIO.reverberate(rt60=(0.1, 0.2), room_size=None), "room_size must be"),
    ],
)
def test_pairs_are_refused_with_their_bounds_and_the_remedy(make: Any, message: str) -> None:
    pytest.importorskip("torchaudio")
    with pytest.raises(uio.PipelineError, match=message):
        make()


def test_what_a_function_of_the_users_may_have_done_is_not_judged() -> None:
    AUDIO.fbank().map(_audio_again).volume_perturb().fbank()
    uio.from_shard_list("features.list").spec_aug().deltas().global_cmvn("cmvn").batch(4).pad()
    AUDIO.map(_audio_again).mono()


def _audio_again(sample: uio.Sample) -> uio.Sample:
    return sample
