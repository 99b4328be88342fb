"""``pipeline.plot(…)``: waveform, features and masks of a few utterances, as a PNG."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.errors import PipelineError
from uio_pipes.seeing.probe import Record, trace

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.stage import Stage

__all__ = ["plot"]

MASKING = frozenset(["spec_aug", "spec_sub", "spec_trim"])
FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS"),
]
POINTS = 4000  # of a waveform: more than a figure has pixels
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Drawn:
    """What is drawn of one utterance. ``plain``: features before masking; ``masked``: what masking changed."""

    key: str
    text: str
    wav: Array | None
    sample_rate: int
    plain: Array | None
    feat: Array | None
    masked: Array | None
    made_by: str


def plot(pipeline: Pipeline, path: str | os.PathLike[str], count: int = 3) -> None:
    """Draw the first ``count`` utterances that ``pipeline`` makes (seed 0, epoch 0) to the PNG file ``path``.

    Raises: PipelineError if ``count`` is below 1, the utterances have neither audio nor features, or matplotlib is
    missing.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PipelineError(f"count must be a whole number above 0, not {count!r}; 3 fit on a page")
    utterances = type(pipeline)(_before_batches(pipeline.stages))
    drawn = [_drawn(utterances.stages, records) for records in trace(utterances, count)]
    columns = [name for name in ("wav", "plain", "feat") if any(getattr(d, name) is not None for d in drawn)]
    if not columns:
        raise PipelineError("there is nothing to draw: the utterances have neither audio nor features; add .fbank()")
    figure = _figure(len(drawn), len(columns))
    for row, one in zip(figure.subplots(len(drawn), len(columns), squeeze=False), drawn, strict=True):
        for axes, column in zip(row, columns, strict=True):
            _DRAW[column](axes, one)
        row[0].set_title(
            _label(one.key, one.text), loc="left", fontweight="bold", fontsize=9, parse_math=False, **_font(one.text)
        )
    figure.savefig(path, format="png", dpi=120)


def _before_batches(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    ends = [i for i, stage in enumerate(stages) if "batch" in stage.gives]
    return stages[: ends[0]] if ends else stages


def _drawn(stages: tuple[Stage, ...], records: list[Record]) -> _Drawn:
    last = records[-1].item
    if not isinstance(last, dict):
        raise PipelineError("plot draws utterances, and none comes out here; add .load_from_tar() or .load_from_raw()")
    wav, feat = _array(last.get("wav")), _array(last.get("feat"))
    plain = masked = None
    made_by = ""
    for i, stage in enumerate(stages):
        if stage.name in MASKING and feat is not None:
            before, after = (_array(records[j].item["feat"]) for j in (i - 1, i))
            plain = before if plain is None else plain
            made_by += f"{', ' if made_by else ''}{stage.name}"
            if before is not None and after is not None and before.shape == after.shape == feat.shape:
                masked = (before != after) | (masked if masked is not None else False)
    rate = int(last.get("sample_rate", 0))
    return _Drawn(str(last.get("key", "")), str(last.get("txt", "")), wav, rate, plain, feat, masked, made_by)


def _array(value: Any) -> Array | None:
    return torch.as_tensor(value).numpy() if isinstance(value, (torch.Tensor, np.ndarray)) else None


def _figure(rows: int, columns: int) -> Any:
    """A figure of its own: pyplot's global state is left alone."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PipelineError('plot needs matplotlib, which is missing: pip install "uio_pipes[plot]"') from error
    figure = Figure(figsize=(5.2 * columns, 2.6 * rows + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_wav(axes: Any, one: _Drawn) -> None:
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
    axes.set_title(f"{seconds:.2f} s, {one.sample_rate:,} Hz", loc="right", fontsize=8, color="dimgray")


def _draw_plain(axes: Any, one: _Drawn) -> None:
    _image(axes, one.plain, one.plain, "features before masks")


def _draw_feat(axes: Any, one: _Drawn) -> None:
    shown = one.feat
    if shown is not None and one.masked is not None:
        shown = np.ma.masked_array(shown, one.masked)
    _image(axes, shown, one.plain if one.plain is not None else one.feat, one.made_by or "features")
    if one.masked is not None:
        word = "masked" if one.made_by == "spec_aug" else "changed"
        axes.set_title(f"{word} {one.masked.mean():.0%} (red)", loc="right", fontsize=8, color="tab:red")


def _image(axes: Any, feat: Any, scale: Array | None, title: str) -> None:
    axes.set(xlabel="frame", ylabel="feature bin")
    if feat is None or scale is None:
        return
    from matplotlib import colormaps

    colors = colormaps["viridis"].with_extremes(bad="tab:red")
    low, high = np.percentile(scale, [1, 99])
    image = axes.imshow(
        feat.T, origin="lower", aspect="auto", interpolation="nearest", cmap=colors, vmin=low, vmax=high
    )
    axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=15)
    axes.set_title(f"{title}: {feat.shape[0]} × {feat.shape[1]}", loc="left", fontsize=8, color="dimgray")


_DRAW = {"wav": _draw_wav, "plain": _draw_plain, "feat": _draw_feat}


# Names


def _label(key: str, text: str) -> str:
    """Key and text; a text that no font here can draw is counted instead of drawn as boxes."""
    if not text:
        return key
    if not _plain(text) and not _font(text):
        return f"{key} · {len(text)} characters"
    return f"{key} · {text if len(text) <= 24 else text[:23] + '…'}"


def _plain(text: str) -> bool:
    """Whether matplotlib's own font has it: Latin, Greek, Cyrillic."""
    return all(ord(character) < 0x500 for character in text)


def _font(text: str) -> dict[str, str]:
    if _plain(text):
        return {}
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return next(({"fontname": name} for name in FONTS if name in known), {})
