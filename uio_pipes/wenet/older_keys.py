"""Keys of WeNet's older configurations: those that are still applied, and what to use instead of the others; and keys
that WeNet never reads, though its configurations have them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Unused(NamedTuple):
    """An older key that does nothing here: values that may stay, and what to do instead of others."""

    allowed: tuple[Any, ...]
    remedy: str


# Older names → the names that they have now
RENAMED = {
    "speed_perturb_conf.speeds": "speeds",
    "feature_extraction_conf.mel_bins": "fbank_conf.num_mel_bins",
    "feature_extraction_conf.frame_length": "fbank_conf.frame_length",
    "feature_extraction_conf.frame_shift": "fbank_conf.frame_shift",
    "wav_distortion_conf.wav_dither": "fbank_conf.dither",
    **{name: f"filter_conf.{name}" for name in ("max_length", "min_length", "token_max_length", "token_min_length")},
    **{name: f"batch_conf.{name}" for name in ("batch_type", "batch_size", "max_frames_in_batch")},
}

_OWN_GRAPH = "it is a stage for a graph of your own (print(dataset.pipeline) shows this one, to begin with)"
_DISTORT = f".volume_perturb(…), .add_noise(…) or .map(…): {_OWN_GRAPH}"
UNUSED = {
    "raw_wav": Unused((True,), "for precomputed features begin a graph of your own: shards hold KEY.npy"),
    "feature_extraction_conf.feature_type": Unused(("fbank",), "use feats_type with mfcc_conf"),
    "feature_extraction_conf.using_pitch": Unused((False,), "pitch is not extracted"),
    "feature_dither": Unused((0,), "use fbank_conf.dither, or .map(…) in a graph of your own"),
    "spec_aug_conf.max_w": Unused((80, 5), "SpecAugment's masks are applied without warping"),
    "char": Unused((True,), "it belongs to the tokenizer: pass one of characters, or of words or pieces"),
    "spec_aug_conf.warp_for_time": Unused((False,), "SpecAugment's masks are applied without warping"),
    "wav_distortion_conf.wav_distortion_rate": Unused((0,), _DISTORT),
    "wav_distortion_conf.distortion_methods": Unused(([],), _DISTORT),
    "speaker": Unused((False,), "use speaker_conf.speaker_table_path"),
    "reverb_*": Unused((0, [], ""), f".reverberate(…): {_OWN_GRAPH}"),
    "noise_*": Unused((0, [], ""), f".add_noise(…): {_OWN_GRAPH}"),
}  # fmt: skip

# Where they belong
NEVER_READ = {
    "split_with_space": "it belongs to the tokenizer: uio.CharTokenizer(…, split_with_space=True)",
    "syncbn": "it belongs to the model",
}
