"""Stages that change features: normalization, differences, stacking, masking (``spec_aug``), substitution
(``spec_sub``), trimming (``spec_trim``) and, of codes, the delay of each codebook (``delay``)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import torch

from uio_pipes.audio.length import Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import is_weight, is_whole, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import Grid, HasGrid
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import OfStream, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Trait, least, must_be, printed
from uio_pipes.dsp.features import Cmvn, append_deltas, apply_masks, cmvn_of, read_cmvn, spec_aug_masks
from uio_pipes.stages.features.grid import frame_shift


class OfFeatures(OfStream):
    """A stage that changes ``feat``. Subclasses are frozen dataclasses."""

    reads = ("feat",)
    writes = ("feat",)

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        """Return other features; ``feat`` (T, F) is not written to."""
        raise NotImplementedError

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["feat"] = self.change(torch.as_tensor(sample.fields["feat"]), draws)


def _digest(stage: GlobalCmvn, stable: bool) -> str | None:
    """Fingerprints have a hash of the numbers instead of their path."""
    if not stable:
        return None
    return f"stats={blake2b(stage.cmvn.mean.tobytes() + stage.cmvn.istd.tobytes(), digest_size=8).hexdigest()}"


@dataclass(frozen=True)
class GlobalCmvn(OfFeatures):
    """Normalize ``feat`` by the mean and standard deviation of each bin over the whole corpus.

    Args:
        stats: path or URL of WeNet's ``global_cmvn`` (JSON) or of Kaldi's statistics (binary or text), which is
            read when a loader starts; or a dict with the content of WeNet's JSON. The command ``uio cmvn`` computes
            them.
        norm_var: whether to divide by the standard deviation; False only subtracts the mean. Default: True.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        ListError: when the loader starts, if the file cannot be used.
        PipelineError: while running, if ``feat`` has another number of bins.
    """

    name: ClassVar[str] = "global_cmvn"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.LOCAL

    stats: str | os.PathLike[str] | Mapping[str, Any] = field(metadata=printed(_digest))
    norm_var: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.stats, (str, os.PathLike, Mapping))
        require(ok, self.name, "stats must be a path or a dict", self.stats, 'as in .global_cmvn("data/global_cmvn")')
        if isinstance(self.stats, Mapping):
            self.cmvn  # noqa: B018  wrong numbers fail now

    @cached_property
    def cmvn(self) -> Cmvn:
        return cmvn_of(self.stats) if isinstance(self.stats, Mapping) else read_cmvn(self.stats)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        self.cmvn  # noqa: B018  a bad file fails before the first utterance
        return super().build(source, lane, site)

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        mean, istd = map(torch.from_numpy, self.cmvn)
        if feat.shape[1] != len(mean):
            raise PipelineError(
                f"global_cmvn: the statistics are of {len(mean)} bins, the features of {sample.key} have "
                f"{feat.shape[1]}; compute statistics of these features, or features with as many bins"
            )
        centred = feat - mean
        sample.fields["feat"] = centred.mul_(istd) if self.norm_var else centred


@dataclass(frozen=True)
class Deltas(OfFeatures):
    """Append to ``feat`` (T, F) its differences over time: (T, F · (order + 1)).

    Each order is the linear regression, over a few frames, of the order before, with frames at the edges repeated,
    equal to ``torchaudio.functional.compute_deltas``. Order 2 after ``mfcc`` gives Kaldi's usual MFCC + Δ + ΔΔ.

    Args:
        order: 1 appends Δ, 2 appends Δ and ΔΔ, and so on. Default: 2.
        win_length: frames of the regression, an odd number. Default: 5.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "deltas"

    order: int = least(1, 2, "2 is usual")
    win_length: int = must_be(5, "an odd number of frames, 3 or more", lambda n: n >= 3 and n % 2 == 1, "5 is usual")

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        return append_deltas(feat.float(), self.order, self.win_length)


@dataclass(frozen=True)
class Stack(HasGrid, OfFeatures):
    """Join neighbouring frames of ``feat`` into one wider frame, at a lower frame rate.

    (T, F) becomes (⌈T / stride⌉, frames × F). Frame i has those around frame i × stride: (frames - 1) // 2 before it,
    the others after it; beyond the ends the first and the last frame are repeated. This is the low frame rate of
    FunASR (``apply_lfr`` with its ``lfr_m`` and ``lfr_n``).

    Args:
        frames: how many frames to put together, 1 or more. Default: 7.
        stride: how many frames to go on for the next one, 1 or more. Default: 6.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "stack"

    frames: int = least(1, 7, "Paraformer has frames=7, stride=6")
    stride: int = least(1, 6, "Paraformer has frames=7, stride=6")

    def grid(self, before: Grid | None, sample_rate: int) -> Grid | None:
        return before and before.joined(self.frames, self.stride, (self.frames - 1) // 2)

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        if plan.frames is None:
            raise PipelineError("stack works on features: put .fbank(…) before it")
        return plan.with_frames(-(-plan.frames // self.stride))

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        if feat.ndim == 1:  # codes of one codebook
            feat = feat.unsqueeze(1)
        count, before = -(-len(feat) // self.stride), (self.frames - 1) // 2
        after = max(0, (count - 1) * self.stride + self.frames - before - len(feat))
        if not count:
            return feat.new_zeros((0, self.frames * feat.shape[1]))
        padded = torch.cat([feat[:1].expand(before, -1), feat, feat[-1:].expand(after, -1)])
        windows = padded.unfold(0, self.frames, self.stride)[:count]  # (count, F, frames)
        return windows.transpose(1, 2).reshape(count, -1)


@dataclass(frozen=True)
class SpecAug(OfFeatures):
    """Mask random spans of frames and of bins in ``feat`` with zeros (SpecAugment, Park et al. 2019, no warping).

    Spans are drawn as WeNet draws them.

    Args:
        num_t_mask: spans of frames to mask, 0 or more. Default: 2.
        num_f_mask: spans of bins to mask, 0 or more. Default: 2.
        max_t: longest span of frames; the shortest is 1. Default: 50.
        max_f: widest span of bins; the narrowest is 1. Default: 10.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_aug"

    num_t_mask: int = least(0, 2, "0 masks turn a kind off")
    num_f_mask: int = least(0, 2, "0 masks turn a kind off")
    max_t: int = least(1, 50, "0 masks turn a kind off")
    max_f: int = least(1, 10, "0 masks turn a kind off")

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        frames, bins = feat.shape
        masks = spec_aug_masks(draws.below, frames, bins, self.num_t_mask, self.num_f_mask, self.max_t, self.max_f)
        return apply_masks(feat.clone(), *masks)


@dataclass(frozen=True)
class SpecSub(OfFeatures):
    """Replace random spans of ``feat`` by earlier frames of the same utterance (SpecSub, Wu et al. 2021: U2++).

    As in WeNet, three numbers are drawn for each span, evenly: its start over all frames, its length (cut off at
    the end of the utterance), and how many frames earlier its substitute begins, from 0 to the start.

    Args:
        max_t: longest span in frames; the shortest is 1. Default: 20.
        num_t_sub: spans to replace. Default: 3.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_sub"

    max_t: int = least(1, 20, "WeNet's is 20")
    num_t_sub: int = least(0, 3, "WeNet's is 3")

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        out, frames = feat.clone(), len(feat)
        for _ in range(self.num_t_sub):
            start = draws.below(frames)
            end = min(frames, start + 1 + draws.below(self.max_t))
            back = draws.below(start + 1)
            out[start:end] = feat[start - back : end - back]
        return out


@dataclass(frozen=True)
class SpecTrim(OfFeatures):
    """Cut a random number of frames off the end of ``feat`` (TrimTail, Song et al. 2022, as in WeNet).

    The number is drawn evenly from 1 to ``max_t``. If it is half of the utterance or more, nothing is cut. The
    planned length is what remains.

    Args:
        max_t: most frames to cut off. Default: 20.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_trim"
    moves = ("feat",)

    max_t: int = least(1, 20, "WeNet's is 20")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.frames is None:
            return plan
        cut = self._draw(draws)
        if plan.frames <= 2 * cut:
            return plan
        # Fewer frames than planned may arrive, and 2 × cut of them would stay whole.
        return plan.with_frames(max(plan.frames - cut, 2 * cut))

    def move(self, timeline: Timeline, sample: Sample, draws: Draws) -> Timeline:
        frames, cut = len(sample.fields["feat"]), self._draw(draws)
        return timeline.cut(0.0, (frames - cut) * frame_shift(sample, self)) if frames > 2 * cut else timeline

    def change(self, feat: torch.Tensor, draws: Draws) -> torch.Tensor:
        cut = self._draw(draws)
        return feat[: len(feat) - cut] if len(feat) > 2 * cut else feat

    def _draw(self, draws: Draws) -> int:
        return 1 + draws.below(self.max_t)


@dataclass(frozen=True)
class Delay(Op):
    """Move each column of codes to later frames, and say with ``loss`` which codes a model is to learn.

    ``feat`` (T, N), whole numbers such as a text stream and the codebooks beside it, becomes int64: column n comes
    ``delays[n]`` frames later, with ``zero`` before it, and as much of its end is gone. ``loss`` (T, N) float32 is the
    weight of each code in the loss, 0 where it is ``zero``: what is filled in or not known. ``pad(keep=["loss"])`` puts
    it into the batch, with 0 as padding. The length stays.

    Args:
        delays: frames for each column. Moshi's are ``[0] + 2 * [0, 1, 1, 1, 1, 1, 1, 1]``.
        zero: what stands for no code. Default: -1.
        weights: weight of each column, 0 for one that is only heard. Default: None, all have 1.
        text_padding: codes of the first column that say that no word is there. Default: (3, 0), Moshi's.
        text_padding_weight: what the weight of ``text_padding`` is multiplied by; moshi-finetune's example has 0.5.
            Default: 1.0.
    """

    name: ClassVar[str] = "delay"
    reads = ("feat",)
    writes = ("feat", "loss")

    delays: Sequence[int]
    zero: int = -1
    weights: Sequence[float] | None = None
    text_padding: Sequence[int] = (3, 0)
    text_padding_weight: float = must_be(1.0, "0 or more", lambda n: n >= 0, "moshi-finetune's example has 0.5")

    def __post_init__(self) -> None:
        super().__post_init__()
        rules: Any = {"delays": lambda n: is_whole(n) and n >= 0, "text_padding": is_whole, "weights": is_weight}
        for name, fits in rules.items():
            given = getattr(self, name)
            if name == "weights" and given is None:
                continue
            ok = isinstance(given, (list, tuple)) and all(map(fits, given))
            require(ok, self.name, f"{name} must be a list of numbers, 0 or more", given, "as in [0, 0, 1]")
            object.__setattr__(self, name, tuple(given))
        ok = self.weights is None or len(self.weights) == len(self.delays)
        require(ok, self.name, f"weights must be one for each of {len(self.delays)} delays", self.weights, "add some")

    def apply(self, sample: Sample, draws: Draws) -> None:
        codes = torch.as_tensor(sample.fields["feat"])
        codes = codes.unsqueeze(1) if codes.ndim == 1 else codes
        if codes.is_floating_point() or codes.shape[1] != len(self.delays):
            has = f"{codes.shape[1]} columns of {codes.dtype}"
            rule = f"delay: there are {len(self.delays)} delays, but the feat of {sample.key} has {has}"
            raise PipelineError(f"{rule}: give one for each column of whole numbers, the text among them")
        moved = torch.full(codes.shape, self.zero)
        for column, delay in enumerate(self.delays):
            moved[delay:, column] = codes[: max(0, len(codes) - delay), column]
        loss = (moved != self.zero).float()
        if self.weights is not None:
            loss *= torch.tensor(self.weights, dtype=torch.float32)
        if self.text_padding_weight != 1:
            silent = torch.isin(moved[:, 0], torch.tensor(self.text_padding))
            loss[silent, 0] *= self.text_padding_weight
        sample.fields |= {"feat": moved, "loss": loss}
