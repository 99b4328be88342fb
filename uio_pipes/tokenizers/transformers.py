"""Tokenizers of Hugging Face's package ``transformers``, which know their model's chat template."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.tokenizers.base import digest


class TransformersTokenizer:
    """A tokenizer of the package ``transformers`` as it is now, whatever becomes of the one that is given."""

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
                "chat: the tokenizer has no chat template: take that of the model's instruct version, or give one, as "
                'in template={"user": "<|user|>{}\\n", "assistant": "<|assistant|>{}<|end|>\\n"}'
            ) from error

    def render(self, messages: list[dict[str, Any]], template: str, prompt: bool, tools: Any = None) -> str:
        """Return the text of a conversation, and after it that of the ``prompt`` of generation."""
        from jinja2 import TemplateSyntaxError

        options = {"chat_template": template, "add_generation_prompt": prompt, "tools": tools, "tokenize": False}
        try:
            return str(self._own.apply_chat_template(messages, **options))
        except TemplateSyntaxError as error:
            raise PipelineError(f"chat: the chat template is not right in line {error.lineno}: {error}") from error

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
