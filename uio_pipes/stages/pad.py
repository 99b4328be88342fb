"""``pad``: the batch as tensors. Here everything deferred is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

import uio_pipes.batch_memory as batch_memory  # as a name of the package it would import all of api
from uio_pipes.errors import PipelineError
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Sample, realize
from uio_pipes.stage import Stage

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Pad", "collate"]

IGNORE = -1  # WeNet's padding of targets


@dataclass(frozen=True)
class Pad(Stage):
    """A batch with WeNet's keys, longest utterance first.

    ``keys`` list of str; ``feats`` (B, T, F) float32 padded with 0, ``feats_lengths`` (B,) int32; without features
    ``pcm`` (B, S) float32 and ``pcm_length`` (B,) int32 instead, or with ``pcm=True`` beside them; with labels
    ``target`` (B, U) int64 padded with -1 and ``target_lengths`` (B,) int32; ``speaker`` (B,) int32, ``langs`` and
    ``tasks`` lists where the utterances have them.
    """

    name: ClassVar[str] = "pad"
    takes: ClassVar[tuple[str, ...]] = ("batch",)
    gives: ClassVar[str] = "padded batch"
    note: ClassVar[str] = "makes the batch: decoding and features happen here"

    pcm: bool = False

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _PadNode(source, lane, self)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().fbank(num_mel_bins=8).batch(4).pad()


class _PadNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Pad) -> None:
        super().__init__(source)
        self.lane, self.pcm = lane, stage.pcm

    def next(self) -> dict[str, Any]:
        batch: list[Sample] = self.source.next()
        if self.lane.ledger.skimming:
            return {}
        samples = realize(batch, self.lane)
        return collate(samples, self.pcm) if samples else {}


def collate(samples: list[Sample], pcm: bool = False) -> dict[str, Any]:
    """Realized samples as a batch: see :class:`Pad`."""
    for sample in samples:
        _check_fields(sample.fields, samples[0].fields, pcm)
    fields = sorted((s.fields for s in samples), key=_size, reverse=True)
    batch: dict[str, Any] = {"keys": [str(f["key"]) for f in fields]}
    if "feat" in fields[0]:
        batch["feats"], batch["feats_lengths"] = _stack([f["feat"] for f in fields], 0.0, torch.float32)
    if "wav" in fields[0] and (pcm or "feat" not in fields[0]):
        batch["pcm"], batch["pcm_length"] = _stack([_mono(f) for f in fields], 0.0, torch.float32)
    if "label" in fields[0]:
        labels = [torch.tensor(f["label"], dtype=torch.int64) for f in fields]
        batch["target"], batch["target_lengths"] = _stack(labels, IGNORE, torch.int64)
    if all(isinstance(f.get("speaker"), int) for f in fields):
        batch["speaker"] = torch.tensor([f["speaker"] for f in fields], dtype=torch.int32)
    for name, field in (("langs", "lang"), ("tasks", "task")):
        if all(field in f for f in fields):
            batch[name] = [f[field] for f in fields]
    return batch


def _size(fields: dict[str, Any]) -> int:
    if "feat" in fields:
        return int(fields["feat"].shape[0])
    return int(fields["wav"].shape[-1]) if "wav" in fields else len(fields.get("label", ()))


def _check_fields(fields: dict[str, Any], first: dict[str, Any], pcm: bool) -> None:
    """Raises: PipelineError if an utterance cannot share a batch with the first one."""
    key = fields["key"]
    for name in ("feat", "label", *(["wav"] if pcm else [])):
        if (name in fields) != (name in first):
            one, other = (key, first["key"]) if name in fields else (first["key"], key)
            raise PipelineError(f"pad: {one} has a {name}, {other} has none; they cannot share a batch")
    if "feat" in fields and fields["feat"].shape[1] != first["feat"].shape[1]:
        raise PipelineError(
            f"pad: {first['key']} has features of {first['feat'].shape[1]} bins, {key} of {fields['feat'].shape[1]}; "
            "they cannot share a batch"
        )
    if (pcm or "feat" not in fields) and not isinstance(fields.get("wav", torch.empty(0)), (torch.Tensor, np.ndarray)):
        raise PipelineError(f"pad: the audio of {key} is not decoded; put .decode_audio() before batching")


def _mono(fields: dict[str, Any]) -> torch.Tensor:
    wav = torch.as_tensor(fields["wav"])
    if wav.ndim == 2 and wav.shape[0] != 1:
        raise PipelineError(
            f"pad: {fields['key']} has {wav.shape[0]} channels; choose one with .decode_audio(channel=…)"
        )
    return wav.reshape(-1)


def _stack(rows: list[torch.Tensor], padding: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of different first dimension as one tensor, and their lengths."""
    rows = [torch.as_tensor(row) for row in rows]
    lengths = [row.shape[0] for row in rows]
    out = batch_memory.empty((len(rows), max(lengths), *rows[0].shape[1:]), dtype)
    for i, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        out[i, :n] = row
        out[i, n:] = padding
    return out, torch.tensor(lengths, dtype=torch.int32)
