"""Segmenters, which cut text into words. :class:`JiebaSegmenter` is for Chinese."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import ListError
from uio_pipes.tokenizers.base import digest, import_extra
from uio_pipes.tokenizers.blanks import remove_blanks

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


@lru_cache(maxsize=4)
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
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ListError(f"cannot read the user dictionary {path}: {error}") from error
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        found = _ENTRY.fullmatch(line)
        if found is not None and any(character.isspace() for character in found[1]):
            raise ListError(f"{path}, line {number}: {line!r} is not `word`, `word count` or `word count tag`")
        if found is not None and int(found[2] or 1) == 0:  # jieba would cut the word in all of its dictionaries
            raise ListError(f"{path}, line {number}: {line!r} has a count of 0: leave the word out, or count from 1")
    return "".join(f"{line}\n" for line in lines if line)
