"""``spec_aug``: masks in time and frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.spec_aug import apply_masks, spec_aug_masks


@dataclass(frozen=True)
class SpecAug(OfStream):
    """Mask random spans of frames and of bins in ``feat`` by zeros (SpecAugment, Park et al. 2019, no warping).

    Spans are drawn as WeNet draws them.

    Args:
        num_t_mask: spans of frames to mask, 0 or more. Default: 2.
        num_f_mask: spans of bins to mask, 0 or more. Default: 2.
        max_t: longest span of frames; the shortest is 1. Default: 50.
        max_f: widest span of bins; the narrowest is 1. Default: 10.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_aug"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    num_t_mask: int = 2
    num_f_mask: int = 2
    max_t: int = 50
    max_f: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("num_t_mask", 0), ("num_f_mask", 0), ("max_t", 1), ("max_f", 1)):
            value = getattr(self, name)
            require(value >= least, self.name, f"{name} must be {least} or more", value, "0 masks turn a kind off")

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        masks = spec_aug_masks(
            draws.below, feat.shape[0], feat.shape[1], self.num_t_mask, self.num_f_mask, self.max_t, self.max_f
        )
        sample.fields["feat"] = apply_masks(feat.clone(), *masks)  # it may be the user's
