"""The tokenizer for byte-pair encodings of OpenAI's package ``tiktoken``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.tokenizers.base import digest, import_extra


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
