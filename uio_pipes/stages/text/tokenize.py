"""``tokenize`` and ``ctc_filter``: the text as labels, and utterances with more labels than CTC can align."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, ClassVar, cast

from uio_pipes.audio.length import Plan, measure
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.errors import LeftOut, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Deferred, Node
from uio_pipes.core.roles import OfStream, Op, StageLink, sees_all
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.stages.batches.budget import waveform_samples
from uio_pipes.stages.text.normalize import text_of
from uio_pipes.stages.utterances.filter import FilterNode
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.tokenizers.base import EXAMPLES, UnknownShare, has_blank, remove_blanks, tokens_and_labels, unk_id


@dataclass(frozen=True)
class Tokenize(OfStream):
    """Turn ``txt`` into ``tokens`` (list of str) and ``label`` (list of int); ``txt`` stays as it is.

    It runs only when labels are needed: a filter on their number decodes no audio.

    Args:
        tokenizer: a :class:`Tokenizer` (characters, SentencePiece, Hugging Face, tiktoken, or one of WeNet's own),
            or any function of the text that returns the labels, or (tokens, labels).
        remove_blanks: whether to remove the blanks beside Chinese characters first. Default: None, which removes
            them if the tokenizer has no symbol for a blank, since they would become ``<unk>``; a plain function
            gets its text as it is.
        max_unk_share: share of ``<unk>`` among the labels, from 0 to 1, above which a warning with examples is
            logged, once per rank and epoch, after 1,000 labels or at the end; 1 never warns. Default: 0.01.
        of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
    """

    name: ClassVar[str] = "tokenize"
    note: ClassVar[str] = "when labels are needed"
    reads: ClassVar[frozenset[str]] = frozenset(["txt"])
    writes: ClassVar[frozenset[str]] = frozenset(["tokens", "label"])

    tokenizer: Tokenizer | Callable[[str], Any]
    remove_blanks: bool | None = None
    max_unk_share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = callable(self.tokenizer) or isinstance(self.tokenizer, Tokenizer)
        remedy = 'pass uio.CharTokenizer("lang_char.txt"), uio.SentencePieceTokenizer("bpe.model") or a function'
        require(ok, self.name, "tokenizer must be a tokenizer or a function of the text", self.tokenizer, remedy)
        ok = 0 <= self.max_unk_share <= 1
        require(ok, self.name, "max_unk_share must be a share from 0 to 1", self.max_unk_share, "1 never warns")

    @cached_property
    def _joins(self) -> bool:
        return not has_blank(self.tokenizer) if self.remove_blanks is None else self.remove_blanks

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["tokens"], sample.fields["label"] = self._made_of(text_of(sample))

    def _made_of(self, text: str) -> tuple[list[str], list[int]]:
        return tokens_and_labels(self.tokenizer, remove_blanks(text) if self._joins else text)

    def labels_of(self, text: str) -> list[int]:
        """Return the labels of a text."""
        return self._made_of(text)[1]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        unknown = unk_id(self.tokenizer)
        if unknown is None or self.max_unk_share == 1:
            return super().build(source, lane, site)
        return Deferred(source, _Watched(self, site, lane, unknown))


class _Watched(StageLink):
    """Tokenizes, and counts unknown tokens, but not in the state."""

    __slots__ = ("ledger", "place", "shown", "unk_id")

    def __init__(self, stage: Tokenize, site: Site, lane: Lane, unk_id: int) -> None:
        super().__init__(stage, site)
        self.place, self.ledger, self.unk_id = site.within(lane.source).removeprefix("/"), lane.ledger, unk_id
        self.shown = 0

    def run(self, sample: Sample) -> None:
        super().run(sample)
        if self.ledger.quiet:
            return
        stage, labels = cast(Tokenize, self.stage), sample.fields["label"]
        share = cast(UnknownShare, self.ledger.tallies.setdefault(self.place, UnknownShare(stage.max_unk_share)))
        share.labels += len(labels)
        if unknown := labels.count(self.unk_id):
            share.unknown += unknown
            if self.shown < EXAMPLES:
                self.shown += 1
                tokens = sample.fields["tokens"]
                share.show(sample.key, sample.fields["txt"], tokens, labels, self.unk_id, stage.labels_of)


# kernels and strides of the convolutions over time, without padding, as in WeNet's and ESPnet's conv2d front ends
CONVOLUTIONS = {1: (), 4: ((3, 2), (3, 2)), 6: ((3, 2), (5, 3)), 8: ((3, 2), (3, 2), (3, 2))}


@dataclass(frozen=True)
class CtcFilter(Op):
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
