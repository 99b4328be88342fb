"""WeNet's datasets: uses its lists, tokenizers and ``dataset_conf``, and gives the batches that its trainer expects.

``dataset_conf`` is a table here: every key, the kind of its value, its default and its stage. ``LIST_STEPS`` are for
the lines of the data list, ``STEPS`` for utterances, in the order in which WeNet applies them. Then come the keys of
older configurations: those that are still applied, and what to use instead of the others; and keys that WeNet never
reads, though its configurations have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_number, is_whole, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.integrations.torch_loaders import PipelineDataset
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.lists import list_files
from uio_pipes.tokenizers import Tokenizer


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


def _keys(block: str, kind: ValueKind, **defaults: Any) -> tuple[Key, ...]:
    """Return keys of a block that set the arguments of the same names."""
    return tuple(Key(f"{block}.{name}", kind, default, name) for name, default in defaults.items())


def _kaldi(block: str) -> tuple[Key, ...]:
    return (
        *_keys(block, WHOLE, num_mel_bins=23),
        *_keys(block, NUMBER, frame_length=25, frame_shift=10, dither=0.0),
        *_keys(block, TEXT, window_type="povey"),
    )


LIST_STEPS = (
    StageKeys(
        "shuffle",
        _keys("list_shuffle_conf", WHOLE, shuffle_size=None),
        Key("list_shuffle", FLAG, True),
        needs="shuffle_size",  # without one, list_files shuffles the whole list
    ),
    StageKeys("repeat", (Key("cycle", ROUNDS, 1, "times"),), needs="times", idle=1),
)

_LOG_MEL = "log_mel_spectrogram_conf"
STEPS = (
    StageKeys("decode_audio", _keys("singal_channel_conf", WHOLE, channel=0)),
    StageKeys("speaker", (Key("speaker_conf.speaker_table_path", TEXT, None, "table"),), needs="table"),
    StageKeys("tokenize", needs="tokenizer"),
    StageKeys(
        "filter",
        (
            Key("filter_conf.max_length", NUMBER, 10240, "max_frames"),
            Key("filter_conf.min_length", NUMBER, 10, "min_frames"),
            *_keys("filter_conf", WHOLE, token_max_length=200, token_min_length=1),
            *_keys("filter_conf", NUMBER, min_output_input_ratio=0.0005, max_output_input_ratio=1),
        ),
    ),
    StageKeys("resample", _keys("resample_conf", WHOLE, resample_rate=16000)),
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
            *_keys("mfcc_conf", WHOLE, num_ceps=40),
            *_keys("mfcc_conf", NUMBER, high_freq=0, low_freq=20),
        ),
        _FEATURES,
        "mfcc",
    ),
    StageKeys(
        "log_mel_spectrogram",
        (
            *_keys(_LOG_MEL, WHOLE, n_fft=400, hop_length=160, num_mel_bins=80, padding=0),
            *_keys(_LOG_MEL, FLAG, pad_or_trim=False),
            *_keys(_LOG_MEL, NUMBER, max_duration=30),
        ),
        _FEATURES,
        "log_mel_spectrogram",
    ),
    StageKeys(
        "spec_aug",
        _keys("spec_aug_conf", WHOLE, num_t_mask=2, num_f_mask=2, max_t=50, max_f=10),
        Key("spec_aug", FLAG, True),
    ),
    StageKeys("spec_sub", _keys("spec_sub_conf", WHOLE, max_t=20, num_t_sub=3), Key("spec_sub", FLAG, False)),
    StageKeys("spec_trim", _keys("spec_trim_conf", WHOLE, max_t=20), Key("spec_trim", FLAG, False)),
    StageKeys("language", _keys("language_conf", _list_of(TEXT), limited_langs=("zh", "en"))),
    StageKeys("shuffle", _keys("shuffle_conf", WHOLE, shuffle_size=1500), Key("shuffle", FLAG, True)),
    StageKeys("sort", _keys("sort_conf", WHOLE, sort_size=500), Key("sort", FLAG, True)),
    StageKeys("batch", _keys("batch_conf", WHOLE, batch_size=16), _BATCHES, "static"),
    StageKeys(
        "dynamic_batch", (Key("batch_conf.max_frames_in_batch", WHOLE, 12000, "max_frames"),), _BATCHES, "dynamic"
    ),
    StageKeys(
        "bucket_batch",
        _keys("batch_conf", _list_of(WHOLE), bucket_boundaries=None, bucket_batch_sizes=None),
        _BATCHES,
        "bucket",
    ),
)

_ALL = (*LIST_STEPS, *STEPS)
_SWITCHES = [step.switch for step in _ALL if step.switch is not None]
KEYS = {key.name: key for key in (*_SWITCHES, *(key for step in _ALL for key in step.keys))}


class Unused(NamedTuple):
    """An older key that has no effect here: the values that are accepted, and what to do for others."""

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

logger = logging.getLogger("uio_pipes")

_BLOCKS = {name.split(".")[0] for name in (*KEYS, *RENAMED, *UNUSED) if "." in name}


def read_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every key in the table, given or default. Keys that WeNet never reads are named in the log.

    Raises: PipelineError if a key is unknown, given twice or no longer applied, or has a value of the wrong kind.
    """
    if not isinstance(conf, Mapping):
        raise PipelineError(f"conf must be the dataset_conf block of a WeNet YAML, as a dict, not {conf!r}")
    values = {name: key.default for name, key in KEYS.items()}
    given: dict[str, str] = {}
    for name, value in _flat(conf):
        if name in NEVER_READ:
            if value:
                logger.warning("dataset_conf.%s: %r is ignored, as WeNet does; %s", name, value, NEVER_READ[name])
            continue
        unused = next((u for pattern, u in UNUSED.items() if fnmatchcase(name, pattern)), None)
        if unused is not None:
            if value is not None and value not in unused.allowed:
                raise PipelineError(f"dataset_conf.{name}: {value!r} is not supported; {unused.remedy}")
            continue
        target = RENAMED.get(name, name)
        if target not in KEYS:
            raise PipelineError(_unknown(name, conf))
        if target in given:
            raise PipelineError(f"dataset_conf has both {given[target]} and {name}, which mean the same; keep {target}")
        given[target] = name
        kind = KEYS[target].kind
        if not kind.fits(value):
            raise PipelineError(f"dataset_conf.{name} must be {kind.what}, not {value!r}{_hint(value)}")
        values[target] = value
    return values


def _hint(value: object) -> str:
    """Return a hint if ``value`` was meant as a number: for YAML 1.1, 1e-3 is a text."""
    try:
        number = float(value) if isinstance(value, str) and "e" in value.lower() else None
    except ValueError:
        number = None
    return "" if number is None else "; YAML takes it for a text: write it with a point, as in 1.0e-3"


def _flat(conf: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield keys with their blocks (``fbank_conf.dither``), and their values. A known block may be empty."""
    for name, value in conf.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", v) for inner, v in value.items())
            if name not in _BLOCKS and not value:
                yield str(name), value
        elif name not in _BLOCKS:
            yield str(name), value
        elif value is not None:
            inner = [known.split(".")[1] for known in KEYS if known.startswith(f"{name}.")]
            raise PipelineError(f"dataset_conf.{name} must be a block of keys ({', '.join(inner)}), not {value!r}")


def _unknown(name: str, conf: Mapping[str, Any]) -> str:
    if "dataset_conf" in conf:
        return "conf is a whole WeNet YAML; pass its block conf['dataset_conf']"
    likeness = {known: _likeness(name, known) for known in (*KEYS, *RENAMED, *NEVER_READ)}
    best = max(likeness.values())
    nearest = dict.fromkeys(RENAMED.get(known, known) for known, alike in likeness.items() if alike == best)
    return f"dataset_conf has no key {name}; the nearest is {' or '.join(nearest)}"


def _likeness(name: str, known: str) -> float:
    """Return how alike the whole names are, or their keys without the blocks if these are more alike."""
    whole = SequenceMatcher(None, name, known).ratio()
    return max(whole, SequenceMatcher(None, name.split(".")[-1], known.split(".")[-1]).ratio() - 0.05)


@keyword_hints
def wenet_dataset(
    data_type: str,
    data_list: Any,
    tokenizer: Tokenizer | Callable[[str], Any] | None,
    conf: Mapping[str, Any],
    partition: bool = True,
) -> PipelineDataset:
    """Make WeNet's dataset from a data list; its trainer gives it to ``DataLoader(dataset, batch_size=None, …)``.

    The result's attribute ``pipeline`` is the graph: print it, or run it by ``uio.Loader(dataset.pipeline)``, which can
    be stopped and resumed at any batch.

    Args:
        data_type: "raw" (a list of JSON objects) or "shard" (a list of tar files).
        data_list: a data list, as for :func:`list_files`.
        tokenizer: a tokenizer of this package or of WeNet, or a function of the text; None for no labels, as in WeNet's
            self-supervised training: utterances then need no ``txt``.
        conf: the ``dataset_conf`` block of a WeNet YAML. Stages are applied in WeNet's order, with its defaults.
        partition: False gives every rank everything, as for validation. Default: True.

    Raises:
        PipelineError: a key is unknown (the message names the nearest known one), or has a value of the wrong kind.
    """
    require(
        data_type in ("raw", "shard"), "wenet_dataset", "data_type must be 'raw' or 'shard'", data_type, "see above"
    )
    values = read_conf(conf)
    whole = values["list_shuffle"] and values["list_shuffle_conf.shuffle_size"] is None
    pipeline = apply_steps(list_files(data_list, shuffle=whole), LIST_STEPS, values).sharding_filter()
    text = None if tokenizer is None else "txt"
    pipeline = (
        pipeline.load_from_raw(text=text) if data_type == "raw" else pipeline.open_files().load_from_tar(text=text)
    )
    options = {"tokenize": {"tokenizer": tokenizer}} | ({} if text else {"language": {"needs_text": False}})
    pipeline = apply_steps(pipeline, STEPS, values, **options)
    return pipeline.pad(pcm=True).as_dataset(partition=partition)


def apply_steps(
    pipeline: Pipeline, steps: Iterable[StageKeys], values: Mapping[str, Any], **given: dict[str, Any]
) -> Pipeline:
    """Return ``pipeline`` with the ``steps`` that the values switch on. ``given``: arguments that no key has."""
    for step in steps:
        arguments = {key.argument: values[key.name] for key in step.keys} | given.get(step.stage, {})
        on = step.switch is None or values[step.switch.name] == step.on
        if on and not (step.needs and arguments[step.needs] == step.idle):
            try:
                pipeline = getattr(pipeline, step.stage)(**arguments)
            except PipelineError as error:
                keys = ", ".join(key.name for key in step.keys)
                raise PipelineError(f"dataset_conf ({keys}): {error}" if keys else str(error)) from error
    return pipeline
