"""``pad``: makes the tensors of a batch. Here everything deferred is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from uio_pipes.base.checks import check_names, is_whole, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.chain import audio_names, recordings
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import dtype_of, realize
from uio_pipes.core.roles import Flow, check_there
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, one_of
from uio_pipes.stages.batches.chunk_rows import LANE, ChunkRows
from uio_pipes.stages.batches.rows import (
    LAYOUTS,
    PADDED,
    AudioRow,
    Outputs,
    PaddedRows,
    check_kept,
    check_outputs,
    mono,
    odd_ones,
    together,
    waveform,
)

IGNORE = -1  # WeNet's padding of targets
NO_LOSS = -100  # torch's, in the field ``labels`` of conversations
_OF_BATCH = ("keys", "feats", "feats_lengths", "pcm", "pcm_length", "target", "target_lengths", "langs", "tasks")
_MADE = frozenset([*_OF_BATCH, "wav", "feat", "label"])  # names that ``keep`` cannot have

ORIGIN = "__origin__"  # a field to keep that every utterance has: where it is in the list
LONGEST, KEPT = ORDERS = "longest", "kept"

Collate = Callable[[list[Sample]], dict[str, Any]]


@dataclass(frozen=True)
class Pad(Flow):
    """Make the padded batch that a model takes, longest utterance first, with WeNet's names. Decoding happens here.

    A dict of ``keys`` (list of str); ``feats`` (B, T, F) float32, padded by 0, or if they are whole numbers, such as
    codes, int64, padded by -1, and ``feats_lengths`` (B,) int32; if there are no features, ``pcm`` (B, S) float32, or
    (B, C, S) of audio with several channels, and ``pcm_length`` (B,) int32 instead; if there are labels,
    ``target`` (B, U) int64, padded by -1, and ``target_lengths`` (B,) int32, or, if each has one number as its
    ``label`` (a class), ``label`` (B,) int64 instead; and if all utterances have them, ``speaker``, numbers (B,) int32
    or a list of names, and the lists ``langs`` and ``tasks``. Each stream that a stage works on (``of="prompt"``)
    comes in the same way, as ``prompt_feats``, ``prompt_pcm`` or ``prompt_target`` with its lengths. If utterances have
    several recordings there (lists), their rows come one after the other, and ``prompt_counts`` (B,) says how many each
    has.

    The audio of a batch has one rate. Utterances of another rate than most of their batch (of equally many, than the
    lower) are the failure ``mixed_rates``: put ``.resample(16_000)`` before the features. Precomputed features have
    no rate.

    Args:
        pcm: whether to have the waveforms as ``pcm`` although there are features. Default: False.
        keep: names of other fields that the batch has, too. If all utterances have numbers there, they are a tensor
            (B,); if arrays (T,) or (T, K), such as the codes of a codec, they are padded (floats by 0, whole numbers
            by -1, ``labels`` by -100) and have ``NAME_lengths``; and otherwise, as texts, a list, with None for an
            utterance without such a field. With "speaker", there is one even if some lack it. Default: (), none.
        layout: "padded"; "ragged", lists of tensors; or "nested", torch's nested tensors. Default: "padded".
        collate: a function that makes the batch, a dict, of the list of finished utterances instead; they come longest
            first. Default: None.
        value: what features are padded with; or a mapping with the padding of any outputs, such as
            ``{"feats": -11.5, "target": -100}``. Default: 0.0, and for other outputs as said above.
        mask: whether to have ``feats_mask``, ``pcm_mask``, ``target_mask``, … (B, T) bool, true where there is no
            padding. Default: False.
        names: new names of outputs, by those above, and None for outputs to leave out, as in
            ``{"feats": "input_features", "target": "labels", "keys": None}``. Default: None, all as above.
        order: "longest" utterance first, or "kept", as they came. Default: "longest".
        lengths: type of all lengths, "int32" or "int64". Default: "int32".
        transpose: whether features are (B, F, T) instead of (B, T, F), as Hugging Face's Whisper takes them; or the
            outputs that are to be so, as ["feats", "loss"]. Default: False.
    """

    name: ClassVar[str] = "pad"
    takes: ClassVar[tuple[str, ...]] = ("batch",)
    gives: ClassVar[str] = "padded batch"
    note: ClassVar[str] = "makes the batch: decoding and features happen here"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.ON_TENSORS | Trait.ONE_RATE

    pcm: bool = False
    keep: Sequence[str] = ()
    layout: str = one_of(LAYOUTS, PADDED, "padded tensors are usual")
    collate: Collate | None = None
    value: float | Mapping[str, float] = field(default=0.0, hash=False)
    mask: bool = False
    names: Mapping[str, str | None] | None = field(default=None, hash=False)
    order: str = one_of(ORDERS, LONGEST, "kept leaves utterances as they came")
    lengths: Literal["int32", "int64"] = "int32"
    transpose: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep != ():
            check_names(self.name, "keep", self.keep)
            object.__setattr__(self, "keep", tuple(self.keep))
        if not isinstance(self.transpose, bool):
            check_names(self.name, "transpose", self.transpose)
            object.__setattr__(self, "transpose", tuple(self.transpose))
        rule = "keep must not name fields that are always in the batch"
        remedy = "waveforms are pcm (beside features with pcm=True), labels are target; rename a field of your own"
        require(_MADE.isdisjoint(self.keep), self.name, rule, self.keep, remedy)
        ok = self.collate is None or callable(self.collate)
        require(ok, self.name, "collate must be a function of a list of utterances", self.collate, "give a function")
        check_outputs(self.name, self.value, self.names, self.lengths, self.keep)
        for name, padding in self.value.items() if isinstance(self.value, Mapping) else ():
            _check_whole(name, padding, name.rpartition("_")[2] == "target" and name not in self.keep)
        sentence = f"mask and transpose cannot be combined with layout={self.layout!r}, which has no padding"
        refuse(self.layout != PADDED and (self.mask or self.transpose), self.name, sentence, "leave them out")
        mine = ("collate", "order")
        others = [f.name for f in fields(self) if f.name not in mine and getattr(self, f.name) != f.default]
        sentence = f"collate makes the whole batch, so {', '.join(others)} would do nothing"
        refuse(self.collate is not None and others, self.name, sentence, "leave out these, or collate")

    @property
    def outputs(self) -> Outputs:
        return Outputs(self.value, self.mask, self.names, self.lengths, self.transpose)

    def check(self, before: Sequence[Stage]) -> None:
        check_there(self.name, {*self.keep} - {ORIGIN}, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _PadNode(source, lane, self)


class _PadNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Pad) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage

    def next(self) -> Any:
        samples: list[Sample] = self.source.next()
        if self.lane.mode.skimming:
            return samples
        if isinstance(samples, ChunkRows):
            self.lane.ledger.delivered(samples.frames, padded=len(samples) * max(samples.frames, default=0))
            if not samples or self.stage.collate is not None:
                return _collated(self.stage.collate, [*samples])
            batch = _Batch(replace(self.stage, keep=tuple(dict.fromkeys((*self.stage.keep, *samples.kept)))), samples)
            for chunk in samples:
                batch.add(chunk.fields)
            return batch.made([*range(len(samples))]) | {LANE: samples[0].fields[LANE]}
        collate, batch = self.stage.collate, _Batch(self.stage, samples)
        # Copies, because a node of the user's may give the same samples again.
        copies = [sample.copy() for sample in samples]
        for sample in copies:
            sample.as_stored = collate is None and sample.chain.takes_pcm
        places = {id(sample): place for place, sample in enumerate(copies)} if self.stage.order == KEPT else {}
        copies.sort(key=_planned, reverse=True)
        if ORIGIN in self.stage.keep:
            for sample in copies:
                numbers = (sample.origin.pass_, sample.origin.item, sample.origin.offset, *sample.origin.sub)
                sample.fields[ORIGIN] = f"{sample.origin.source}/{' '.join(f'{number:015d}' for number in numbers)}"
        made: list[tuple[Sample, int]] = []
        labels: list[int] = []
        for sample, length in realize(copies, self.lane, whole=collate is not None, read=self.stage.keep):
            labels.append(sample.labels)
            if collate is None:
                sample.fields = batch.add(sample.fields)  # frees memory for the next one, which is still in the cache
            made.append((sample, length))
        audible = collate is not None or batch.audible
        odd = odd_ones([sample for sample, _ in made], self.lane, Pad.name) if audible else frozenset[int]()
        kept = [i for i in range(len(made)) if i not in odd]
        self.lane.ledger.delivered([made[i][1] for i in kept], [labels[i] for i in kept])
        if places:
            kept.sort(key=lambda i: places[id(made[i][0])])
        if collate is None:
            return batch.made(kept if places else batch.longest_first(odd))
        return _collated(collate, [made[i][0] for i in kept])


def _collated(collate: Collate | None, samples: list[Sample]) -> dict[str, Any]:
    found = collate(samples) if collate and samples else {}
    if not isinstance(found, dict):
        raise PipelineError(f"pad: the function given as collate must return a dict, not {type(found).__name__}")
    return found


def keeping(graph: Graph, name: str, who: str) -> Graph:
    """Return a pipeline whose batches also have the field ``name``, and ``keys``. Raises: PipelineError."""
    last = graph.stages[-1] if isinstance(graph, Graph) else None
    if not isinstance(last, Pad) or last.collate is not None:
        raise PipelineError(f"{who}: the pipeline must end with .pad(), without collate")
    if last.names and "keys" in last.names:
        raise PipelineError(f"{who}: results are written by keys: leave 'keys' as it is in pad(names=…)")
    return type(graph)((*graph.stages[:-1], replace(last, keep=(*last.keep, name))))


def _check_whole(output: str, padding: float, whole: bool) -> None:
    """Raises: PipelineError if an output of ``whole`` numbers is to be padded by another number."""
    rule = f"value of {output} must be a whole number, as {output} holds whole numbers"
    require(not whole or padding % 1 == 0, Pad.name, rule, padding, "-100 is what torch leaves out of a loss")


def _planned(sample: Sample) -> float:
    try:
        plan = sample.planned()
    except DataError:  # reported when the sample is realized
        return 0
    return plan.duration_frames if plan is not None else 0


class _Column:
    """One field of a batch: of these utterances' ``field``, under ``name``, with its lengths under ``lengths``."""

    def __init__(self, of: str, field: str, name: str, rows: PaddedRows, outputs: Outputs) -> None:
        prefix = f"{of}_" if of else ""
        self.of, self.field, self.rows = of, of if of and field == "wav" else prefix + field, rows
        self.name = prefix + name
        self.lengths = f"{self.name}_length{'' if name == 'pcm' else 's'}"
        rows.padding, rows.width = outputs.padding(self.name, rows.padding), outputs.widths.get(self.field, 0)


def _columns(most: int, of: str, outputs: Outputs) -> tuple[_Column, _Column, _Column]:
    return (
        _Column(of, "feat", "feats", PaddedRows(most, 2, 0.0, torch.float32), outputs),
        _Column(of, "wav", "pcm", PaddedRows(most, 1, 0.0, torch.float32), outputs),
        _Column(of, "label", "target", PaddedRows(most, 1, IGNORE, torch.int64), outputs),
    )


class _Batch:
    """A batch to which utterances are added one by one, the longest first if plans are right."""

    def __init__(self, stage: Pad, samples: Sequence[Sample]) -> None:
        self.stage, self.outputs = stage, replace(stage.outputs, widths=getattr(samples, "widths", {}))
        self.fields: list[dict[str, Any]] = []  # without audio, features and labels
        streams = dict.fromkeys(of for sample in samples for of in sample.chain.named)
        self.streams = [_columns(len(samples), of, self.outputs) for of in ("", *streams)]
        self.several: dict[str, list[list[torch.Tensor]]] = {}  # by stream: of each utterance, all recordings
        taken = {column.field for columns in self.streams for column in columns}
        self._check_keep(taken - {*streams})
        self.taken = taken - {*stage.keep}

    def _check_keep(self, taken: set[str]) -> None:
        """Raises: PipelineError if one of these fields is to be kept. A stream that is a text or codes may be."""
        keep, rule = self.stage.keep, "keep must not name the streams that stages work on"
        require(taken.isdisjoint(keep), self.stage.name, rule, keep, "their tensors are always in the batch")

    @property
    def audible(self) -> bool:
        """True if it holds audio or features."""
        return any(map(any, self.several.values())) or any(
            feats.rows.lengths or waves.rows.lengths for feats, waves, _ in self.streams
        )

    def add(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Add an utterance and return its other fields. Raises: PipelineError if it does not fit the others."""
        if "key" not in fields:
            raise PipelineError("pad: an utterance has no key; the function given to .map(…) must keep it")
        for feats, waves, labels in self.streams:
            feat = fields.get(feats.field)
            if feats.of:
                several = _listed(fields, feats.of)
                self.several.setdefault(feats.of, []).append(several or [])
                if several is not None:
                    continue
            self._put(feats, fields, None if feat is None else torch.as_tensor(feat))
            self._put(labels, fields, _labels(fields, labels.field))
            audio = waves.field in fields and (not waves.of or f"{waves.of}_sample_rate" in fields)
            if audio and waves.field not in self.taken:
                self._check_keep({waves.field})
            alone = audio and (self.stage.pcm or feat is None)
            wav = waveform(Pad.name, fields["key"], fields[waves.field], waves.of) if alone else None
            self._put(waves, fields, wav)
        taken = self.taken
        rest = {name: value for name, value in fields.items() if name not in taken or _is_class(name, value)}
        self.fields.append(rest)
        return rest

    def lengths(self) -> list[int]:
        """Return the lengths of the utterances in the first field that they have, and which therefore all have."""
        columns = (column.rows.lengths for columns in self.streams for column in columns)
        return next(filter(None, columns), [0] * len(self.fields))

    def longest_first(self, without: frozenset[int]) -> list[int]:
        """Return the numbers of the utterances by their length, ``without`` some."""
        lengths = self.lengths()
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        return [i for i in order if i not in without] if without else order

    def made(self, order: list[int]) -> dict[str, Any]:
        """Return the batch (see :class:`Pad`) of the utterances of these numbers; ``{}`` if no utterance is there."""
        if not self.fields:
            return {}
        fields = [self.fields[i] for i in order]
        batch: dict[str, Any] = {"keys": [str(f["key"]) for f in fields]}
        lengths_of: dict[str, str] = {}
        for column in (column for columns in self.streams for column in columns):
            if column.rows.lengths:
                batch[column.name], batch[column.lengths] = column.rows.made(order, self.stage.layout)
                lengths_of[column.name] = column.lengths
        for of, found in self.several.items():
            if any(found):
                batch |= (several := self._several(of, [found[i] for i in order]))
                lengths_of |= {one: f"{one}_lengths" for one in several if f"{one}_lengths" in several}
        if fields and all("label" in f for f in fields):
            batch["label"] = torch.tensor([int(f["label"]) for f in fields])
        speakers = [f.get("speaker") for f in fields]
        if all(isinstance(one, int) for one in speakers):
            batch["speaker"] = torch.tensor(speakers, dtype=torch.int32)
        elif all(isinstance(one, (int, str)) for one in speakers):
            batch["speaker"] = speakers
        for name, of in (("langs", "lang"), ("tasks", "task")):
            if all(of in f for f in fields):
                batch[name] = [f[of] for f in fields]
        for name in (one for one in self.stage.keep if one != "speaker" or one not in batch):
            padding = self.outputs.paddings(name, NO_LOSS if name == "labels" else IGNORE)
            values, width = [f.get(name) for f in fields], self.outputs.widths.get(name, 0)
            kept = together(name, values, self.stage.layout, padding, width)
            check_kept(self.stage.name, name, batch, kept)
            padded = f"{name}_lengths" in kept and isinstance(kept[name], torch.Tensor)
            _check_whole(name, padding[1], padded and not kept[name].is_floating_point())
            batch |= kept
            lengths_of |= {one: f"{one}_lengths" for one in kept if f"{one}_lengths" in kept}
        return self.outputs.of(batch, lengths_of)

    def _several(self, of: str, found: list[list[torch.Tensor]]) -> dict[str, Any]:
        """Return the rows of all recordings in a stream one after the other, and how many each utterance has."""
        rows = [row for one in found for row in one]
        name = f"{of}_{'feats' if rows[0].ndim > 1 else 'pcm'}"
        if any(column.rows.lengths for columns in self.streams for column in columns if column.of == of):
            raise PipelineError(
                f"pad: some utterances have one recording in {of!r}, others a list; make all of them lists"
            )
        made = together(name, rows, self.stage.layout, self.outputs.paddings(name, IGNORE))
        return made | {f"{of}_counts": torch.tensor([len(one) for one in found], dtype=torch.int32)}

    def _put(self, column: _Column, fields: dict[str, Any], row: AudioRow | None) -> None:
        """Add the utterance's ``row``. Raises: PipelineError unless it is like that of the first utterance."""
        rows = column.rows
        if row is None and not rows.lengths:
            return
        name = column.field
        if row is None or (self.fields and not rows.lengths):
            has, lacks = (self.fields[0], fields) if row is None else (fields, self.fields[0])
            none = "one number there" if name in lacks else "none"
            raise PipelineError(f"pad: {has['key']} has a {name}, {lacks['key']} has {none}; they cannot share a batch")
        if row.ndim < rows.ndim:
            shape = tuple(row.shape)
            raise PipelineError(f"pad: the {name} of {fields['key']} has the shape {shape}: a dimension is missing")
        dtype = dtype_of(row) if rows.ndim == 2 else rows.dtype
        if not rows.lengths and dtype != rows.dtype:
            _, padding = self.outputs.paddings(column.name, IGNORE)
            _check_whole(column.name, padding, True)
            rows.dtype, rows.padding = dtype, padding
        if rows.lengths and (row.shape[1:] != rows.tail or dtype != rows.dtype):
            unit = "channels" if rows.ndim == 1 else "bins" if dtype == rows.dtype else f"bins ({rows.dtype})"
            none = "1" if rows.ndim == 1 else "no"
            one, other = ("×".join(map(str, tail)) or none for tail in (rows.tail, row.shape[1:]))
            widths = f"{self.fields[0]['key']} has a {name} of {one} {unit}, {fields['key']} one of {other}"
            raise PipelineError(f"pad: {widths}; they cannot share a batch")
        rows.add(row)


def _listed(fields: dict[str, Any], of: str) -> list[torch.Tensor] | None:
    """Return the features or waveforms of all recordings in a stream; None if it is no list of them. Arrays without a
    rate are none, but codes."""
    names = audio_names(of)
    feats = fields.get(names["feat"])
    if recordings(fields, names) is None or (feats is None and names["sample_rate"] not in fields):
        return None
    return [torch.as_tensor(feat) for feat in feats or [mono(Pad.name, fields["key"], wav, of) for wav in fields[of]]]


def _is_class(name: str, value: Any) -> bool:
    """Return whether it is a label that is one whole number, not those of tokens."""
    return name == "label" and (is_whole(value) or (np.ndim(value) == 0 and str(getattr(value, "dtype", "")) in _WHOLE))


_WHOLE = frozenset(
    f"{package}{kind}{bits}" for package in ("", "torch.") for kind in ("int", "uint") for bits in (8, 16, 32, 64)
)


def _labels(fields: dict[str, Any], name: str) -> torch.Tensor | None:
    """Return the labels of an utterance, None if it has none, or a class instead."""
    if name not in fields or _is_class(name, fields[name]):
        return None
    if isinstance(fields[name], str):
        remedy = (
            f"if it is a class, make a number of it with .map(…), as in sample[{name!r}] = CLASSES[sample[{name!r}]]"
        )
        raise PipelineError(f"pad: the {name} of {fields['key']} is not a list of integers, but a text; {remedy}")
    try:
        return torch.as_tensor(fields[name], dtype=torch.int64)
    except (TypeError, ValueError) as error:
        raise PipelineError(f"pad: the {name} of {fields['key']} is not a list of integers: {error}") from error
