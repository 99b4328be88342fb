"""``stack``: neighbouring frames as one, at a lower frame rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample


@dataclass(frozen=True)
class Stack(OfStream):
    """Put neighbouring frames of ``feat`` together to one wider frame, at a lower frame rate.

    (T, F) becomes (⌈T / stride⌉, frames × F). Frame i has those around frame i × stride: (frames - 1) // 2 before it,
    the others after it; beyond the ends the first and the last frame are repeated. This is the low frame rate of
    FunASR (``apply_lfr`` with its ``lfr_m`` and ``lfr_n``).

    Args:
        frames: how many frames to put together, 1 or more. Default: 7.
        stride: how many frames to go on for the next one, 1 or more. Default: 6.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "stack"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    frames: int = 7
    stride: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("frames", "stride"):
            value = getattr(self, name)
            require(value >= 1, self.name, f"{name} must be 1 or more", value, "Paraformer has frames=7, stride=6")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        if plan.frames is None:
            raise PipelineError("stack works on features: put .fbank(…) before it")
        return plan._replace(frames=-(-plan.frames // self.stride))

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        if feat.ndim == 1:  # codes of one codebook
            feat = feat.unsqueeze(1)
        count, before = -(-len(feat) // self.stride), (self.frames - 1) // 2
        after = max(0, (count - 1) * self.stride + self.frames - before - len(feat))
        if not count:
            sample.fields["feat"] = feat.new_zeros((0, self.frames * feat.shape[1]))
            return
        padded = torch.cat([feat[:1].expand(before, -1), feat, feat[-1:].expand(after, -1)])
        windows = padded.unfold(0, self.frames, self.stride)[:count]  # (count, F, frames)
        sample.fields["feat"] = windows.transpose(1, 2).reshape(count, -1)
