"""Draws the panels of ``pipeline.plot(…)``: waveform, features, masks, and titles in a font that has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import counted

LATIN_FONT = "DejaVu Sans"  # matplotlib's own
CHINESE_FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS"),
]
WIDE = 60  # most characters of a text that are shown
POINTS = 4000  # of a waveform; more than a figure has pixels
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Drawn:
    """The data to draw of one utterance. ``plain``: features before masking; ``masked``: values that it changed."""

    key: str
    text: str
    wav: Array | None
    sample_rate: int
    plain: Array | None
    feat: Array | None
    masked: Array | None
    made_by: str


def new_figure(rows: int, columns: int) -> Any:
    """Return a figure without using pyplot, whose state is global."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PipelineError('plot needs matplotlib, which is missing: pip install "uio_pipes[plot]"') from error
    figure = Figure(figsize=(5.2 * columns, 2.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_wav(axes: Any, one: Drawn) -> None:
    axes.set(xlabel="time (s)", ylabel="amplitude")
    if one.wav is None:
        return
    wav = one.wav.reshape(-1, one.wav.shape[-1])[0]
    seconds = len(wav) / one.sample_rate
    step = -(-len(wav) // POINTS)
    blocks = np.pad(wav, (0, -len(wav) % step), mode="edge").reshape(-1, step)
    times = np.linspace(0, seconds, len(blocks))
    axes.fill_between(times, blocks.min(1), blocks.max(1), linewidth=0.5, color="tab:blue", edgecolor="tab:blue")
    axes.set(xlim=(0, seconds))
    axes.set_title(f"{seconds:.2f} s, {one.sample_rate:,} Hz", loc="left", fontsize=8, color="dimgray")


def _draw_plain(axes: Any, one: Drawn) -> None:
    _image(axes, one.plain, one.plain, "features before masks")


def _draw_feat(axes: Any, one: Drawn) -> None:
    feat, masked = one.feat, one.masked
    if feat is None or masked is None:
        return _image(axes, feat, feat, one.made_by or "features")
    kept = feat[~masked]  # equal to those before the masks, unless a later stage changed the scale
    plain = one.plain
    same = plain is not None and plain.shape[1] == feat.shape[1] and np.array_equal(kept, plain[: len(feat)][~masked])
    scale = plain if same else kept
    _image(axes, np.ma.masked_array(feat, masked), scale, one.made_by)
    word = "masked" if one.made_by == "spec_aug" else "changed"
    axes.set_title(f"{word} {masked.mean():.0%} (red)", loc="right", fontsize=8, color="tab:red")
    return None


def _image(axes: Any, feat: Any, scale: Array | None, title: str) -> None:
    axes.set(xlabel="frame", ylabel="feature bin")
    if feat is None or scale is None or not scale.size:
        return
    from matplotlib import colormaps

    colors = colormaps["viridis"].with_extremes(bad="tab:red")
    low, high = np.percentile(scale, [1, 99])
    image = axes.imshow(
        feat.T, origin="lower", aspect="auto", interpolation="nearest", cmap=colors, vmin=low, vmax=high
    )
    axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=15)
    axes.set_title(f"{title}: {feat.shape[0]} × {feat.shape[1]}", loc="left", fontsize=8, color="dimgray")


DRAW = {"wav": _draw_wav, "plain": _draw_plain, "feat": _draw_feat}


# Titles


def label(key: str, text: str) -> str:
    """Return the key and the text. Characters that no font has are escaped in a key; such a text is only counted."""
    known = _glyphs()
    drawn = "".join(c if ord(c) in known else c.encode("unicode_escape").decode() for c in " ".join(key.split()))
    said = " ".join(text.split())
    if any(ord(c) not in known for c in said):
        said = counted(len(said), "character")
    return " · ".join(part for part in (drawn, said if len(said) <= WIDE else f"{said[: WIDE - 1]}…") if part)


@cache
def families() -> list[str]:
    """Return matplotlib's own font, for Latin, Greek and Cyrillic, and one for Chinese, if there is one."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return [LATIN_FONT, *[name for name in CHINESE_FONTS if name in known][:1]]


@cache
def _glyphs() -> frozenset[int]:
    """Return all characters that the fonts have."""
    from matplotlib import font_manager

    fonts = (font_manager.get_font(font_manager.findfont(name)) for name in families())
    return frozenset(code for font in fonts for code in font.get_charmap())
