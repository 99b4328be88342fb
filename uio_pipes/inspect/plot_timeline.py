"""Draws an utterance with a timeline: channels, who says what in them, activity and tokens, on one axis in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.timeline import Event, Timeline, gaps
from uio_pipes.inspect.labels import families, glyphs

if TYPE_CHECKING:
    from uio_pipes.inspect.plot import Drawn

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
