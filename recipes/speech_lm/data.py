"""From lists to packed rows: frames of audio first, then the text, then <sos/eos>."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import uio_pipes as uio

from ..common.experiment import eos_of, read_tokenizer
from .config import Settings
from .model import BINS, IGNORE

__all__ = ["one_a_row", "pipeline"]

TURNS = [("user", "{wav}"), ("assistant", "{txt}")]
TEMPLATE = {"user": "{}", "assistant": "{}"}  # of a larger model: marks of the roles, and an instruction in TURNS


def frames(n: uio.Lengths) -> int:
    """A place for each frame of audio, at the low rate."""
    return n.frames


def features(data: Path, part: str, settings: Settings, shuffle: bool = False, augmented: bool = False) -> uio.Pipeline:
    """Features of a part of the folder that stages 0 to 3 of an ASR recipe wrote, at the low rate."""
    graph = uio.from_raw_list(str(data / part / "data.list"), shuffle=shuffle).decode_audio().resample(16_000)
    graph = graph.fbank(BINS, dither=0.1 if augmented else 0.0).global_cmvn(data / "global_cmvn")
    if augmented:
        graph = graph.spec_aug(max_t=20)
    return graph.stack(settings.model.frames, settings.model.stride)


def quantized(data: Path, part: str, settings: Settings, shuffle: bool = False) -> uio.Pipeline:
    """The codes that stand for these features, under the same name: see ``quantizer``."""
    graph, count = features(data, part, settings, shuffle), settings.model.codebooks
    return graph.encoded(data / "codes", ["feat"], by=f"{count} codebooks")


def pipeline(data: Path, part: str, settings: Settings, shuffle: bool = False) -> uio.Pipeline:
    """Packed rows of features, or of codes in their place; with ``shuffle`` for training."""
    if settings.model.codebooks:
        graph = quantized(data, part, settings, shuffle)
    else:
        graph = features(data, part, settings, shuffle, augmented=shuffle)
    tokenizer, eos = read_tokenizer(data / "dict"), eos_of(data / "dict")
    graph = graph.chat(tokenizer, TEMPLATE, TURNS, places=frames, eos=eos)
    rows = settings.data
    return graph.pack(rows.max_tokens, rows.rows, rows.window, overflow="drop")


def one_a_row(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the same batch unpacked: a row for each part, padded to the longest."""
    bounds = batch["cu_seqlens"].long()
    whole = batch["segment_ids"].flatten()[bounds[:-1]] > 0  # the others are padding
    starts, sizes = bounds[:-1][whole], bounds.diff()[whole]
    width = int(sizes.max())

    def rows(name: str, value: int) -> Tensor:
        flat = batch[name].flatten()
        parts = [flat[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        return pad_sequence(parts, True, value)

    first, count = batch["feats_places"].unbind(1)
    part = torch.searchsorted(starts, first.contiguous(), right=True) - 1
    return {
        **{name: batch[name] for name in ("keys", "feats", "feats_lengths")},
        "tokens": rows("tokens", 0),
        "labels": rows("labels", IGNORE),
        "position_ids": rows("position_ids", 0),
        "segment_ids": (rows("segment_ids", 0) > 0).long(),
        "feats_places": torch.stack([first - starts[part] + part * width, count], dim=1),
    }
