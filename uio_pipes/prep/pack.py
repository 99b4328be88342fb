"""Packing a raw list into WeNet's shards: in parallel, restartable, each recording opened and decoded once.

A shard is a tar of ``KEY.txt`` and ``KEY.wav`` (or flac), ``size`` utterances each in the list's order. With
``groups`` it goes by length, as CAT's ``pack_data`` does it: ``10:500`` keeps 10 <= frames < 500, in a folder
``10_500``; what lies in no group is left out and counted. Killed at any moment, the same call goes on, and ends with
the same bytes. An utterance that cannot be cut leaves its shard one shorter, is counted under a reason and listed in
``failed.jsonl``.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from uio_pipes.prep.cutting import cut_recording
from uio_pipes.prep.files import write_lines
from uio_pipes.prep.grouping import Group, PackSettings, Plan, parse_group
from uio_pipes.prep.journal import Journal, OtherPacking
from uio_pipes.prep.lists import Utterance
from uio_pipes.prep.processes import end_with_parent, pool_context
from uio_pipes.prep.progress import follow
from uio_pipes.prep.shard_writer import Audio, ShardWriter

__all__ = ["Group", "OtherPacking", "PackSettings", "Packed", "PackingFailed", "pack", "parse_group"]

TASK = 64  # utterances that a process cuts at a time, or more: a recording is not divided

Placed = tuple[str, Utterance]  # shard and utterance


class PackingFailed(Exception):
    """Packing cannot go on; the message says why and what to do."""


@dataclass
class Packed:
    """What a packing came to, all of its runs together."""

    shards: list[Path] = field(default_factory=list)
    utterances: int = 0
    bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # in no group
    failed: Counter[str] = field(default_factory=Counter)  # could not be cut

    def __str__(self) -> str:
        lost = (f"{count} {reason}" for reason, count in sorted((self.left_out + self.failed).items()))
        without = ", ".join(lost)
        size = f"{self.utterances} utterances in {len(self.shards)} shards, {self.bytes / 1e6:.1f} MB"
        return f"{size}; left out: {without}" if without else size


def pack(source: Path, out: Path, shard_list: Path, settings: PackSettings, jobs: int = 1) -> Packed:
    """Pack the raw list ``source`` into shards under ``out``; at the end write their paths to ``shard_list``.

    Utterances of one recording must stand together in the list, or it is opened again. Memory: about 2 bytes a sample
    of a whole recording for each of ``jobs`` processes, twice that in this one.

    Raises: OtherPacking, PackingFailed, ListProblem.
    """
    journal = Journal(out, settings.identity(source))
    try:
        for leftover in out.rglob(".*.tar.*"):
            leftover.unlink()  # of a packing that was killed
        plan = Plan(settings)
        total = sum(1 for _ in plan.place(source, journal.finished))
        if total:
            with ShardWriter(out, journal) as shards:
                results = _cut_all(plan.place(source, frozenset(journal.finished)), settings, jobs)
                for shard, utterance, audio in follow(results, f"packing {source.parent.name}", total):
                    shards.add(shard, utterance, audio)
        return _summary(out, shard_list, journal, plan)
    finally:
        journal.close()


def _summary(out: Path, shard_list: Path, journal: Journal, plan: Plan) -> Packed:
    failures = list(journal.failures())
    packed = Packed(left_out=plan.left_out, failed=Counter(reason for _, reason, _ in failures))
    for name, done in sorted(journal.finished.items()):
        packed.utterances += done.utterances
        packed.bytes += done.bytes
        packed.shards += [out / name] if done.utterances else []
    lines = (dict(zip(("key", "reason", "detail"), failure, strict=True)) for failure in failures)
    write_lines(out / "failed.jsonl", (json.dumps(line, ensure_ascii=False) for line in lines))
    # The list is written last: it names complete shards only.
    write_lines(shard_list, map(str, packed.shards))
    return packed


def _tasks(placed: Iterator[Placed]) -> Iterator[list[Placed]]:
    """Whole recordings, as many as make ``TASK`` utterances."""
    task: list[Placed] = []
    for _, recording in itertools.groupby(placed, key=lambda one: one[1].wav):
        task += recording
        if len(task) >= TASK:
            yield task
            task = []
    if task:
        yield task


def _cut(task: list[Placed], settings: PackSettings) -> list[Audio]:
    audio: list[Audio] = []
    for wav, recording in itertools.groupby((utterance for _, utterance in task), key=lambda one: one.wav):
        audio += cut_recording(wav, list(recording), settings.sample_rate, settings.form)
    return audio


def _cut_all(
    placed: Iterator[Placed], settings: PackSettings, jobs: int
) -> Iterator[tuple[tuple[str, Utterance, Audio], int]]:
    """Shard, utterance and audio, in the list's order, each worth 1 to a progress bar."""
    cut = ((task, _cut(task, settings)) for task in _tasks(placed)) if jobs == 1 else _in_pool(placed, settings, jobs)
    for task, audios in cut:
        for (shard, utterance), audio in zip(task, audios, strict=True):
            yield (shard, utterance, audio), 1


def _in_pool(placed: Iterator[Placed], settings: PackSettings, jobs: int) -> Iterator[tuple[list[Placed], list[Audio]]]:
    """Results in order; few tasks are under way at a time, so that memory is bounded however slow the disk is."""
    context = pool_context(preload=["recipes.common.cutting"])
    running: deque[tuple[list[Placed], Future[list[Audio]]]] = deque()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent) as pool:
        try:
            for task in _tasks(placed):
                running.append((task, pool.submit(_cut, task, settings)))
                if len(running) > jobs + 2:
                    done, future = running.popleft()
                    yield done, future.result()
            while running:
                done, future = running.popleft()
                yield done, future.result()
        except BrokenProcessPool as error:
            raise PackingFailed(
                "a process was killed while it cut recordings, perhaps for want of memory (2 bytes a sample of a whole "
                "recording each): run the same command again with fewer --jobs; it goes on where it was"
            ) from error
        finally:
            for _, future in running:
                future.cancel()
