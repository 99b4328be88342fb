"""Words of other loaders, and what is said here instead: for errors, and for the page ``docs/elsewhere.md``.

The page's table is :func:`table`; ``.venv/bin/python -m uio_pipes.base.elsewhere docs/elsewhere.md`` renews it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from uio_pipes.base.checks import in_words, is_number, nearest

BATCHES = ("batch", "dynamic_batch", "bucket_batch")
BUDGETS = (*BATCHES, "sort", "filter")
FRAMES = 100  # frames of 10 ms in a second


class Word(NamedTuple):
    """A word of another library.

    Attributes:
        name: the word. library: whose it is.
        here: what is said here, as Markdown.
        calls: the calls that answer with it, if they are given it as a keyword, "from_…" for all sources; "Pipeline"
            for a method; "uio" for a name of the package; "output" for one of the batch.
        factor: of a budget, by which its value becomes that of ``max_frames``.
    """

    name: str
    library: str
    here: str
    calls: tuple[str, ...] = ()
    factor: int | None = None


_IN_PIPELINE = "`.batch(16)` or `.dynamic_batch(max_frames=12_000)` in the pipeline"
_ORDER = "`shuffle=True` of `uio.from_…` for the list, `.shuffle(1_500)` in the pipeline for utterances"
_SECONDS = "`max_frames` of `.dynamic_batch` or `.bucket_batch`, in frames of 10 ms and with padding: seconds × 100"
_DEALT = "not needed: the pipeline deals to ranks and workers (`.sharding_filter()` is in each `uio.from_…`)"
_LASTING = "not needed: with `steps_per_epoch=…` workers go on from epoch to epoch; otherwise each epoch starts them"

WORDS = (
    Word(
        "dataset",
        "DataLoader",
        "the pipeline: `uio.from_…(…)`; of a dataset of yours, `uio.from_iterable(…)`",
        ("Loader",),
    ),
    Word("batch_size", "DataLoader", _IN_PIPELINE, ("Loader", "from_…", *BATCHES[1:])),
    Word("shuffle", "DataLoader", _ORDER, ("Loader",)),
    Word("sampler", "DataLoader", f"order: {_ORDER}; a share of each source: `uio.mix(…)`", ("Loader",)),
    Word(
        "batch_sampler",
        "DataLoader",
        "`.bucket_batch(…)` or `.sort(500).dynamic_batch(…)` in the pipeline",
        ("Loader",),
    ),
    Word(
        "collate_fn",
        "DataLoader",
        "`.pad()` in the pipeline; a function of yours is `.pad(collate=…)`",
        ("Loader", "Pipeline"),
    ),
    Word("drop_last", "DataLoader", "`drop_last=True` of `.batch`, `.dynamic_batch` or `.bucket_batch`", ("Loader",)),
    Word(
        "padding_value, padding_side",
        "torch, Transformers",
        '`.pad(value={"feats": 0.0, "target": -100})`; padding is at the end',
        ("pad", "Loader"),
    ),
    Word("collate", "DataLoader", "`.pad()`; a function of yours is `.pad(collate=…)`", ("Pipeline",)),
    Word(
        "batch_first",
        "torch",
        "not needed: batches are (B, T, F); `.pad(transpose=True)` makes features (B, F, T)",
        ("pad",),
    ),
    Word(
        "attention_mask, return_attention_mask",
        "Transformers",
        '`.pad(mask=True, names={"feats_mask": "attention_mask"})`',
        ("pad",),
    ),
    Word(
        "labels",
        "Transformers",
        '`target`, before it gets another name: `.pad(value={"target": -100}, names={"target": "labels"})`',
        ("output",),
    ),
    Word(
        "input_features, input_values",
        "Transformers",
        'the outputs `feats`, `pcm`, before they get another name: `.pad(names={"feats": "input_features"})`',
        ("output",),
    ),
    Word("padding", "Transformers", "not needed: `.pad()` pads to the longest utterance of each batch", ("pad",)),
    Word(
        "pad_to_multiple_of, max_length",
        "Transformers",
        "not here: the longest of a batch says",
        ("pad",),
    ),
    Word("dtype", "torch", '`.pad(lengths="int64")` for lengths; features are float32', ("pad",)),
    Word("persistent_workers", "DataLoader", _LASTING, ("Loader",)),
    Word("in_order", "DataLoader", "not needed: the order of batches never depends on workers", ("Loader",)),
    Word("pin_memory_device", "DataLoader", "`uio.Loader(…, pin_memory=True)`, then `.to(device)`", ("Loader",)),
    Word("device", "trainers", "`for batch in uio.to_device(loader, device)`", ("Loader",)),
    Word(
        "epochs, num_epochs, max_epochs",
        "trainers",
        "`for epoch in range(epochs): loader.set_epoch(epoch)`",
        ("Loader",),
    ),
    Word("prefetch_factor", "DataLoader", "`uio.Loader(…, prefetch_factor=2)`, the same"),
    Word("prefetch", "webdataset, tf.data", "`uio.Loader(…, num_workers=4, prefetch_factor=2)`", ("Pipeline",)),
    Word("num_workers, pin_memory", "DataLoader", "`uio.Loader(…, num_workers=4, pin_memory=True)`, the same"),
    Word("worker_init_fn", "DataLoader", "not needed: draws depend on `seed`, epoch and utterance alone", ("Loader",)),
    Word(
        "generator",
        "DataLoader",
        "`uio.Loader(…, seed=777)`; a stage's function gets a generator as `rng`",
        ("Loader",),
    ),
    Word(
        "timeout", "DataLoader", "not needed: a worker that ends is named; remote reads have time limits", ("Loader",)
    ),
    Word(
        "multiprocessing_context",
        "DataLoader",
        "not needed: workers start as `multiprocessing.set_start_method` says",
        ("Loader",),
    ),
    Word("DataLoader", "torch", "`uio.Loader(pipeline, …)`", ("uio",)),
    Word(
        "IterableDataset, Dataset",
        "torch",
        "`pipeline.as_dataset()`, where a trainer brings its loader; of a dataset of yours, `uio.from_iterable(…)`",
        ("uio",),
    ),
    Word("DistributedSampler", "DataLoader", _DEALT),
    Word("num_replicas", "DistributedSampler", "`uio.Loader(…, rank=…, world_size=…)`", ("Loader",)),
    Word("max_duration", "Lhotse", _SECONDS, (*BATCHES, "sort", "Loader"), FRAMES),
    Word(
        "max_duration, max_seconds",
        "Lhotse, NeMo",
        "`.filter(max_frames=…)`, of each utterance, in frames of 10 ms: seconds × 100",
        ("filter",),
        FRAMES,
    ),
    Word(
        "max_cuts, max_batch_size",
        "Lhotse, NeMo",
        "`.batch(number)`; with buckets by length `.bucket_batch(bucket_batch_sizes=[…])`",
        (*BUDGETS, "Loader"),
    ),
    Word(
        "num_buckets",
        "Lhotse",
        "`.bucket_batch(num_buckets=…)`; `window=1_500` needs none",
        ("batch", "dynamic_batch", "Loader"),
    ),
    Word("quadratic_duration", "Lhotse", "`quadratic`, in frames of 10 ms: seconds × 100", BATCHES[1:]),
    Word(
        "buffer_size, shuffle_buffer_size",
        "Lhotse",
        "`.shuffle(size)`; of `bucket_batch`, `window=size`",
        (*BATCHES, "Loader"),
    ),
    Word(
        "duration_bins, bucket_duration_bins",
        "Lhotse, NeMo",
        "`bucket_boundaries` of `.bucket_batch`, in frames of 10 ms: seconds × 100; `num_buckets` finds them by itself",
        (*BATCHES, "Loader"),
    ),
    Word("DynamicBucketingSampler", "Lhotse", "`.bucket_batch(max_frames=…, window=1_500)`"),
    Word("CutSet", "Lhotse", '`uio.from_lhotse_cuts("cuts.jsonl.gz")`', ("uio",)),
    Word(
        "from_manifest, from_manifests",
        "Lhotse, NeMo",
        '`uio.from_lhotse_cuts("cuts.jsonl.gz")` or `uio.from_nemo("manifest.json")`',
        ("uio",),
    ),
    Word(
        "cut, trim, trim_to_supervisions",
        "Lhotse",
        "`start` and `end` of an utterance, in seconds; segments of a recording by `.segments()`; any piece by "
        "`.random_crop(…)`",
        ("Pipeline",),
    ),
    Word("factors, factor", "Lhotse, SpeechBrain", "`.speed_perturb(speeds=[0.9, 1.0, 1.1])`", ("speed_perturb",)),
    Word("CutSet.mux", "Lhotse", "`uio.mix({…}, weights=…)`"),
    Word("K2SpeechRecognitionDataset", "Lhotse", 'not needed: `.pad(keep=["txt"])` makes the batch'),
    Word("max_seconds", "NeMo, fairseq", _SECONDS, (*BATCHES, "sort", "Loader"), FRAMES),
    Word("batch_duration", "NeMo", _SECONDS, (*BATCHES, "sort", "Loader"), FRAMES),
    Word("min_duration", "NeMo", "`.filter(min_frames=…)`, in frames of 10 ms: seconds × 100", (*BUDGETS, "Loader")),
    Word(
        "max_tokens",
        "fairseq",
        "`.dynamic_batch(max_tokens=…)`, of labels, with padding; frames are `max_frames`",
        ("batch", "sort", "Loader"),
    ),
    Word(
        "batch_bins",
        "ESPnet",
        "`max_frames` of `.dynamic_batch` or `.bucket_batch`, padding included: bins ÷ values of a frame, such as 80",
        (*BUDGETS, "Loader"),
    ),
    Word("max_frames_in_batch", "WeNet", "`.dynamic_batch(max_frames=…)`, the same number", (*BUDGETS, "Loader")),
    Word("shuffle_size, sort_size", "WeNet", "`.shuffle(1_500)`, `.sort(500)`", ("Loader",)),
    Word(
        "hop_length", "librosa, torchaudio", "`frame_shift`, in ms: 160 samples at 16 kHz are 10.0", ("fbank", "mfcc")
    ),
    Word(
        "win_length",
        "librosa, torchaudio",
        "`frame_length`, in ms: 400 samples at 16 kHz are 25.0; of `log_mel_spectrogram`, `n_fft`, in samples",
        ("fbank", "mfcc", "log_mel_spectrogram"),
    ),
    Word("n_fft", "librosa, torchaudio", "`frame_length`, in ms; the FFT is the next power of two", ("fbank", "mfcc")),
    Word("WebDataset, from_webdataset", "webdataset", '`uio.from_shard_list(…, grouping="webdataset")`', ("uio",)),
    Word("split_by_node, split_by_worker", "webdataset", _DEALT),
    Word(
        "shardshuffle, resampled",
        "webdataset",
        "`uio.from_shard_list(…, shuffle=True)`; without an end `.repeat()`",
        ("Loader", "from_…"),
    ),
    Word("batched", "webdataset", "`.batch(16)`, and `.pad()` to make tensors", ("Pipeline",)),
    Word("decode", "webdataset", "`.decode_audio()`, before the features", ("Pipeline",)),
    Word("rename, to_tuple", "webdataset", "`fields=` of `uio.from_…` and `.pad(names=…)`", ("Pipeline",)),
    Word("with_epoch, with_length", "webdataset", "`uio.Loader(…, steps_per_epoch=…)`", ("Pipeline",)),
    Word("select", "webdataset", "`.filter(function)`", ("Pipeline",)),
    Word(
        "load_dataset, from_huggingface, from_hf, from_datasets, from_dataset",
        "datasets",
        '`uio.from_parquet("hf://datasets/…/*.parquet")`, or `uio.from_iterable(dataset, fields=…)`',
        ("uio",),
    ),
    Word("from_csv, from_tsv, from_pandas", "datasets", '`uio.from_table("train.tsv", fields=…)`', ("uio",)),
    Word("interleave_datasets, concatenate_datasets", "datasets", "`uio.mix({…}, weights=…)`", ("uio",)),
    Word("probabilities", "datasets", "`weights`, the same numbers", ("mix",)),
    Word(
        "stopping_strategy",
        "datasets",
        '`stop="first"` for `first_exhausted`, `stop="cycle"` for `all_exhausted`',
        ("mix", "interleave"),
    ),
    Word("cast_column", "datasets", "`.resample(16_000)`; audio is decoded by `.decode_audio()`", ("Pipeline",)),
    Word(
        "set_transform, with_format",
        "datasets",
        "`.map(function)`, where it stands; batches by `.pad()`",
        ("Pipeline",),
    ),
    Word("train_test_split", "datasets", "a list of files for each part", ("Pipeline",)),
)


def answer(call: str, name: str, value: object = None) -> str | None:
    """Return what is said here instead of the keyword ``name`` of ``call``; None if nobody says so elsewhere."""
    call = "from_…" if call.startswith("from_") else call
    for word in WORDS:
        if call in word.calls and name in word.name.split(", "):
            so = f", so max_frames={value * word.factor:.0f}" if word.factor and is_number(value) else ""  # type: ignore[operator]
            return f"instead of {name} of {word.library}, use here: {word.here}{so}"
    return None


def unexpected(call: str, given: Mapping[str, object], known: Iterable[str]) -> str:
    """Return what to say of the keywords that ``call`` does not take, in the order in which they were ``given``: what
    each is here, or the name that was meant."""
    names = list(known)
    strange = [name for name in given if name not in names]
    told = []
    for name in strange:
        if (here := answer(call, name, given[name])) is not None:
            told.append(f"; {here}")
        elif near := nearest(name, names):
            told.append(f". Did you mean {near!r}?" if len(strange) == 1 else f"; did you mean {near!r} by {name!r}?")
    return "".join(told)


def table() -> str:
    """Return the page's table."""
    cells = [f"| `{'`, `'.join(word.name.split(', '))}` | {word.library} | {word.here} |" for word in WORDS]
    return "\n".join(["| there | whose | here |", "|---|---|---|", *cells, ""])


def renewed(page: str) -> str:
    """Return the page with the table of today instead of its own."""
    head, _, rest = page.partition("| there |")
    return head + table() + rest[rest.index("\n\n") + 1 :]


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


Made = TypeVar("Made", bound=Callable[..., Any])


def understood(made: Made) -> Made:
    """Decorate a function, or a class: an unknown keyword is a TypeError that says what it is called here, or names the
    nearest known one."""
    if not isinstance(made, type):
        return _answering(made.__name__, made)  # type: ignore[return-value]
    made.__init__ = _answering(made.__name__, made.__init__)  # type: ignore[misc]
    return made


def _answering(call: str, function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    parameters = signature(function).parameters
    known = [name for name in parameters if name != "self"]
    by_name = [one.name for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
    by_place = len(parameters) - len(by_name)

    @wraps(function)
    def called(*args: Parameters.args, **given: Parameters.kwargs) -> Returned:
        if len(args) > by_place and by_name:
            told = f"; {answer('Loader', 'batch_size')}" if call == "Loader" else ""
            raise TypeError(f"{call}() takes its options by name, as in {by_name[0]}=…{told}")
        if strange := {name: value for name, value in given.items() if name not in known}:
            what = "an unexpected keyword argument" if len(strange) == 1 else "unexpected keyword arguments"
            hints = unexpected(call, strange, known) or f"; it takes {in_words(known)}"
            raise TypeError(f"{call}() got {what} {', '.join(map(repr, strange))}{hints}")
        return function(*args, **given)

    return called


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
