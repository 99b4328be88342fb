"""Tokenizers: text to tokens and labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from uio_pipes.errors import ListError, PipelineError

__all__ = ["CharTokenizer", "SentencePieceTokenizer", "Tokenizer", "read_symbols"]


@runtime_checkable
class Tokenizer(Protocol):
    """What ``pipeline.tokenize`` takes: anything with this method."""

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Tokens and labels of ``text``."""


def read_symbols(path: str | os.PathLike[str]) -> dict[str, int]:
    """A symbol table, ``token id`` a line (WeNet's ``units.txt``, ``lang_char.txt``).

    Raises: ListError naming file and line if it is missing, empty or of another form.
    """
    table: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or not parts[1].isdigit():
            raise ListError(f"{path}, line {number}: {line!r} is not `token id`, as in `<blank> 0`")
        table[parts[0]] = int(parts[1])
    if not table:
        raise ListError(f"the symbol table {path} is empty; it has `token id` a line, as in `<blank> 0`")
    return table


def _lines(path: str | os.PathLike[str]) -> list[str]:
    try:
        return Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ListError(f"cannot read {path}: {error}") from error


class _Labels:
    """Symbols to numbers; what is not in the table becomes ``<unk>``."""

    def __init__(self, symbols: dict[str, int], unk: str) -> None:
        if unk not in symbols:
            raise PipelineError(f"the symbol table has no {unk!r} for unknown tokens; add it, or name yours with unk=…")
        self.symbols, self.unk = symbols, symbols[unk]

    def __call__(self, tokens: Iterable[str]) -> list[int]:
        return [self.symbols.get(token, self.unk) for token in tokens]


class CharTokenizer:
    """Characters, with a symbol table; a blank inside the text becomes ``▁`` (WeNet's character tokenizer).

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
        self.symbols = dict(symbol_table) if isinstance(symbol_table, dict) else read_symbols(symbol_table)
        self._labels = _Labels(self.symbols, unk)
        self.non_lang_syms = _symbols(non_lang_syms)
        self.split_with_space = split_with_space
        whole = "|".join(re.escape(s) for s in self.non_lang_syms)
        self._whole = re.compile(f"({whole})") if whole else None

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        return max(self.symbols.values()) + 1

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Characters (non-linguistic symbols kept whole) and their labels."""
        parts = self._whole.split(text.strip()) if self._whole else [text.strip()]
        tokens: list[str] = []
        for part in parts:
            if part in self.non_lang_syms:
                tokens.append(part)
            else:
                tokens += part.split(" ") if self.split_with_space else part.replace(" ", "▁")
        tokens = [t for t in tokens if t]
        return tokens, self._labels(tokens)

    def __repr__(self) -> str:
        return f"CharTokenizer({len(self.symbols)} symbols {_digest(self.symbols, *self.non_lang_syms)})"


class SentencePieceTokenizer:
    """Pieces of a SentencePiece model.

    Args:
        model: path of the model.
        symbol_table: with one, WeNet's byte-pair way: text in upper case, Chinese characters by themselves, labels
            from the table. Without, the model's own pieces and ids.
        unk: the token for what the table lacks.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        symbol_table: str | os.PathLike[str] | dict[str, int] | None = None,
        unk: str = "<unk>",
    ) -> None:
        try:
            self._proto = Path(model).read_bytes()
        except OSError as error:
            raise ListError(f"cannot read the SentencePiece model {model}: {error}") from error
        self._processor = _processor(self._proto, str(model))
        self.symbols: dict[str, int] | None = None
        if symbol_table is not None:
            self.symbols = dict(symbol_table) if isinstance(symbol_table, dict) else read_symbols(symbol_table)
            self._labels = _Labels(self.symbols, unk)

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        if self.symbols is None:
            return int(self._processor.get_piece_size())
        return max(self.symbols.values()) + 1

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Pieces and their labels."""
        if self.symbols is None:
            ids: list[int] = self._processor.encode(text)
            return self._processor.id_to_piece(ids), ids
        tokens: list[str] = []
        for part in _CJK.split(text.upper()):
            if _CJK.fullmatch(part):
                tokens.append(part)
            elif part.strip():
                tokens += self._processor.encode(part, out_type=str)
        return tokens, self._labels(tokens)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_processor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._processor = _processor(self._proto, "")

    def __repr__(self) -> str:
        return f"SentencePieceTokenizer({self.vocab_size} pieces {_digest(self._proto, self.symbols)})"


_CJK = re.compile(r"([\u4e00-\u9fff])")


def _processor(proto: bytes, name: str) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=proto)
    except RuntimeError as error:
        raise ListError(f"{name} is no SentencePiece model: {error}") from error


def _symbols(given: str | os.PathLike[str] | Iterable[str] | None) -> tuple[str, ...]:
    """Non-linguistic symbols, from a file or a list."""
    if given is None:
        return ()
    symbols = _lines(given) if isinstance(given, (str, os.PathLike)) else list(given)
    symbols = [s.strip() for s in symbols if s.strip()]
    for symbol in symbols:
        if not re.fullmatch(r"\{[^\s{}]+\}|<[^\s<>]+>|\[[^\s\[\]]+\]", symbol):
            raise ListError(f"{symbol!r} is no non-linguistic symbol; they look like {{NOISE}}, <SPK> or [LAUGH]")
    return tuple(symbols)


def _digest(*parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=6).hexdigest()
