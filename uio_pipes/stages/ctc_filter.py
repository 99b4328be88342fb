"""``ctc_filter``: leaves out utterances with more labels than CTC can align."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq
from typing import ClassVar

from uio_pipes.audio.length import Plan, measure
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.errors import LeftOut, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import PerUtterance, sees_all
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.stages.budget import waveform_samples
from uio_pipes.stages.filter import FilterNode
from uio_pipes.stages.tokenize import Tokenize

# kernels and strides of the convolutions over time, without padding, as in WeNet's and ESPnet's conv2d front ends
CONVOLUTIONS = {1: (), 4: ((3, 2), (3, 2)), 6: ((3, 2), (5, 3)), 8: ((3, 2), (3, 2), (3, 2))}


@dataclass(frozen=True)
class CtcFilter(PerUtterance):
    """Leave out utterances whose CTC loss would be infinite, and count them as ``ctc_too_short``.

    A CTC alignment needs one step for each label and a blank between equal neighbours (Graves et al. 2006), so an
    utterance stays if ``len(label) + repeats <= subsampled frames``. Put it after everything that changes lengths
    or labels, and before the batches. It decides by the planned length and decodes nothing; an utterance that turns
    out shorter than planned is checked again when the batch is made.

    Args:
        subsampling: how the model shortens its input: 4, 6 or 8 for WeNet's ``conv2d``, ``conv2d6`` and ``conv2d8``
            (4 turns T frames into ((T - 1) // 2 - 1) // 2), 1 for none, or a function from the number of frames (of
            audio samples if there is no feature stage before) to the number of steps. Default: 4.
    """

    name: ClassVar[str] = "ctc_filter"
    reasons: ClassVar[frozenset[str]] = frozenset(["ctc_too_short"])
    note: ClassVar[str] = "by the plan: nothing is decoded"
    reads: ClassVar[frozenset[str]] = frozenset(["label", "feat", "wav", "sample_rate"])

    subsampling: int | Callable[[int], int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = (is_whole(self.subsampling) and self.subsampling in CONVOLUTIONS) or callable(self.subsampling)
        rule = f"subsampling must be one of {sorted(CONVOLUTIONS)} or a function of the number of frames"
        require(ok, self.name, rule, self.subsampling, "give a function that computes it as your model does")

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        from_tar = any("file" in stage.takes for stage in before)  # raw lists may have labels of their own
        if from_tar and sees_all(before) and not any(isinstance(stage, Tokenize) and not stage.of for stage in before):
            raise PipelineError("ctc_filter counts labels, but nothing makes them here: put .tokenize(…) before it")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return FilterNode(super().build(source, lane, site), lane, self)

    def reason(self, sample: Sample) -> str | None:
        """Return the reason to leave the sample out, by its plan; None if it stays."""
        return None if needed(sample["label"]) <= self.steps(sample.plan) else "ctc_too_short"

    def apply(self, sample: Sample, draws: Draws) -> None:
        length, label = measure(sample.fields), sample.fields["label"]
        if length is not None and needed(label) > self.steps(length):
            raise LeftOut("ctc_too_short", f"{len(label)} labels, {self.steps(length)} steps of CTC")

    def steps(self, plan: Plan) -> int:
        """Return the length of the encoder's output. Raises: PipelineError if it needs frames but gets a waveform."""
        if callable(self.subsampling):
            return self.subsampling(waveform_samples(plan, self.name) if plan.frames is None else plan.frames)
        if plan.frames is None:
            raise PipelineError(
                f"{self.name}: subsampling={self.subsampling} counts feature frames, but there are no features here; "
                "put it after .fbank(), or give a function of the number of audio samples"
            )
        steps = plan.frames
        for kernel, stride in CONVOLUTIONS[self.subsampling]:
            steps = (steps - kernel) // stride + 1
        return max(0, steps)


def needed(label: Sequence[int]) -> int:
    """Return the fewest steps that CTC needs for ``label``."""
    repeats: int = sum(map(eq, label, label[1:]))
    return len(label) + repeats
