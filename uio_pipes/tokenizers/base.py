"""The protocol of tokenizers, shared code, and the tokenizer for characters or words with a symbol table."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from uio_pipes.base.checks import require
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.base.hashing import module_name
from uio_pipes.base.memory import kept

BLANK = "▁"  # U+2581, which stands for a blank in symbol tables and byte-pair models
_BLANKS = frozenset([BLANK, " ", "Ġ"])  # Ġ: byte-level models


@runtime_checkable
class Tokenizer(Protocol):
    """The protocol of ``pipeline.tokenize``: any object with this method will do.

    A tokenizer may have two attributes: ``unk_id``, its label for unknown tokens (their share is then watched), and
    ``has_blank``, whether it has a symbol for a blank (if not, blanks in Mandarin text are removed). For WeNet's own
    tokenizers both are read from their ``symbol_table``.
    """

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Return the tokens and the labels of ``text``."""


def unk_id(tokenizer: object) -> int | None:
    """Return the label of ``tokenizer`` for unknown tokens, None if it has none or does not say."""
    label = getattr(tokenizer, "unk_id", None)
    if label is None:
        label = _wenet_table(tokenizer).get(str(getattr(tokenizer, "unk", "<unk>")))
    return label if isinstance(label, int) else None


def has_blank(tokenizer: object) -> bool:
    """Return whether ``tokenizer`` has a symbol for a blank; also True if it treats them itself, or does not say."""
    known = getattr(tokenizer, "has_blank", None)
    if known is not None:
        return bool(known)
    table = _wenet_table(tokenizer)
    return not table or bool(_BLANKS & table.keys()) or bool(getattr(tokenizer, "split_with_space", False))


def _wenet_table(tokenizer: object) -> Mapping[str, int]:
    table = getattr(tokenizer, "symbol_table", None)
    return table if isinstance(table, Mapping) else {}


def tokens_and_labels(tokenizer: Any, text: str) -> tuple[list[str], list[int]]:
    """Return what ``tokenizer``, which may be a function of the text, makes of ``text``; without tokens if it gives
    labels only. Raises: TypeError if it gives something else."""
    result: Any = getattr(tokenizer, "tokenize", tokenizer)(text)  # isinstance of a protocol takes 6 µs
    both = isinstance(result, tuple) and len(result) == 2 and not isinstance(result[1], int)
    tokens, labels = result if both else ([], result)
    try:
        if hasattr(labels, "keys"):  # a BatchEncoding, as tokenizers of transformers give it when they are called
            labels = labels["input_ids"]
        return list(tokens), [int(label) for label in labels]
    except (TypeError, ValueError, KeyError) as error:
        rule = "a tokenizer must return the labels of a text, whole numbers, or (tokens, labels)"
        raise TypeError(f"{rule}, not {result!r:.80}") from error


def digest(*parts: object) -> str:
    """Return a short hash of content, for the ``repr`` that goes into the fingerprint of a graph."""
    return blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def import_extra(package: str, user: str, extra: str = "tokenizers") -> Any:
    """Import the optional ``package`` that ``user`` needs. Raises: PipelineError with the remedy if it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        raise PipelineError(f"{user} needs the package {package}: pip install 'uio_pipes[{extra}]'") from error


# Chinese characters, their punctuation and full-width forms
_CHINESE = r"\u2e80-\u2fdf\u3001-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U000323af"
_BESIDE = re.compile(rf"(?<=[{_CHINESE}])\s+|\s+(?=[{_CHINESE}])")


def remove_blanks(text: str) -> str:
    """Return ``text`` without the blanks beside Chinese characters."""
    return _BESIDE.sub("", text)


TablePath = str | os.PathLike[str]


def read_symbols(path: TablePath, user: str = "") -> dict[str, int]:
    """Read a symbol table with one ``token id`` per line (WeNet's ``units.txt``, ``lang_char.txt``) for ``user``.

    Raises: ListError naming file and line if it is missing, empty or of another form.
    """
    table: dict[str, int] = {}
    for number, line in enumerate(_lines(path, f"the symbol table of {user}" if user else "the symbol table"), 1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or not parts[1].isdigit():
            raise ListError(f"{path}, line {number}: {line!r} is not `token id`, as in `<blank> 0`")
        table[parts[0]] = int(parts[1])
    if not table:
        raise ListError(f"the symbol table {path} is empty; it has one `token id` per line, as in `<blank> 0`")
    return table


def _lines(path: TablePath, what: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ListError(f"cannot read {what}, {path}: {getattr(error, 'strerror', error)}") from error


class SymbolTable:
    """A table of symbols and their numbers, in both directions. A symbol that is not in the table becomes ``unk``."""

    def __init__(self, given: TablePath | Mapping[str, int], unk: str, user: str) -> None:
        self.symbols = dict(given) if isinstance(given, Mapping) else read_symbols(given, user)
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
        is_path, what = isinstance(given, (str, os.PathLike)), "the list of symbols non_lang_syms"
        symbols = [] if given is None else _lines(given, what) if is_path else list(given)  # type: ignore[arg-type]
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

Segmenter = Callable[[str], Iterable[str]]
_ENTRY = re.compile(r"(.+?)( [0-9]+)?( [a-z]+)?")  # as jieba reads a line of a user dictionary


class JiebaSegmenter:
    """Cut Chinese text into words with the package ``jieba``, for ``CharTokenizer(…, segmenter=…)`` and ``uio dict``.

    The words are those of ``jieba.lcut`` with the user dictionary loaded. Blanks beside Chinese characters are removed
    first, so that a transcript with a blank after every character has the same words. jieba's dictionary is read once
    in a process, when a text is first cut, and never from its cache in the temporary folder, which may be that of
    another version.

    Args:
        user_dictionary: path of a file with more words, ``word``, ``word count`` or ``word count tag`` per line.
            Default: None.
        hmm: whether words that are in no dictionary are found by jieba's hidden Markov model; without it, they
            are cut into characters. Default: True.

    Raises:
        PipelineError: jieba is not installed.
        ListError: the user dictionary cannot be read; file and line are named.
    """

    def __init__(self, user_dictionary: str | os.PathLike[str] | None = None, hmm: bool = True) -> None:
        self._version = str(import_extra("jieba", "JiebaSegmenter", "words").__version__)
        self._user = "" if user_dictionary is None else _read(user_dictionary)
        self._hmm = hmm

    def __call__(self, text: str) -> list[str]:
        """Return the words of ``text`` without blanks."""
        words = _loaded(self._user).cut(remove_blanks(text.strip()), HMM=self._hmm)
        return [word for word in words if not word.isspace()]

    def __repr__(self) -> str:
        return f"JiebaSegmenter(jieba {self._version}, hmm={self._hmm}, {digest(self._user)})"


@kept("dictionaries of jieba", 4, lambda loaded: 100 * len(loaded.FREQ))  # a word, its number and the table of both
def _loaded(user_dictionary: str) -> Any:
    """Return jieba's tokenizer with its own dictionary and the lines of another one, shared by the whole process."""
    import jieba

    loaded = jieba.Tokenizer()
    loaded.FREQ, loaded.total = loaded.gen_pfdict(loaded.get_dict_file())
    loaded.initialized = True
    if user_dictionary:
        loaded.load_userdict(io.StringIO(user_dictionary))
    return loaded


def _read(path: str | os.PathLike[str]) -> str:
    """Return the lines of a user dictionary. Raises: ListError naming file and line."""
    lines = [line.strip() for line in _lines(path, "the user dictionary")]
    for number, line in enumerate(lines, 1):
        found = _ENTRY.fullmatch(line)
        if found is not None and any(character.isspace() for character in found[1]):
            raise ListError(f"{path}, line {number}: {line!r} is not `word`, `word count` or `word count tag`")
        if found is not None and int(found[2] or 1) == 0:  # jieba would cut the word in all of its dictionaries
            raise ListError(f"{path}, line {number}: {line!r} has a count of 0: leave the word out, or count from 1")
    return "".join(f"{line}\n" for line in lines if line)


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
        self._table = SymbolTable(symbol_table, unk, "CharTokenizer")
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
    return f"{module_name(named.__module__)}.{named.__qualname__}"
