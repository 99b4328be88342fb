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


def test_what_a_function_of_the_users_may_have_done_is_not_judged() -> None:
    AUDIO.fbank().map(_audio_again).volume_perturb().fbank()
    uio.from_shard_list("features.list").spec_aug().deltas().global_cmvn("cmvn").batch(4).pad()
    AUDIO.map(_audio_again).mono()


def _audio_again(sample: uio.Sample) -> uio.Sample:
    return sample
