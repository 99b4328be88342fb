"""The tokenizer for characters, by a symbol table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from uio_pipes.tokenizers.base import BLANK, digest
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

    Raises:
        ListError: a file cannot be read.
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
        """True if ``▁`` is in the table, or blanks separate the tokens."""
        return self.split_with_space or BLANK in self.symbols

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into characters (non-linguistic symbols stay whole), and return them and their labels."""
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
        """Return the text that ``labels`` stand for."""
        tokens = self._table.tokens(labels)
        return " ".join(tokens) if self.split_with_space else "".join(tokens).replace(BLANK, " ")

    def __repr__(self) -> str:
        how = (*self.non_lang_syms, self.split_with_space, self.unk_id)
        return f"CharTokenizer({len(self.symbols)} symbols {digest(self.symbols, how)})"
