"""Titles and words of a picture, in the fonts that there are."""

from __future__ import annotations

from functools import cache

from uio_pipes.base.memory import kept
from uio_pipes.base.urls import plural

LATIN_FONT = "DejaVu Sans"  # matplotlib's own
CHINESE_FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS"),
]
WIDE = 60  # most characters of a text that are shown


def label(key: str, text: str) -> str:
    """Return the key and the text. Characters that no font has are escaped in a key; such a text is only counted."""
    known = glyphs()
    drawn = "".join(c if ord(c) in known else c.encode("unicode_escape").decode() for c in " ".join(key.split()))
    said = " ".join(text.split())
    if any(ord(c) not in known for c in said):
        said = plural(len(said), "character")
    return " · ".join(part for part in (drawn, said if len(said) <= WIDE else f"{said[: WIDE - 1]}…") if part)


@cache
def families() -> list[str]:
    """Return matplotlib's own font, for Latin, Greek and Cyrillic, and one for Chinese, if there is one."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return [LATIN_FONT, *[name for name in CHINESE_FONTS if name in known][:1]]


@kept("characters of fonts", 1, lambda found: 64 * len(found))
def glyphs() -> frozenset[int]:
    """Return all characters that the fonts have."""
    from matplotlib import font_manager

    fonts = (font_manager.get_font(font_manager.findfont(name)) for name in families())
    return frozenset(code for font in fonts for code in font.get_charmap())
