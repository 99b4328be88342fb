"""``pipeline.plot(…)`` draws waveform, features and masks of a few utterances; a program of the machine plays them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.inspect.drawing import DRAW, Array, Drawn, families, label, new_figure
from uio_pipes.inspect.peek import StageRecord, trace

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
    """Play the audio of a finished utterance, and wait for its end.

    Raises: PipelineError if it has no audio, or there is no program to play it.
    """
    wav, rate = fields.get("wav"), int(fields.get("sample_rate", 0))
    if wav is None or isinstance(wav, (bytes, str)) or not rate:
        raise PipelineError(f"{fields['key']} has no audio to play: its pipeline decodes none")
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
    utterances = type(pipeline)(_before_batches(pipeline.stages))
    draw([_drawn(utterances.stages, records) for records in trace(utterances, count)], path)


def draw(drawn: list[Drawn], path: str | os.PathLike[str]) -> None:
    """Draw utterances to a PNG file. Raises: PipelineError if there is nothing to draw, or matplotlib is missing."""
    columns = [name for name in ("wav", "plain", "feat") if any(getattr(d, name) is not None for d in drawn)]
    if not columns:
        raise PipelineError("there is nothing to draw: the utterances have neither audio nor features; add .fbank()")
    figure = new_figure(len(drawn), len(columns))
    for row, one in zip(figure.subfigures(len(drawn), 1, squeeze=False)[:, 0], drawn, strict=True):
        for axes, column in zip(row.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
            DRAW[column](axes, one)
        text = label(one.key, one.text)
        title = row.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold", fontfamily=families())
        title.set_parse_math(False)
    figure.savefig(path, format="png", dpi=120)


def _before_batches(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    ends = [i for i, stage in enumerate(stages) if "batch" in stage.gives]
    return stages[: ends[0]] if ends else stages


def _drawn(stages: tuple[Stage, ...], records: list[StageRecord]) -> Drawn:
    last = records[-1].item
    if not isinstance(last, dict):
        raise PipelineError("plot draws utterances, and none comes out here; add .load_from_tar() or .load_from_raw()")
    feat = _array(last.get("feat"))
    plain, masked, names = None, None, []
    for i, stage in enumerate(stages):
        if stage.name in MASKING and feat is not None:
            before, after = (_array(records[j].item["feat"]) for j in (i - 1, i))
            plain = before if plain is None else plain
            masked = _changed(before, after, feat, masked)
            names.append(stage.name)
    return replace(finished(last), plain=plain, masked=masked, made_by=", ".join(names))


def _changed(before: Array | None, after: Array | None, feat: Array, masked: Array | None) -> Array | None:
    """Return which features stages changed, for the frames that are left at the end (spec_trim cuts some off)."""
    frames = len(feat)
    if before is None or after is None or min(len(before), len(after)) < frames or before.shape[1] != feat.shape[1]:
        return masked
    changed = before[:frames] != after[:frames]
    both: Array = changed if masked is None else masked | changed
    return both


def finished(fields: Mapping[str, Any]) -> Drawn:
    """Return what is to be drawn of a finished utterance, of which no stage is known."""
    wav, feat = _array(fields.get("wav")), _array(fields.get("feat"))
    rate = int(fields.get("sample_rate", 0))
    return Drawn(str(fields.get("key", "")), str(fields.get("txt", "")), wav, rate, None, feat, None, "")


def _array(value: Any) -> Array | None:
    if not isinstance(value, (torch.Tensor, np.ndarray)):
        return None
    array: Array = np.asarray(value)
    return array
