"""Characters, by a symbol table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from uio_pipes.tokenizers.base import BLANK, digest
from uio_pipes.tokenizers.symbols import NonLangSyms, SymbolTable

__all__ = ["CharTokenizer"]


class CharTokenizer:
    """Characters, with a symbol table; a blank inside the text becomes ``▁`` (WeNet's character tokenizer).

    Letters keep their case.

    Args:
        symbol_table: path of ``token id`` lines, or a dict.
        non_lang_syms: path of, or list with, symbols kept whole, like ``{NOISE}``, ``<SPK>``, ``[LAUGH]``.
        split_with_space: tokens are what stands between blanks.
        unk: the token for what the table lacks.
    """

    def __init__(
        self,
        symbol_table: str | os.PathLike[str] | dict[str, int],
        non_lang_syms: str | os.PathLike[str] | Iterable[str] | None = None,
        split_with_space: bool = False,
        unk: str = "<unk>",
    ) -> None:
        self._table = SymbolTable(symbol_table, unk)
        self._whole = NonLangSyms(non_lang_syms)
        self.symbols, self.non_lang_syms = self._table.symbols, self._whole.symbols
        self.unk_id = self._table.unk_id
        self.split_with_space = split_with_space

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        return self._table.size

    @property
    def has_blank(self) -> bool:
        """Whether ``▁`` is in the table, or blanks part the tokens."""
        return self.split_with_space or BLANK in self.symbols

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Characters (non-linguistic symbols kept whole) and their labels."""
        tokens: list[str] = []
        for part, whole in self._whole.split(text.strip()):
            if whole:
                tokens.append(part)
            elif self.split_with_space:
                tokens += part.split()
            else:
                tokens += part.replace(" ", BLANK)
        return tokens, self._table.labels(tokens)

    def detokenize(self, labels: Sequence[int]) -> str:
        """The text that ``labels`` stand for."""
        tokens = self._table.tokens(labels)
        return " ".join(tokens) if self.split_with_space else "".join(tokens).replace(BLANK, " ")

    def __repr__(self) -> str:
        how = (*self.non_lang_syms, self.split_with_space, self.unk_id)
        return f"CharTokenizer({len(self.symbols)} symbols {digest(self.symbols, how)})"
