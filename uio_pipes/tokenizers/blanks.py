"""Blanks in text with Chinese characters, which say nothing there."""

from __future__ import annotations

import re

# Chinese characters, their punctuation and full-width forms
_CHINESE = r"\u2e80-\u2fdf\u3001-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U000323af"
_BESIDE = re.compile(rf"(?<=[{_CHINESE}])\s+|\s+(?=[{_CHINESE}])")


def remove_blanks(text: str) -> str:
    """Return ``text`` without the blanks beside Chinese characters."""
    return _BESIDE.sub("", text)
