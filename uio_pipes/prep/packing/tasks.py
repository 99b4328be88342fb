"""Tasks of packing: some utterances to cut, whole recordings together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from uio_pipes.prep.packing.grouping import PackSettings
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import CutResult, cut_recording

Placed = tuple[str, Utterance]  # shard and utterance
TASK = 64  # utterances that a process cuts at a time, at least: a recording is not divided


def tasks_of(placed: Iterable[Placed]) -> Iterator[list[Placed]]:
    """Yield tasks of whole recordings with about ``TASK`` utterances."""
    task: list[Placed] = []
    for _, recording in itertools.groupby(placed, key=lambda one: one[1].wav):
        task += recording
        if len(task) >= TASK:
            yield task
            task = []
    if task:
        yield task


def cut_task(task: list[Placed], settings: PackSettings) -> list[CutResult]:
    """Cut the audio of each utterance of a task, or make its features."""
    if settings.features is not None:
        from uio_pipes.prep.writing.features import make_features  # only here: packing audio needs no torch

        return make_features([utterance for _, utterance in task], settings.features)
    audio: list[CutResult] = []
    for wav, recording in itertools.groupby((utterance for _, utterance in task), key=lambda one: one.wav):
        audio += cut_recording(wav, list(recording), settings.sample_rate, settings.form)
    return audio
