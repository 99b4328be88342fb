"""Hints for unknown names: the name used here for a term of another library, or the nearest known name.

The page ``docs/elsewhere.md`` has a row for each word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, ParamSpec, TypeVar

from uio_pipes.base.checks import in_words, is_number, nearest


class Word(NamedTuple):
    """A word of another library.

    Attributes:
        names: the word, and others for the same. library: whose it is.
        calls: the calls that answer with it, if they are given it as a keyword, "from_…" for all sources; "Pipeline"
            for a method; "uio" for a name of the package; "output" for one of the batch.
        seconds: whether it is a budget in seconds, of which ``max_frames`` has 100 times as many.
        here: what is said here, as Markdown.
    """

    names: list[str]
    library: str
    calls: list[str]
    seconds: bool
    here: str


# Of each library: names (calls) [in seconds]: what is said here
_WORDS = """
DataLoader
  dataset (Loader): the pipeline: `uio.from_…(…)`; for your own dataset, `uio.from_iterable(…)`
  batch_size (Loader, from_…, dynamic_batch, bucket_batch): `.batch(16)` or `.dynamic_batch(max_frames=12_000)` in the
    pipeline
  shuffle (Loader): `shuffle=True` of `uio.from_…` for the list, `.shuffle(1_500)` in the pipeline for utterances
  sampler (Loader): order: `shuffle=True` of `uio.from_…` for the list, `.shuffle(1_500)` in the pipeline for
    utterances; a share of each source: `uio.mix(…)`
  batch_sampler (Loader): `.bucket_batch(max_frames=…)` in the pipeline
  collate_fn (Loader, Pipeline): `.pad()` in the pipeline; your own function is `.pad(collate=…)`
  drop_last (Loader): `drop_last=True` of `.batch`, `.dynamic_batch` or `.bucket_batch`
  collate (Pipeline): `.pad()`; your own function is `.pad(collate=…)`
  persistent_workers (Loader): not needed: with `steps_per_epoch=…` workers go on from epoch to epoch; otherwise each
    epoch starts them
  in_order (Loader): not needed: the order of batches never depends on workers
  pin_memory_device (Loader): `uio.Loader(…, pin_memory=True)`, then `.to(device)`
  prefetch_factor: `uio.Loader(…, prefetch_factor=2)`, the same
  num_workers, pin_memory: `uio.Loader(…, num_workers=4, pin_memory=True)`, the same
  worker_init_fn (Loader): not needed: draws depend on `seed`, epoch and utterance alone
  generator (Loader): `uio.Loader(…, seed=777)`; a stage's function gets a generator as `rng`
  timeout (Loader): `uio.Loader(…, stall_limit=600)` for what hangs; a dead worker is reported at once
  multiprocessing_context (Loader): not needed: workers start as `multiprocessing.set_start_method` says
  DistributedSampler: not needed: the pipeline distributes data to ranks and workers (`.sharding_filter()` is in each
    `uio.from_…`)
torch, Transformers
  padding_value, padding_side (pad, Loader): `.pad(value={"feats": 0.0, "target": -100})`; padding is at the end
torch
  batch_first (pad): not needed: batches are (B, T, F); `.pad(transpose=True)` makes features (B, F, T)
  dtype (pad): `.pad(lengths="int64")` for lengths; features are float32
  DataLoader (uio): `uio.Loader(pipeline, …)`
  IterableDataset, Dataset (uio): `pipeline.as_dataset()`, where a trainer brings its loader; for your own dataset,
    `uio.from_iterable(…)`
Transformers
  attention_mask, return_attention_mask (pad): `.pad(mask=True, names={"feats_mask": "attention_mask"})`
  labels (output): `target`, before it gets another name: `.pad(value={"target": -100}, names={"target": "labels"})`
  input_features, input_values (output): the outputs `feats`, `pcm`, before they get another name: `.pad(names={"feats":
    "input_features"})`
  padding (pad): not needed: `.pad()` pads to the longest utterance of each batch
  pad_to_multiple_of, max_length (pad): not available: batches are padded to their longest utterance
trainers
  device (Loader): `for batch in uio.to_device(loader, device)`
  epochs, num_epochs, max_epochs (Loader): `for epoch in range(epochs): loader.set_epoch(epoch)`
webdataset, tf.data
  prefetch (Pipeline): `uio.Loader(…, num_workers=4, prefetch_factor=2)`
DistributedSampler
  num_replicas (Loader): `uio.Loader(…, rank=…, world_size=…)`
Lhotse
  max_duration (batch, dynamic_batch, bucket_batch, sort, Loader) in seconds: `max_frames` of `.dynamic_batch` or
    `.bucket_batch`, in frames of 10 ms and with padding: seconds × 100
  num_buckets (batch, dynamic_batch, Loader): `.bucket_batch(num_buckets=…)`; `max_frames=…` alone needs none
  quadratic_duration (dynamic_batch, bucket_batch): `quadratic`, in frames of 10 ms: seconds × 100
  buffer_size, shuffle_buffer_size (batch, dynamic_batch, bucket_batch, Loader): `.shuffle(size)`; of `bucket_batch`,
    `window=size`
  DynamicBucketingSampler: `.bucket_batch(max_frames=…)`
  CutSet (uio): `uio.from_lhotse_cuts("cuts.jsonl.gz")`
  cut, trim, trim_to_supervisions (Pipeline): `start` and `end` of an utterance, in seconds; segments of a recording by
    `.segments()`; any piece by `.random_crop(…)`
  CutSet.mux: `uio.mix({…}, weights=…)`
  K2SpeechRecognitionDataset: not needed: `.pad(keep=["txt"])` makes the batch
Lhotse, NeMo
  max_duration, max_seconds (filter) in seconds: `.filter(max_frames=…)`, of each utterance, in frames of 10 ms: seconds
    × 100
  max_cuts, max_batch_size (batch, dynamic_batch, bucket_batch, sort, filter, Loader): `.batch(number)`; with buckets by
    length `.bucket_batch(bucket_batch_sizes=[…])`
  duration_bins, bucket_duration_bins (batch, dynamic_batch, bucket_batch, Loader): `bucket_boundaries` of
    `.bucket_batch`, in frames of 10 ms: seconds × 100; `num_buckets` finds them by itself
  from_manifest, from_manifests (uio): `uio.from_lhotse_cuts("cuts.jsonl.gz")` or `uio.from_nemo("manifest.json")`
Lhotse, SpeechBrain
  factors, factor (speed_perturb): `.speed_perturb(speeds=[0.9, 1.0, 1.1])`
NeMo, fairseq
  max_seconds (batch, dynamic_batch, bucket_batch, sort, Loader) in seconds: `max_frames` of `.dynamic_batch` or
    `.bucket_batch`, in frames of 10 ms and with padding: seconds × 100
NeMo
  batch_duration (batch, dynamic_batch, bucket_batch, sort, Loader) in seconds: `max_frames` of `.dynamic_batch` or
    `.bucket_batch`, in frames of 10 ms and with padding: seconds × 100
  min_duration (batch, dynamic_batch, bucket_batch, sort, filter, Loader): `.filter(min_frames=…)`, in frames of 10 ms:
    seconds × 100
fairseq
  max_tokens (batch, sort, Loader): `.dynamic_batch(max_tokens=…)`, of labels, with padding; frames are `max_frames`
ESPnet
  batch_bins (batch, dynamic_batch, bucket_batch, sort, filter, Loader): `max_frames` of `.dynamic_batch` or
    `.bucket_batch`, padding included: bins ÷ values of a frame, such as 80
WeNet
  max_frames_in_batch (batch, dynamic_batch, bucket_batch, sort, filter, Loader): `.dynamic_batch(max_frames=…)`, the
    same number
  shuffle_size, sort_size (Loader): `.shuffle(1_500)`, `.sort(500)`
librosa, torchaudio
  hop_length (fbank, mfcc): `frame_shift`, in ms: 160 samples at 16 kHz are 10.0
  win_length (fbank, mfcc, log_mel_spectrogram): `frame_length`, in ms: 400 samples at 16 kHz are 25.0; of
    `log_mel_spectrogram`, `n_fft`, in samples
  n_fft (fbank, mfcc): `frame_length`, in ms; the FFT is the next power of two
webdataset
  WebDataset, from_webdataset (uio): `uio.from_shard_list(…, grouping="webdataset")`
  split_by_node, split_by_worker: not needed: the pipeline distributes data to ranks and workers (`.sharding_filter()`
    is in each `uio.from_…`)
  shardshuffle (Loader, from_…): `uio.from_shard_list(…, shuffle=True)`
  resampled (Loader): `uio.from_shard_list(…, resampled=True)`
  batched (Pipeline): `.batch(16)`, and `.pad()` to make tensors
  decode (Pipeline): `.decode_audio()`, before the features
  rename, to_tuple (Pipeline): `fields=` of `uio.from_…` and `.pad(names=…)`
  with_epoch, with_length (Pipeline): `uio.Loader(…, steps_per_epoch=…)`
  select (Pipeline): `.filter(function)`
datasets
  load_dataset, from_huggingface, from_hf, from_datasets, from_dataset (uio):
    `uio.from_parquet("hf://datasets/…/*.parquet")`, or `uio.from_iterable(dataset, fields=…)`
  from_csv, from_tsv, from_pandas (uio): `uio.from_table("train.tsv", fields=…)`
  interleave_datasets, concatenate_datasets (uio): `uio.mix({…}, weights=…)`
  probabilities (mix): `weights`, the same numbers
  stopping_strategy (mix, interleave): `stop="first"` for `first_exhausted`, `stop="cycle"` for `all_exhausted`
  cast_column (Pipeline): `.resample(16_000)`; audio is decoded by `.decode_audio()`
  set_transform, with_format (Pipeline): `.map(function)`, where it stands; batches by `.pad()`
  train_test_split (Pipeline): `.split(0.95)`, by a hash of the key
"""
_WORD = re.compile(r"(?:^|\n)  (\w[\w., ]*?)(?: \(([^)]*)\))?( in seconds)?:\s+(.*(?:\n    .*)*)")
WORDS = tuple(
    Word(names.split(", "), library, calls.split(", "), bool(seconds), re.sub(r"\n +", " ", here))
    for library, words in re.findall(r"\n(\w.*)((?:\n  .*)+)", _WORDS)
    for names, calls, seconds, here in _WORD.findall(words)
)


def answer(call: str, name: str, value: object = None) -> str | None:
    """Return what to use instead of the keyword ``name`` of ``call``; None if no other library has it."""
    call = "from_…" if call.startswith("from_") else call
    for word in WORDS:
        if call in word.calls and name in word.names:
            so = f", so max_frames={value * 100:.0f}" if word.seconds and is_number(value) else ""  # type: ignore[operator]
            return f"instead of {name} of {word.library}, use here: {word.here}{so}"
    return None


def unexpected(call: str, given: Mapping[str, object], known: Iterable[str]) -> str:
    """Return what to say of the keywords that ``call`` does not take, in the order in which they were ``given``: what
    each is here, or the name that was meant."""
    names = list(known)
    strange = [name for name in given if name not in names]
    hints = []
    for name in strange:
        if (here := answer(call, name, given[name])) is not None:
            hints.append(f"; {here}")
        elif near := nearest(name, names):
            hints.append(f". Did you mean {near!r}?" if len(strange) == 1 else f"; did you mean {near!r} by {name!r}?")
    return "".join(hints)


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
T = TypeVar("T", bound=Callable[..., Any])


def keyword_hints(made: T) -> T:
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
            hint = f"; {answer('Loader', 'batch_size')}" if call == "Loader" else ""
            raise TypeError(f"{call}() takes its options by name, as in {by_name[0]}=…{hint}")
        if strange := {name: value for name, value in given.items() if name not in known}:
            what = "an unexpected keyword argument" if len(strange) == 1 else "unexpected keyword arguments"
            hints = unexpected(call, strange, known) or f"; it takes {in_words(known)}"
            raise TypeError(f"{call}() got {what} {', '.join(map(repr, strange))}{hints}")
        return function(*args, **given)

    return called
