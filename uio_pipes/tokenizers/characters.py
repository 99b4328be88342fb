"""The tokenizer for characters, or for the words that a segmenter finds, by a symbol table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.tokenizers.base import BLANK, digest
from uio_pipes.tokenizers.blanks import remove_blanks
from uio_pipes.tokenizers.segmenters import Segmenter
from uio_pipes.tokenizers.symbols import NonLangSyms, SymbolTable


class CharTokenizer:
    """Split text into characters and look them up in a symbol table (WeNet's character tokenizer).

    A blank inside the text becomes ``▁``. Letters keep their case.

    Args:
        symbol_table: path of a file with one ``token id`` per line, or a dict.
        non_lang_syms: symbols that stay whole, like ``{NOISE}``, ``<SPK>``, ``[LAUGH]``: a list, or the path of a
            file with one per line. Default: None.
        split_with_space: whether tokens are the parts between blanks instead of characters. Default: False.
        unk: the token for whatever the table lacks. Default: "<unk>".
        segmenter: a function of a text that returns its words, like ``JiebaSegmenter()``; tokens are these words
            instead of characters. It must be picklable, and return the same words in every process. Default: None.

    Raises:
        ListError: a file cannot be read.
        PipelineError: the table lacks ``unk``, or both ``split_with_space`` and ``segmenter`` are given.
    """

    def __init__(
        self,
        symbol_table: str | os.PathLike[str] | dict[str, int],
        non_lang_syms: str | os.PathLike[str] | Iterable[str] | None = None,
        split_with_space: bool = False,
        unk: str = "<unk>",
        segmenter: Segmenter | None = None,
    ) -> None:
        require(
            segmenter is None or (callable(segmenter) and not split_with_space),
            "CharTokenizer", "segmenter must be a function of the text, without split_with_space", segmenter,
            "try segmenter=uio.JiebaSegmenter()",
        )  # fmt: skip
        self._table = SymbolTable(symbol_table, unk)
        self._whole = NonLangSyms(non_lang_syms)
        self.symbols, self.non_lang_syms = self._table.symbols, self._whole.symbols
        self.unk_id = self._table.unk_id
        self.split_with_space, self.segmenter = split_with_space, segmenter

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        return self._table.size

    @property
    def has_blank(self) -> bool:
        """True if ``▁`` is in the table, or blanks separate the tokens, or a segmenter gets the text."""
        return self.split_with_space or self.segmenter is not None or BLANK in self.symbols

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into characters or words (non-linguistic symbols stay whole); return them and their labels."""
        tokens: list[str] = []
        for part, whole in self._whole.split(text.strip()):
            if whole:
                tokens.append(part)
            elif self.segmenter is not None:
                tokens += self.segmenter(part)
            elif self.split_with_space:
                tokens += part.split()
            else:
                tokens += part.replace(" ", BLANK)
        return tokens, self._table.labels(tokens)

    def detokenize(self, labels: Sequence[int]) -> str:
        """Return the text that ``labels`` stand for."""
        tokens = self._table.tokens(labels)
        if self.segmenter is not None:
            return remove_blanks(" ".join(tokens))
        return " ".join(tokens) if self.split_with_space else "".join(tokens).replace(BLANK, " ")

    def __repr__(self) -> str:
        how = (*self.non_lang_syms, self.split_with_space, self.unk_id)
        by = "" if self.segmenter is None else f", words of {_named(self.segmenter)}"
        return f"CharTokenizer({len(self.symbols)} symbols {digest(self.symbols, how)}{by})"


def _named(segmenter: Any) -> str:
    """Return a name of the segmenter that is the same in every process."""
    if isinstance(segmenter, partial):
        return f"{_named(segmenter.func)}{segmenter.args}{segmenter.keywords}"
    if not hasattr(segmenter, "__qualname__") and "__repr__" in vars(type(segmenter)):
        return repr(segmenter)
    named = segmenter if hasattr(segmenter, "__qualname__") else type(segmenter)
    return f"{named.__module__}.{named.__qualname__}"
