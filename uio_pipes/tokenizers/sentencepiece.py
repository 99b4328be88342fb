"""The tokenizer for the pieces of a SentencePiece model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import ListError
from uio_pipes.tokenizers.base import BLANK, digest
from uio_pipes.tokenizers.symbols import NonLangSyms, SymbolTable, is_symbol


class SentencePieceTokenizer:
    """Split text into the pieces of a SentencePiece model.

    Args:
        model: path of the model.
        symbol_table: a path or a dict, for WeNet's byte-pair scheme: the text is put in upper case (unless the pieces
            are in lower case), Chinese characters stand by themselves, and labels are from the table. One that has the
            model's own pieces and ids, as ``uio spm`` writes it, changes nothing. Default: None, the model's own pieces
            and ids.
        unk: the token for whatever the table lacks. Default: "<unk>".
        non_lang_syms: symbols that stay whole, like ``{NOISE}``: a list, or the path of a file with one per line.
            They must be pieces of the model, or in the table (where they are found in any case). Default: None.

    Raises:
        ListError: a file cannot be read.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        symbol_table: str | os.PathLike[str] | dict[str, int] | None = None,
        unk: str = "<unk>",
        non_lang_syms: str | os.PathLike[str] | Iterable[str] | None = None,
    ) -> None:
        try:
            self._proto = Path(model).read_bytes()
        except OSError as error:
            raise ListError(f"cannot read the SentencePiece model {model}: {error}") from error
        self._processor = _processor(self._proto, str(model))
        given = SymbolTable(symbol_table, unk) if symbol_table is not None else None
        self._table = None if given is not None and self._is_own(given) else given
        self._raises = self._table is not None and self._are_upper(self._table)
        self._whole = NonLangSyms(non_lang_syms, ignore_case=self._table is not None)
        self.symbols = given.symbols if given is not None else None
        self.non_lang_syms = self._whole.symbols
        self.unk_id = self._table.unk_id if self._table is not None else int(self._processor.unk_id())

    def _is_own(self, table: SymbolTable) -> bool:
        """Return whether the table has the model's pieces with their ids, and no others."""
        pieces = range(self._processor.get_piece_size())
        own = {self._processor.id_to_piece(number): number for number in pieces}
        return table.symbols == own and table.unk_id == self._processor.unk_id()

    def _are_upper(self, table: SymbolTable) -> bool:
        """Return whether those pieces of the model that are in the table are in upper case rather than in lower."""
        unknown = self._processor.unk_id()
        pieces = [s for s in table.symbols if self._processor.piece_to_id(s) != unknown and not is_symbol(s)]
        return sum(s != s.upper() for s in pieces) <= sum(s != s.lower() for s in pieces)

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        return self._table.size if self._table is not None else int(self._processor.get_piece_size())

    @property
    def has_blank(self) -> bool:
        """True if ``▁`` is a piece. (With a symbol table, blanks beside Chinese characters leave no token anyway.)"""
        return self._table is not None or int(self._processor.piece_to_id(BLANK)) != self.unk_id

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into pieces (unknown ones as written, symbols whole), and return them and their labels."""
        tokens: list[str] = []
        ids: list[int] = []
        for part, whole in self._whole.split(text):
            if whole:
                tokens.append(part)
                ids.append(self._processor.piece_to_id(part))
            elif self._table is None:
                found: list[int] = self._processor.encode(part)
                unknown = self.unk_id in found
                tokens += self._processor.encode(part, out_type=str) if unknown else self._processor.id_to_piece(found)
                ids += found
            else:
                tokens += self._mixed(part.upper() if self._raises else part)
        return tokens, ids if self._table is None else self._table.labels(tokens)

    def _mixed(self, text: str) -> list[str]:
        """Split text into Chinese characters, and into pieces between them."""
        tokens: list[str] = []
        for part in _CJK.split(text):
            if _CJK.fullmatch(part):
                tokens.append(part)
            elif part.strip():
                tokens += self._processor.encode(part, out_type=str)
        return tokens

    def detokenize(self, labels: Sequence[int]) -> str:
        """Return the text that ``labels`` stand for."""
        if self._table is None:
            return str(self._processor.decode([int(label) for label in labels]))
        return "".join(self._table.tokens(labels)).replace(BLANK, " ").strip()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_processor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._processor = _processor(self._proto, "")

    def __repr__(self) -> str:
        how = digest(self._proto, self.symbols, self.unk_id, self.non_lang_syms)
        return f"SentencePieceTokenizer({self.vocab_size} pieces {how})"


_CJK = re.compile(r"([\u4e00-\u9fff])")


def _processor(proto: bytes, name: str) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=proto)
    except RuntimeError as error:
        raise ListError(f"{name} is not a SentencePiece model: {error}") from error
