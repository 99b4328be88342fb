"""``spec_aug``, ``spec_sub`` and ``spec_trim``: features masked, replaced by earlier ones, cut from the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.roles import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.features import apply_masks, spec_aug_masks


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


@dataclass(frozen=True)
class SpecSub(OfStream):
    """Replace random spans of ``feat`` by earlier frames of the same utterance (SpecSub, Wu et al. 2021: U2++).

    As in WeNet, three numbers are drawn for each span, evenly: its start over all frames, its length (cut off at
    the end of the utterance), and how many frames earlier its substitute begins, from 0 to the start.

    Args:
        max_t: longest span in frames; the shortest is 1. Default: 20.
        num_t_sub: spans to replace. Default: 3.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_sub"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    max_t: int = 20
    num_t_sub: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_t >= 1, self.name, "max_t must be 1 frame or more", self.max_t, "WeNet's is 20")
        require(self.num_t_sub >= 0, self.name, "num_t_sub must be 0 or more", self.num_t_sub, "WeNet's is 3")

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        out, frames = feat.clone(), len(feat)
        for _ in range(self.num_t_sub):
            start = draws.below(frames)
            end = min(frames, start + 1 + draws.below(self.max_t))
            back = draws.below(start + 1)
            out[start:end] = feat[start - back : end - back]
        sample.fields["feat"] = out


@dataclass(frozen=True)
class SpecTrim(OfStream):
    """Cut a random number of frames off the end of ``feat`` (TrimTail, Song et al. 2022, as in WeNet).

    The number is drawn evenly from 1 to ``max_t``. If it is half of the utterance or more, nothing is cut. The
    planned length is what remains.

    Args:
        max_t: most frames to cut off. Default: 20.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_trim"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    max_t: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_t >= 1, self.name, "max_t must be 1 frame or more", self.max_t, "WeNet's is 20")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.frames is None:
            return plan
        cut = self._draw(draws)
        if plan.frames <= 2 * cut:
            return plan
        # Fewer frames than planned may arrive, and 2 × cut of them would stay whole.
        return plan._replace(frames=max(plan.frames - cut, 2 * cut))

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat, cut = sample.fields["feat"], self._draw(draws)
        if len(feat) > 2 * cut:
            sample.fields["feat"] = feat[: len(feat) - cut]

    def _draw(self, draws: Draws) -> int:
        return 1 + draws.below(self.max_t)
