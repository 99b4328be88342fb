"""``normalize_text``: changes the text before it is tokenized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.tokenizers.blanks import remove_blanks


@dataclass(frozen=True)
class NormalizeText(OfStream):
    """Change ``txt`` by a function, or remove the blanks in Mandarin text.

    Args:
        function: gets the text and returns the new one. Default: None, which removes every run of blanks that has a
            Chinese character or Chinese punctuation on at least one side: ``"今天 iPhone 15 发布"`` becomes
            ``"今天iPhone 15发布"``. Blanks between words of other scripts stay. ``tokenize`` does this by itself if
            its tokenizer has no symbol for a blank.
        of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
    """

    name: ClassVar[str] = "normalize_text"
    note: ClassVar[str] = "when the text is needed"
    reads: ClassVar[frozenset[str]] = frozenset(["txt"])
    writes: ClassVar[frozenset[str]] = frozenset(["txt"])

    function: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.function is None or callable(self.function)
        require(ok, self.name, "the argument must be a function of the text", self.function, "try str.upper")

    def apply(self, sample: Sample, draws: Draws) -> None:
        text = text_of(sample)
        new = remove_blanks(text) if self.function is None else self.function(text)
        if not isinstance(new, str):
            raise DataError("bad_text", f"normalize_text: the function gave {new!r}, which is not text")
        sample.fields["txt"] = new


def text_of(sample: Sample) -> str:
    """Return the sample's text. Raises: DataError ``missing_text`` if it has none."""
    text = sample.fields.get("txt")
    if not isinstance(text, str):
        raise DataError("missing_text", "the utterance has no text")
    return text
