"""Stages in an order that makes one of them useless are refused while the graph is described."""

import uio_pipes as uio

AUDIO = uio.from_shard_list("x.list").decode_audio()


def test_what_a_function_of_the_users_may_have_done_is_not_judged() -> None:
    AUDIO.fbank().map(_audio_again).volume_perturb().fbank()
    uio.from_shard_list("features.list").spec_aug().deltas().global_cmvn("cmvn").batch(4).pad()
    AUDIO.map(_audio_again).mono()


def _audio_again(sample: uio.Sample) -> uio.Sample:
    return sample
