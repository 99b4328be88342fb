"""Normalization and SpecAugment as modules, for padded or packed batches of features on any device. Nothing here makes
a host wait for its GPU, and all shapes follow from those of the arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.features import cmvn_of, read_cmvn


class RowPlaces:
    """Where each of R rows belongs: ``owner`` (R,), the segment; ``within`` (R,), its number there; ``padding`` (R,),
    whether it is none of the ``lengths`` (N,) that segments have. ``begins`` (M + 1,): of segments, and the end; those
    from N on are padding."""

    def __init__(self, rows: int, lengths: torch.Tensor, begins: torch.Tensor) -> None:
        at = torch.arange(rows, device=begins.device, dtype=begins.dtype)
        self.owner = torch.searchsorted(begins, at, right=True) - 1
        self.within = at - begins[self.owner]
        self.lengths = nn.functional.pad(lengths, (0, len(begins) - 1 - len(lengths)))
        self.padding = self.within >= self.lengths[self.owner]


class _OfBatch(nn.Module):
    """A module that changes padded or packed features."""

    def forward(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor, cu_seqlens: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return other features of the same shape. ``feats``: padded (B, T, F), or, with ``cu_seqlens``, packed (R, F);
        ``feats_lengths``: frames of each utterance (N,). Raises: PipelineError."""
        if feats.dim() != (3 if cu_seqlens is None else 2):
            rule = "feats must be (B, T, F), or (R, F) together with cu_seqlens"
            raise PipelineError(f"{type(self).__name__}: {rule}, not {tuple(feats.shape)}")
        if cu_seqlens is None:
            cu_seqlens = torch.arange(len(feats) + 1, device=feats.device, dtype=torch.int32) * feats.shape[1]
        rows = feats.reshape(-1, feats.shape[-1])
        return self._change(rows, RowPlaces(len(rows), feats_lengths, cu_seqlens)).view(feats.shape)

    def _change(self, feats: torch.Tensor, places: RowPlaces) -> torch.Tensor:
        raise NotImplementedError


class CmvnModule(_OfBatch):
    """Normalize features by the mean and standard deviation of each bin, as ``.global_cmvn(…)`` does in the loader.

    Call it with the ``feats`` (B, T, F) and ``feats_lengths`` of a padded batch, or with ``feats`` (R, F),
    ``feats_lengths`` and ``cu_seqlens`` of a packed one. Padding stays 0. Nothing is in the state dict.

    Args:
        stats: path or URL of WeNet's ``global_cmvn`` or of Kaldi's statistics, or a dict with the content of WeNet's.
        norm_var: whether to divide by the standard deviation. Default: True.

    Raises:
        ListError: the file cannot be used; of a dict or of features with other bins, PipelineError.
    """

    def __init__(self, stats: str | os.PathLike[str] | Mapping[str, Any], norm_var: bool = True) -> None:
        super().__init__()
        mean, istd = map(torch.from_numpy, cmvn_of(stats) if isinstance(stats, Mapping) else read_cmvn(stats))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("scale", istd if norm_var else torch.ones_like(istd), persistent=False)
        self.mean: torch.Tensor  # (F,)
        self.scale: torch.Tensor  # (F,)

    def _change(self, feats: torch.Tensor, places: RowPlaces) -> torch.Tensor:
        if feats.shape[1] != len(self.mean):
            told = f"the statistics are of {len(self.mean)} bins, the features have {feats.shape[1]}"
            raise PipelineError(f"CmvnModule: {told}; compute statistics of these features")
        return ((feats - self.mean) * self.scale).masked_fill(places.padding[:, None], 0.0)


class SpecAugModule(_OfBatch):
    """Mask random spans of frames and of bins in each utterance with zeros, as ``.spec_aug(…)`` does in the loader.

    It is called as :class:`CmvnModule` is. Spans are drawn in the same way as there, but on the device, by torch, and
    so depend on the batch. In evaluation mode it does nothing.

    Args:
        num_t_mask: spans of frames to mask in each utterance. Default: 2.
        num_f_mask: spans of bins. Default: 2.
        max_t: longest span of frames; the shortest is 1. Default: 50.
        max_f: widest span of bins; the narrowest is 1. Default: 10.
    """

    def __init__(self, num_t_mask: int = 2, num_f_mask: int = 2, max_t: int = 50, max_f: int = 10) -> None:
        super().__init__()
        self.options = {"num_t_mask": num_t_mask, "num_f_mask": num_f_mask, "max_t": max_t, "max_f": max_f}
        for name, value in self.options.items():
            require_whole(f"SpecAugModule: {name}", value, least=int(name.startswith("max")))

    def _change(self, feats: torch.Tensor, places: RowPlaces) -> torch.Tensor:
        if not self.training:
            return feats
        bins, within = torch.arange(feats.shape[1], device=feats.device)[:, None], places.within[:, None]
        begin, end = _spans(places.lengths, self.options["num_t_mask"], self.options["max_t"])  # (M, masks)
        in_time = ((within >= begin[places.owner]) & (within < end[places.owner])).any(1)  # (R,)
        begin, end = _spans(
            torch.full_like(places.lengths, len(bins)), self.options["num_f_mask"], self.options["max_f"]
        )
        in_bins = ((bins >= begin[:, None]) & (bins < end[:, None])).any(2)  # (M, F)
        return feats.masked_fill(in_time[:, None] | in_bins[places.owner], 0.0)


def _spans(sizes: torch.Tensor, count: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw ``count`` spans within axes of these sizes (M,): begins and ends (M, count)."""
    starts, widths = torch.rand(2, len(sizes), count, device=sizes.device)
    begin = (starts * sizes[:, None]).long()
    return begin, begin + 1 + (widths * longest).long()
