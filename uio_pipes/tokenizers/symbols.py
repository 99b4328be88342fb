"""Symbol tables and non-linguistic symbols, from files or from Python objects."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from uio_pipes.base.errors import ListError, PipelineError

TablePath = str | os.PathLike[str]


def read_symbols(path: TablePath) -> dict[str, int]:
    """Read a symbol table with one ``token id`` per line (WeNet's ``units.txt``, ``lang_char.txt``).

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
        raise ListError(f"the symbol table {path} is empty; it has one `token id` per line, as in `<blank> 0`")
    return table


def _lines(path: TablePath) -> list[str]:
    try:
        return Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ListError(f"cannot read {path}: {error}") from error


class SymbolTable:
    """Symbols and their numbers, both ways. A symbol that is not in the table becomes ``unk``."""

    def __init__(self, given: TablePath | Mapping[str, int], unk: str) -> None:
        self.symbols = dict(given) if isinstance(given, Mapping) else read_symbols(given)
        if unk not in self.symbols:
            raise PipelineError(f"the symbol table has no {unk!r} for unknown tokens; add it, or name yours with unk=…")
        self.unk, self.unk_id = unk, self.symbols[unk]
        self._names = {number: symbol for symbol, number in self.symbols.items()}

    @property
    def size(self) -> int:
        """One more than the largest label."""
        return max(self._names) + 1

    def labels(self, tokens: Iterable[str]) -> list[int]:
        """Return the numbers of ``tokens``."""
        return [self.symbols.get(token, self.unk_id) for token in tokens]

    def tokens(self, labels: Iterable[int]) -> list[str]:
        """Return the symbols of ``labels``."""
        return [self._names.get(int(label), self.unk) for label in labels]


class NonLangSyms:
    """Non-linguistic symbols like ``{NOISE}``, ``<SPK>``, ``[LAUGH]``, which stay whole, from a file or a list.

    With ``ignore_case`` they are found in any case.

    Raises: ListError if one has another form, or the file cannot be read.
    """

    def __init__(self, given: TablePath | Iterable[str] | None, *, ignore_case: bool = False) -> None:
        symbols = [] if given is None else _lines(given) if isinstance(given, (str, os.PathLike)) else list(given)
        self.symbols = tuple(s.strip() for s in symbols if s.strip())
        for symbol in self.symbols:
            if not is_symbol(symbol):
                raise ListError(
                    f"{symbol!r} is not a non-linguistic symbol; they look like {{NOISE}}, <SPK> or [LAUGH]"
                )
        self._written = {s.upper() if ignore_case else s: s for s in self.symbols}
        self._ignore_case = ignore_case
        whole = "|".join(re.escape(s) for s in self.symbols)
        self._pattern = re.compile(f"({whole})", re.IGNORECASE if ignore_case else 0) if whole else None

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Split ``text`` into parts, each with whether it is a symbol. Parts of blanks alone are left out."""
        if self._pattern is None:
            return [(text, False)]
        parts = []
        for i, part in enumerate(self._pattern.split(text)):
            if i % 2:
                parts.append((self._written[part.upper() if self._ignore_case else part], True))
            elif part.strip():
                parts.append((part, False))
        return parts


def is_symbol(token: str) -> bool:
    """Return whether it has the form of a non-linguistic symbol, as symbols of the model's own have, too."""
    return _FORM.fullmatch(token) is not None


_FORM = re.compile(r"\{[^\s{}]+\}|<[^\s<>]+>|\[[^\s\[\]]+\]")
