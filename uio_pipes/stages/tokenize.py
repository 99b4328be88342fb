"""``tokenize``: the text as labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.errors import DataError
from uio_pipes.lane import Draws
from uio_pipes.sample import Sample
from uio_pipes.stage import PerUtterance, require
from uio_pipes.tokenizers import Tokenizer

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Tokenize"]


@dataclass(frozen=True)
class Tokenize(PerUtterance):
    """Turn ``txt`` into ``tokens`` (list of str) and ``label`` (list of int).

    ``tokenizer``: a :class:`Tokenizer` (characters, SentencePiece), or any callable of the text that returns the
    labels, or (tokens, labels). Runs only when labels are touched: a filter on their number does not decode audio.
    """

    name: ClassVar[str] = "tokenize"
    note: ClassVar[str] = "when labels are needed"
    reads: ClassVar[frozenset[str]] = frozenset(["txt"])
    writes: ClassVar[frozenset[str]] = frozenset(["tokens", "label"])

    tokenizer: Tokenizer | Callable[[str], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = callable(self.tokenizer) or isinstance(self.tokenizer, Tokenizer)
        remedy = 'pass uio.CharTokenizer("lang_char.txt"), uio.SentencePieceTokenizer("bpe.model") or a function'
        require(ok, self.name, "tokenizer must be a tokenizer or a function of the text", self.tokenizer, remedy)

    def apply(self, sample: Sample, draws: Draws) -> None:
        if "txt" not in sample.fields:
            raise DataError("missing_text", "the utterance has no text to tokenize")
        tokenizer = self.tokenizer
        result: Any = (tokenizer.tokenize if isinstance(tokenizer, Tokenizer) else tokenizer)(sample.fields["txt"])
        both = isinstance(result, tuple) and len(result) == 2 and not isinstance(result[1], int)
        tokens, label = result if both else ([], result)
        sample.fields["tokens"], sample.fields["label"] = list(tokens), _labels(label)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().tokenize(_code_points)


def _labels(label: Sequence[Any]) -> list[int]:
    return [int(i) for i in label]


def _code_points(text: str) -> list[int]:
    return [ord(c) for c in text]
