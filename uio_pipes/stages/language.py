"""``language``: the language of the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage, added
from uio_pipes.stages.normalize_text import text_of

# Unicode ranges. A match is one unit: a word, or a character in scripts that put no blanks between words.
_UNITS = {
    "han": r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]",
    "kana": r"[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f]",
    "thai": r"[\u0e01-\u0e4e]",
    "latin": r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u036f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a]+",
    "cyrillic": r"[\u0400-\u052f\u1c80-\u1c8f]+",
    "greek": r"[\u0370-\u03ff\u1f00-\u1fff]+",
    "arabic": r"[\u0620-\u065f\u066e-\u06d3\u06d5-\u06ef\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]+",
    "hebrew": r"[\u0591-\u05f4]+",
    "devanagari": r"[\u0900-\u0963\u0970-\u097f]+",
    "hangul": r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]+",
}
_FIND = re.compile("|".join(f"(?P<{script}>{unit})" for script, unit in _UNITS.items()))

_SCRIPTS = {
    "zh": "han", "ja": "kana", "ko": "hangul", "th": "thai", "el": "greek", "he": "hebrew", "hi": "devanagari",
    **dict.fromkeys(["en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "id", "vi"], "latin"),
    **dict.fromkeys(["ru", "uk", "bg"], "cyrillic"),
    **dict.fromkeys(["ar", "fa", "ur"], "arabic"),
}  # fmt: skip


@dataclass(frozen=True)
class Language(PerUtterance):
    """Find the language of ``txt``: sets ``lang`` (an ISO 639-1 code), and ``task`` to "transcribe", as WeNet does.

    The batch then has ``langs`` and ``tasks``, lists of str.

    Args:
        detect: a function of the text that returns its language; ``limited_langs`` is then ignored. Default: None,
            which decides by the script that has the most units in the text: words, or characters for Chinese,
            Japanese and Thai. Chinese characters count as Japanese in a text with kana, and if "zh" is not among
            ``limited_langs``.
        limited_langs: codes of the languages that may be found. Each must have a script of its own: of en, fr, de
            and other Latin ones, for example, only one can be given. A tie, or a text in none of these scripts,
            goes to the first one. Default: ("zh", "en").
        needs_text: False leaves utterances without a text as they are. Default: True, they are ``missing_text``.
    """

    name: ClassVar[str] = "language"
    reads: ClassVar[frozenset[str]] = frozenset(["txt"])
    writes: ClassVar[frozenset[str]] = frozenset(["lang", "task"])

    detect: Callable[[str], str] | None = None
    limited_langs: Sequence[str] = ("zh", "en")
    needs_text: bool = added(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.detect is None or callable(self.detect)
        require(ok, self.name, "detect must be a function of the text", self.detect, "name it with detect=…")
        langs, remedy = self.limited_langs, "pass a function that distinguishes them with detect=…"
        ok = isinstance(langs, (list, tuple)) and bool(langs) and all(isinstance(lang, str) for lang in langs)
        require(ok, self.name, "limited_langs must be a list of languages", langs, "WeNet's is ['zh', 'en']")
        object.__setattr__(self, "limited_langs", tuple(langs))
        if self.detect is None:
            known = f"limited_langs must be of {', '.join(sorted(_SCRIPTS))}"
            require(all(lang in _SCRIPTS for lang in langs), self.name, known, langs, remedy)
            scripts = {_SCRIPTS[lang] for lang in langs}
            require(len(scripts) == len(langs), self.name, "each language must have a script of its own", langs, remedy)

    def check(self, before: Sequence[Stage]) -> None:
        if self.needs_text:
            super().check(before)

    def apply(self, sample: Sample, draws: Draws) -> None:
        if not self.needs_text and "txt" not in sample.fields:
            return
        text = text_of(sample)
        lang = self._by_script(text) if self.detect is None else self.detect(text)
        if not isinstance(lang, str):
            raise DataError("bad_language", f"detect gave {lang!r}, which is not a language")
        sample.fields["lang"], sample.fields["task"] = lang, "transcribe"

    def _by_script(self, text: str) -> str:
        units = Counter(match.lastgroup for match in _FIND.finditer(text))
        if "ja" in self.limited_langs and (units["kana"] or "zh" not in self.limited_langs):
            units["kana"] += units.pop("han", 0)
        return max(self.limited_langs, key=lambda lang: units[_SCRIPTS[lang]])  # the first of equals
