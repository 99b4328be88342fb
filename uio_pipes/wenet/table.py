"""WeNet's ``dataset_conf`` as a table: every key, the kind of its value, its default, and its stage.

``LIST_STEPS`` are for the lines of the data list, ``STEPS`` for utterances, in the order in which WeNet applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_number, is_whole


class ValueKind(NamedTuple):
    """A kind of values: its name in messages, and the check whether a value fits."""

    what: str
    fits: Callable[[object], bool]


def _list_of(kind: ValueKind) -> ValueKind:
    return ValueKind(
        f"a list, each of it {kind.what}", lambda v: isinstance(v, (list, tuple)) and all(map(kind.fits, v))
    )


def _one_of(*names: str) -> ValueKind:
    return ValueKind(f"one of {', '.join(names)}", lambda v: v in names)


WHOLE = ValueKind("a whole number", is_whole)
ROUNDS = ValueKind("1 or more, or -1 (endless)", lambda v: is_whole(v) and (v == -1 or v >= 1))  # type: ignore[operator]
NUMBER = ValueKind("a number", is_number)
FLAG = ValueKind("true or false", lambda v: isinstance(v, bool))
TEXT = ValueKind("a text", lambda v: isinstance(v, str))


class Key(NamedTuple):
    """A key (``block.key``), the kind of its value, its default, and the argument of the stage that it sets."""

    name: str
    kind: ValueKind
    default: Any
    argument: str = ""


class StageKeys(NamedTuple):
    """A stage and its keys. It is applied if ``switch`` has the value ``on``, and always without a switch; but not if
    the argument ``needs`` has the value ``idle``, with which it would do nothing."""

    stage: str
    keys: tuple[Key, ...] = ()
    switch: Key | None = None
    on: Any = True
    needs: str = ""
    idle: Any = None


_FEATURES = Key("feats_type", _one_of("fbank", "mfcc", "log_mel_spectrogram"), "fbank")
_BATCHES = Key("batch_conf.batch_type", _one_of("static", "dynamic", "bucket"), "static")


def _kaldi(block: str) -> tuple[Key, ...]:
    return (
        Key(f"{block}.num_mel_bins", WHOLE, 23, "num_mel_bins"),
        Key(f"{block}.frame_length", NUMBER, 25, "frame_length"),
        Key(f"{block}.frame_shift", NUMBER, 10, "frame_shift"),
        Key(f"{block}.dither", NUMBER, 0.0, "dither"),
        Key(f"{block}.window_type", TEXT, "povey", "window_type"),
    )


LIST_STEPS = (
    StageKeys(
        "shuffle",
        (Key("list_shuffle_conf.shuffle_size", WHOLE, None, "shuffle_size"),),
        Key("list_shuffle", FLAG, True),
        needs="shuffle_size",  # without one, list_files shuffles the whole list
    ),
    StageKeys("repeat", (Key("cycle", ROUNDS, 1, "times"),), needs="times", idle=1),
)

STEPS = (
    StageKeys("decode_audio", (Key("singal_channel_conf.channel", WHOLE, 0, "channel"),)),
    StageKeys("speaker", (Key("speaker_conf.speaker_table_path", TEXT, None, "table"),), needs="table"),
    StageKeys("tokenize", needs="tokenizer"),
    StageKeys(
        "filter",
        (
            Key("filter_conf.max_length", NUMBER, 10240, "max_frames"),
            Key("filter_conf.min_length", NUMBER, 10, "min_frames"),
            Key("filter_conf.token_max_length", WHOLE, 200, "token_max_length"),
            Key("filter_conf.token_min_length", WHOLE, 1, "token_min_length"),
            Key("filter_conf.min_output_input_ratio", NUMBER, 0.0005, "min_output_input_ratio"),
            Key("filter_conf.max_output_input_ratio", NUMBER, 1, "max_output_input_ratio"),
        ),
    ),
    StageKeys("resample", (Key("resample_conf.resample_rate", WHOLE, 16000, "resample_rate"),)),
    StageKeys(
        "speed_perturb",
        (Key("speeds", _list_of(NUMBER), (0.9, 1.0, 1.1), "speeds"),),
        Key("speed_perturb", FLAG, False),
    ),
    StageKeys("fbank", _kaldi("fbank_conf"), _FEATURES, "fbank"),
    StageKeys(
        "mfcc",
        (
            *_kaldi("mfcc_conf"),
            Key("mfcc_conf.num_ceps", WHOLE, 40, "num_ceps"),
            Key("mfcc_conf.high_freq", NUMBER, 0, "high_freq"),
            Key("mfcc_conf.low_freq", NUMBER, 20, "low_freq"),
        ),
        _FEATURES,
        "mfcc",
    ),
    StageKeys(
        "log_mel_spectrogram",
        (
            Key("log_mel_spectrogram_conf.n_fft", WHOLE, 400, "n_fft"),
            Key("log_mel_spectrogram_conf.hop_length", WHOLE, 160, "hop_length"),
            Key("log_mel_spectrogram_conf.num_mel_bins", WHOLE, 80, "num_mel_bins"),
            Key("log_mel_spectrogram_conf.padding", WHOLE, 0, "padding"),
            Key("log_mel_spectrogram_conf.pad_or_trim", FLAG, False, "pad_or_trim"),
            Key("log_mel_spectrogram_conf.max_duration", NUMBER, 30, "max_duration"),
        ),
        _FEATURES,
        "log_mel_spectrogram",
    ),
    StageKeys(
        "spec_aug",
        (
            Key("spec_aug_conf.num_t_mask", WHOLE, 2, "num_t_mask"),
            Key("spec_aug_conf.num_f_mask", WHOLE, 2, "num_f_mask"),
            Key("spec_aug_conf.max_t", WHOLE, 50, "max_t"),
            Key("spec_aug_conf.max_f", WHOLE, 10, "max_f"),
        ),
        Key("spec_aug", FLAG, True),
    ),
    StageKeys(
        "spec_sub",
        (Key("spec_sub_conf.max_t", WHOLE, 20, "max_t"), Key("spec_sub_conf.num_t_sub", WHOLE, 3, "num_t_sub")),
        Key("spec_sub", FLAG, False),
    ),
    StageKeys("spec_trim", (Key("spec_trim_conf.max_t", WHOLE, 20, "max_t"),), Key("spec_trim", FLAG, False)),
    StageKeys("language", (Key("language_conf.limited_langs", _list_of(TEXT), ("zh", "en"), "limited_langs"),)),
    StageKeys("shuffle", (Key("shuffle_conf.shuffle_size", WHOLE, 1500, "shuffle_size"),), Key("shuffle", FLAG, True)),
    StageKeys("sort", (Key("sort_conf.sort_size", WHOLE, 500, "sort_size"),), Key("sort", FLAG, True)),
    StageKeys("batch", (Key("batch_conf.batch_size", WHOLE, 16, "batch_size"),), _BATCHES, "static"),
    StageKeys(
        "dynamic_batch", (Key("batch_conf.max_frames_in_batch", WHOLE, 12000, "max_frames"),), _BATCHES, "dynamic"
    ),
    StageKeys(
        "bucket_batch",
        (
            Key("batch_conf.bucket_boundaries", _list_of(WHOLE), None, "bucket_boundaries"),
            Key("batch_conf.bucket_batch_sizes", _list_of(WHOLE), None, "bucket_batch_sizes"),
        ),
        _BATCHES,
        "bucket",
    ),
)

_ALL = (*LIST_STEPS, *STEPS)
_SWITCHES = [step.switch for step in _ALL if step.switch is not None]
KEYS = {key.name: key for key in (*_SWITCHES, *(key for step in _ALL for key in step.keys))}
