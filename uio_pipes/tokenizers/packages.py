"""The tokenizers of other packages: Hugging Face's ``tokenizers`` and ``transformers``, OpenAI's ``tiktoken``, Google's
``sentencepiece``."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.tokenizers.base import BLANK, NonLangSyms, SymbolTable, digest, import_extra, is_symbol


class HuggingFaceTokenizer:
    """Use a tokenizer of Hugging Face's package ``tokenizers``, with its own tokens and ids.

    Special and added tokens that stand in the text stay whole. No special token is put around the text, and nothing
    is cut or padded, whatever the file says.

    Args:
        tokenizer: path of a ``tokenizer.json``, a ``tokenizers.Tokenizer``, or a fast tokenizer of the package
            ``transformers``.

    Raises:
        PipelineError: the package is not installed, or ``tokenizer`` is none of these.
        ListError: the file cannot be read.
    """

    def __init__(self, tokenizer: str | os.PathLike[str] | Any) -> None:
        package = import_extra("tokenizers", "HuggingFaceTokenizer")
        tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if isinstance(tokenizer, (str, os.PathLike)):
            given = _read(package, os.fspath(tokenizer))
        elif isinstance(tokenizer, package.Tokenizer):
            given = package.Tokenizer.from_str(tokenizer.to_str())  # a copy: the user may change theirs
        else:
            raise PipelineError(
                "HuggingFaceTokenizer: tokenizer must be the path of a tokenizer.json, a tokenizers.Tokenizer or a "
                f"fast tokenizer of transformers, not {tokenizer!r}; .tokenize(…) takes any function, too"
            )
        given.no_padding()
        given.no_truncation()
        self._tokenizer = given
        self.unk_id = _unk_id(given)
        self.vocab_size = max(given.get_vocab(with_added_tokens=True).values()) + 1
        self._digest = digest(given.to_str())

    @property
    def has_blank(self) -> bool:
        """False if a blank becomes an unknown token. (Models that drop blanks, or split words there, know them.)"""
        encoding = self._tokenizer.encode("一 一", add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return not any(i == self.unk_id and start <= 1 < end for i, (start, end) in spans)

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into tokens (unknown ones as they are written), and return them and their labels."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        tokens, ids = encoding.tokens, encoding.ids
        if self.unk_id in ids:
            written = zip(tokens, ids, encoding.offsets, strict=True)
            tokens = [text[start:end] if i == self.unk_id else token for token, i, (start, end) in written]
        return tokens, ids

    def detokenize(self, labels: Sequence[int]) -> str:
        """Return the text that ``labels`` stand for, without special tokens."""
        return str(self._tokenizer.decode([int(label) for label in labels], skip_special_tokens=True))

    def __repr__(self) -> str:
        return f"HuggingFaceTokenizer({self.vocab_size} tokens {self._digest})"


def _read(package: Any, path: str) -> Any:
    if not os.path.isfile(path):
        raise ListError(f"cannot read the tokenizer {path}: there is no such file; save one with Tokenizer.save(path)")
    try:
        return package.Tokenizer.from_file(path)
    except Exception as error:  # the package raises no narrower class
        raise ListError(f"{path} is not a tokenizer.json of the package tokenizers: {error}") from error


def _unk_id(tokenizer: Any) -> int | None:
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:  # unigram
        return int(model["unk_id"])
    token = model.get("unk_token")
    return tokenizer.token_to_id(token) if token is not None else None


class TiktokenTokenizer:
    """Use an encoding of OpenAI's package ``tiktoken``. It works on bytes, so nothing is unknown.

    Special tokens that stand in the text stay whole.

    Args:
        encoding: a ``tiktoken.Encoding``, or the name of one ("o200k_base"), which is fetched from the network
            unless ``TIKTOKEN_CACHE_DIR`` has it.

    Raises:
        PipelineError: the package is not installed, or ``encoding`` is neither.
        ListError: there is no encoding of this name, or it cannot be fetched.
    """

    has_blank = True
    unk_id = None

    def __init__(self, encoding: str | Any) -> None:
        package = import_extra("tiktoken", "TiktokenTokenizer")
        if isinstance(encoding, str):
            encoding = _fetch(package, encoding)
        if not isinstance(encoding, package.Encoding):
            raise PipelineError(
                f"TiktokenTokenizer: encoding must be a name or a tiktoken.Encoding, not {encoding!r}; "
                'try tiktoken.get_encoding("o200k_base")'
            )
        self._encoding = encoding
        self._bytes = encoding.decode_single_token_bytes
        content = (
            encoding._pat_str,
            sorted(encoding._mergeable_ranks.items()),
            sorted(encoding._special_tokens.items()),
        )
        self._digest = digest(content)

    @property
    def vocab_size(self) -> int:
        """One more than the largest label."""
        return int(self._encoding.n_vocab)

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Split ``text`` into tokens; bytes that are not a whole character are written as ``\\xe4``."""
        ids: list[int] = self._encoding.encode(text, allowed_special="all")
        return [self._bytes(i).decode("utf-8", "backslashreplace") for i in ids], ids

    def detokenize(self, labels: Sequence[int]) -> str:
        """Return the text that ``labels`` stand for."""
        return str(self._encoding.decode([int(label) for label in labels]))

    def __getstate__(self) -> dict[str, Any]:
        return {"_encoding": self._encoding, "_digest": self._digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bytes = self._encoding.decode_single_token_bytes

    def __repr__(self) -> str:
        return f"TiktokenTokenizer({self._encoding.name}, {self.vocab_size} tokens {self._digest})"


def _fetch(package: Any, name: str) -> Any:
    if name not in package.list_encoding_names():
        raise ListError(f"tiktoken has no encoding {name!r}; it has {', '.join(package.list_encoding_names())}")
    try:
        return package.get_encoding(name)
    except Exception as error:  # the network and the cache raise many classes
        raise ListError(
            f"cannot fetch tiktoken's encoding {name!r} ({type(error).__name__}: {error}); without a network, "
            "set TIKTOKEN_CACHE_DIR to a folder that has it, or pass a tiktoken.Encoding"
        ) from error


class TransformersTokenizer:
    """A copy of a tokenizer of the package ``transformers``, independent of later changes to the original."""

    def __init__(self, tokenizer: Any) -> None:
        self._own = deepcopy(tokenizer)
        self._backend = getattr(self._own, "backend_tokenizer", None)  # of a fast one
        if self._backend is not None:
            self._backend.no_padding()
            self._backend.no_truncation()
        self._vocab: dict[str, int] = self._own.get_vocab()
        model = sorted(self._vocab.items()) if self._backend is None else self._backend.to_str()
        self._digest = digest(model, self._own.chat_template, sorted(self._own.special_tokens_map.items()))

    def template(self, given: str | None) -> str:
        """Return the chat template, which is ``given`` or its own. Raises: PipelineError if it has none."""
        try:
            return str(self._own.get_chat_template(given))
        except ValueError as error:
            raise PipelineError(
                "chat: the tokenizer has no chat template: use that of the model's instruct version, or give one, as "
                'in template={"user": "<|user|>{}\\n", "assistant": "<|assistant|>{}<|end|>\\n"}'
            ) from error

    def render(self, messages: list[dict[str, Any]], template: str, prompt: bool, tools: Any = None) -> str:
        """Return the text of a conversation, and after it that of the ``prompt`` of generation."""
        from jinja2 import TemplateSyntaxError

        options = {"chat_template": template, "add_generation_prompt": prompt, "tools": tools, "tokenize": False}
        try:
            return str(self._own.apply_chat_template(messages, **options))
        except TemplateSyntaxError as error:
            raise PipelineError(f"chat: the chat template has an error in line {error.lineno}: {error}") from error

    def token(self, text: str) -> int | None:
        """Return the number of ``text``, if it is one token."""
        number = self._vocab.get(text)
        return number if self.labels([text]) == [[number]] else None

    def labels(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the labels of each of ``texts``, which are tokenized as the one text that they are together."""
        if self._backend is None:  # which does not say where tokens stand
            return [self._own.encode(text, add_special_tokens=False) for text in texts]
        encoding = self._backend.encode("".join(texts), add_special_tokens=False)
        ids: list[int] = encoding.ids
        ends = [end for _, end in encoding.offsets]  # a token across two texts is of the second one
        cuts = [bisect_right(ends, length) for length in accumulate(map(len, texts))]
        return [ids[first:end] for first, end in pairwise([0, *cuts[:-1], len(ids)])]

    def __repr__(self) -> str:
        return f"{type(self._own).__name__}({len(self._vocab)} tokens {self._digest})"


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
        given = SymbolTable(symbol_table, unk, "SentencePieceTokenizer") if symbol_table is not None else None
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
