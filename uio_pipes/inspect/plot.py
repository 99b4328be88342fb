"""``pipeline.plot(…)`` draws a few utterances: waveform, features and masks, or the timeline. A program plays them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch

from uio_pipes.audio.timeline import Event, Timeline, gaps
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.memory import kept
from uio_pipes.base.urls import plural
from uio_pipes.core.capabilities import Grid
from uio_pipes.inspect.peek import StageRecord, trace
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
LATIN_FONT = "DejaVu Sans"  # matplotlib's own
CHINESE_FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS"),
]
WIDE = 60  # most characters of a text that are shown


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


# Utterances with a timeline: channels, who says what in them, activity and tokens, on one axis in seconds

WIDTH = 12.0  # inches
WAVE, LANE, MARGIN = 0.8, 0.24, 0.85  # inches of a waveform, of a speaker, and of the title and the axis
SIZE, ACROSS = 7.0, 180  # points of a word; about how many characters of this size fit into the width
POINTS = 4000  # of a waveform; more than a figure has pixels
EPAD = "·"  # the token before a word
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")


class Picture:
    """The panels of an utterance, from top to bottom: each its height in inches, which is that of its axes, too."""

    def __init__(self, one: Drawn, timeline: Timeline) -> None:
        self.timeline = timeline
        waves = [] if one.wav is None else list(one.wav.reshape(-1, one.wav.shape[-1]))
        ends = [*(event.end for event in timeline.events), len(one.tokens) / one.rate, 0.1]
        self.seconds = len(waves[0]) / one.sample_rate if waves else max(ends)
        said: dict[int, dict[str, list[Event]]] = {channel: {} for channel in range(len(waves))}
        for event in timeline.events:  # one without a channel counts to the first
            said.setdefault(event.channel or 0, {}).setdefault(event.speaker, []).append(event)
        speakers = dict.fromkeys(speaker for channel in sorted(said) for speaker in said[channel])
        self.colors = dict(zip(speakers, cycle(COLORS), strict=False))
        self.panels = list[tuple[float, Callable[[Any], None]]]()
        for channel, lanes in sorted(said.items()):
            wave = waves[channel] if channel < len(waves) else None
            height = LANE * max(len(lanes), wave is None) + WAVE * (wave is not None)
            self.panels.append((height, partial(self._channel, f"channel {channel}", wave, lanes)))
        if one.activity is not None:
            self.panels.append((LANE * one.activity.shape[1], partial(self._activity, one, one.activity)))
        if one.tokens:
            self.panels.append((LANE, partial(self._tokens, one.tokens, one.rate)))
        if one.feat is not None and one.feat.dtype.kind == "f":
            self.panels.append((WAVE, partial(self._features, one.feat)))

    @property
    def height(self) -> float:
        """Inches of the picture."""
        return MARGIN + sum(height + 0.1 for height, _ in self.panels)

    def draw(self, figure: Any) -> None:
        """Draw all panels into a figure."""
        heights = [height for height, _ in self.panels]
        rows = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (height, draw) in zip(rows, self.panels, strict=True):
            axes.spines[:].set_visible(False)
            axes.tick_params(left=False, bottom=False, labelsize=8)
            axes.set(xlim=(0, self.seconds), ylim=(0, height))
            draw(axes)
            for start, end in gaps(self.timeline.known, self.seconds):
                axes.axvspan(start, end, fc="0.96", ec="0.8", hatch="///", linewidth=0, zorder=-1)
        rows[-1].set(xlabel="time (s)")
        rows[-1].spines["bottom"].set_visible(True)
        rows[-1].tick_params(bottom=True)

    def _channel(self, name: str, wave: Any, lanes: dict[str, list[Event]], axes: Any) -> None:
        ticks, top = {}, 0.0
        if wave is not None:
            ticks, top = {WAVE / 2: name}, WAVE
            low, high = (WAVE / 2 * (1 + 0.9 * edge / max(abs(wave).max(), 1e-4)) for edge in envelope(wave))
            color = self.colors[next(iter(lanes))] if len(lanes) == 1 else "0.4"
            axes.fill_between(np.linspace(0, self.seconds, len(low)), low, high, color=color, linewidth=0.4)
        for speaker, events in lanes.items():
            ticks[top + LANE / 2], color = speaker, self.colors[speaker]
            spans = [(event.start, event.end - event.start) for event in events]
            axes.broken_barh(spans, (top + 0.02, LANE - 0.04), color=(color, 0.2), edgecolor=color, linewidth=0.6)
            for event in events:
                self._write(axes, event.start, event.end, top, event.text)
            top += LANE
        axes.set_yticks(list(ticks), list(ticks.values()))

    def _activity(self, one: Drawn, activity: npt.NDArray[Any], axes: Any) -> None:
        names = [*(one.speakers or self.timeline.speakers), *[""] * activity.shape[1]][: activity.shape[1]]
        shift, first = one.frames or (self.seconds / len(activity), self.seconds / len(activity) / 2)
        times = first + shift * (np.arange(len(activity) + 1) - 0.5)
        for row, (name, active) in enumerate(zip(names[::-1], activity.T[::-1], strict=True)):  # the first on top
            tops = LANE * (row + 0.8 * np.append(active, active[-1:]))
            axes.fill_between(times, LANE * row, tops, step="post", color=self.colors.get(name, "0.6"), linewidth=0)
        axes.set_yticks(LANE * (np.arange(len(names)) + 0.4), [f"{name} active" for name in names[::-1]])

    def _tokens(self, tokens: Sequence[str], rate: float, axes: Any) -> None:
        frames = [at for at, token in enumerate(tokens) if token]
        axes.set_facecolor("0.95")
        for at, until in pairwise([*frames, len(tokens)]):
            said = tokens[at] != EPAD
            color = COLORS[0] if said else "0.6"
            axes.broken_barh([(at / rate, 1 / rate)], (0, LANE), color=(color, 0.4), linewidth=0)
            if said:
                self._write(axes, at / rate, until / rate, 0, tokens[at])
        axes.set_yticks([LANE / 2], ["text stream"])

    def _features(self, feat: npt.NDArray[Any], axes: Any) -> None:
        low, high = np.percentile(feat, [1, 99])
        edges = (0, self.seconds, 0, WAVE)
        axes.imshow(feat.T, "YlGnBu", aspect="auto", vmin=low, vmax=high, origin="lower", extent=edges)
        axes.set_yticks([WAVE / 2], [f"{feat.shape[1]} features"])

    def _write(self, axes: Any, start: float, end: float, bottom: float, text: str) -> None:
        """Write as much of a text as fits between two times."""
        from matplotlib.patches import Rectangle

        start, end = max(start, 0.0), min(end, self.seconds)
        room = int((end - start) / self.seconds * ACROSS)
        if room and text and glyphs().issuperset(map(ord, text)):
            at: dict[str, Any] = {"xy": (start, bottom + LANE * 0.47), "xytext": (2, 0), "textcoords": "offset points"}
            written = axes.annotate(text[: 2 * room], **at, fontsize=SIZE, va="center", family=families())
            written.set_parse_math(False)
            written.set_clip_path(Rectangle((start, bottom), end - start, LANE, transform=axes.transData))


def envelope(wave: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the lowest and the highest samples of at most ``POINTS`` blocks of a waveform (S,)."""
    step = -(-len(wave) // POINTS)
    blocks = np.pad(wave, (0, -len(wave) % step), mode="edge").reshape(-1, step)
    return blocks.min(1), blocks.max(1)


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
