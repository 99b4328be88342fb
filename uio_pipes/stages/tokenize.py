"""``tokenize``: turns the text into labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Deferred, Node
from uio_pipes.core.per_utterance import OfStream, StageLink
from uio_pipes.core.sample import Sample
from uio_pipes.stages.normalize_text import text_of
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.tokenizers.base import has_blank, tokens_and_labels, unk_id
from uio_pipes.tokenizers.blanks import remove_blanks
from uio_pipes.tokenizers.unknown import EXAMPLES, UnknownShare


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
