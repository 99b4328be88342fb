"""``pipeline.plot(…)`` draws a few utterances: waveform, features and masks, or the timeline. A program plays them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch

from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.capabilities import Grid
from uio_pipes.inspect.labels import families, label
from uio_pipes.inspect.peek import StageRecord, trace
from uio_pipes.inspect.plot_timeline import EPAD, WIDTH, Picture, envelope
from uio_pipes.stages.features.frame_labels import Activity
from uio_pipes.stages.features.grid import USUAL, grid_after
from uio_pipes.stages.text.align import Align

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph
    from uio_pipes.core.stage import Stage

PLAYERS = (
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "error"),
    ("play", "-q"),
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
)


def play(fields: Mapping[str, Any]) -> None:
    """Play the audio of a finished utterance, and wait until it ends.

    Raises: PipelineError if it has no audio, or there is no program to play it.
    """
    wav, rate = fields.get("wav"), int(fields.get("sample_rate", 0))
    if wav is None or isinstance(wav, (bytes, str)) or not rate:
        raise PipelineError(f"{fields['key']} has no audio to play: add .decode_audio() to the pipeline")
    player = next((one for one in PLAYERS if shutil.which(one[0])), None)
    if player is None:
        names = ", ".join(one[0] for one in PLAYERS)
        raise PipelineError(f"there is no program to play audio ({names}): install one, or use --save")
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, np.atleast_2d(np.asarray(wav)).T, rate, subtype="PCM_16")
        done = subprocess.run([*player, file.name], check=False)
    if done.returncode:
        raise PipelineError(f"{player[0]} could not play {fields['key']} (exit code {done.returncode})")


MASKING = frozenset(["spec_aug", "spec_sub", "spec_trim"])


def plot(pipeline: Graph, path: str | os.PathLike[str], count: int = 3) -> None:
    """Draw the first ``count`` utterances that ``pipeline`` makes (seed 0, epoch 0) to the PNG file ``path``.

    Raises: PipelineError if ``count`` is below 1, the utterances have neither audio nor features, or matplotlib is
    missing.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PipelineError(f"count must be a whole number above 0, not {count!r}; 3 fit on a page")
    utterances = pipeline._before_batches
    draw([_drawn(utterances.stages, records) for records in trace(utterances, count)], path)


def draw(drawn: list[Drawn], path: str | os.PathLike[str]) -> None:
    """Draw utterances to a PNG file. Raises: PipelineError if there is nothing to draw, or matplotlib is missing."""
    pictures = [None if d.timeline is None else Picture(d, d.timeline) for d in drawn]
    columns = [name for name in ("wav", "plain", "feat") if any(getattr(d, name) is not None for d in drawn)]
    if not columns and not any(pictures):
        raise PipelineError("there is nothing to draw: the utterances have neither audio nor features; add .fbank()")
    heights = [ROW if picture is None else picture.height for picture in pictures]
    figure = new_figure(WIDTH if any(pictures) else 5.2 * len(columns), sum(heights))
    rows = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, one, picture in zip(rows, drawn, pictures, strict=True):
        if picture is not None:
            picture.draw(row)
        elif columns:
            for axes, column in zip(row.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
                DRAW[column](axes, one)
        text = label(one.key, one.text)
        title = row.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold", fontfamily=families())
        title.set_parse_math(False)
    figure.savefig(path, format="png", dpi=120)


def _drawn(stages: tuple[Stage, ...], records: list[StageRecord]) -> Drawn:
    last = records[-1].item
    if not isinstance(last, dict):
        raise PipelineError("plot draws utterances, but there are none; add .load_from_tar() or .load_from_raw()")
    feat = _array(last.get("feat"))
    plain, masked, names = None, None, []
    for i, stage in enumerate(stages):
        if stage.name in MASKING and feat is not None:
            before, after = (_array(records[j].item["feat"]) for j in (i - 1, i))
            plain = before if plain is None else plain
            masked = _changed(before, after, feat, masked)
            names.append(stage.name)
    known = _streams(stages, records) if last.get("timeline") is not None else {}
    return replace(finished(last), plain=plain, masked=masked, made_by=", ".join(names), **known)


def _streams(stages: tuple[Stage, ...], records: list[StageRecord]) -> dict[str, Any]:
    """Return what stages know of the frames of ``activity``, and of the text stream."""
    known = dict[str, Any]()
    for number, (stage, record) in enumerate(zip(stages, records, strict=True)):
        if isinstance(stage, Activity):
            given = Grid(stage.shift, stage.shift / 2) if stage.shift else None
            before = given or grid_after(stages[:number], record.item.get("sample_rate", USUAL)) or Grid(0.0, 0.0)
            known["frames"] = before.joined(stage.subsampling, stage.subsampling)
            known["speakers"] = () if isinstance(stage.speakers, int) else stage.speakers
        elif isinstance(stage, Align):
            write = getattr(stage.tokenizer, "detokenize", lambda ids: str(*ids))
            shown = {stage.text_padding: "", stage.in_word_padding: "", stage.zero_padding: "", -1: ""}
            shown[stage.end_of_text_padding] = EPAD
            stream = records[-1].item["feat"][:, 0].tolist()
            known |= {"tokens": [shown[one] if one in shown else write([one]) for one in stream], "rate": stage.rate}
    return known


def _changed(before: Array | None, after: Array | None, feat: Array, masked: Array | None) -> Array | None:
    """Return which features stages changed, for the frames that are left at the end (spec_trim cuts some off)."""
    frames = len(feat)
    if before is None or after is None or min(len(before), len(after)) < frames or before.shape[1] != feat.shape[1]:
        return masked
    changed = before[:frames] != after[:frames]
    both: Array = changed if masked is None else masked | changed
    return both


def finished(fields: Mapping[str, Any]) -> Drawn:
    """Return the data to draw of a finished utterance whose stages are unknown."""
    wav, feat = _array(fields.get("wav")), _array(fields.get("feat"))
    rate = int(fields.get("sample_rate", 0))
    key, text, timeline = str(fields.get("key", "")), str(fields.get("txt", "")), fields.get("timeline")
    return Drawn(key, text, wav, rate, None, feat, None, "", timeline, _array(fields.get("activity")))


def _array(value: Any) -> Array | None:
    if not isinstance(value, (torch.Tensor, np.ndarray)):
        return None
    array: Array = np.asarray(value)
    return array


# Panels

ROW = 2.8  # inches of an utterance without a timeline
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
    timeline: Timeline | None = None
    activity: Array | None = None  # (T, speakers)
    speakers: Sequence[str] = ()  # whose columns these are; as they begin to speak, if not given
    frames: tuple[float, float] | None = None  # seconds from one of T to the next, and the centre of the first
    tokens: Sequence[str] = ()  # of each frame of the text stream; "": none, EPAD: one begins after it
    rate: float = 1.0  # of these frames, in Hz


def new_figure(width: float, height: float) -> Any:
    """Return a figure of that many inches without using pyplot, whose state is global."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PipelineError('plot needs matplotlib, which is missing: pip install "uio_pipes[plot]"') from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_wav(axes: Any, one: Drawn) -> None:
    axes.set(xlabel="time (s)", ylabel="amplitude")
    if one.wav is None:
        return
    wav = one.wav.reshape(-1, one.wav.shape[-1])[0]
    seconds = len(wav) / one.sample_rate
    low, high = envelope(wav)
    times = np.linspace(0, seconds, len(low))
    axes.fill_between(times, low, high, linewidth=0.5, color="tab:blue", edgecolor="tab:blue")
    axes.set(xlim=(0, seconds))
    axes.set_title(f"{seconds:.2f} s, {one.sample_rate:,} Hz", loc="left", fontsize=8, color="dimgray")


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

    colors = colormaps["YlGnBu"].with_extremes(bad="tab:red")
    low, high = np.percentile(scale, [1, 99])
    image = axes.imshow(
        feat.T, origin="lower", aspect="auto", interpolation="nearest", cmap=colors, vmin=low, vmax=high
    )
    axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=15)
    axes.set_title(f"{title}: {feat.shape[0]} × {feat.shape[1]}", loc="left", fontsize=8, color="dimgray")


DRAW: dict[str, Callable[[Any, Drawn], None]] = {
    "wav": _draw_wav,
    "plain": lambda axes, one: _image(axes, one.plain, one.plain, "features before masks"),
    "feat": _draw_feat,
}
