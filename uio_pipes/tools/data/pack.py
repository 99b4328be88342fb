"""Writing data in another form: a pipeline becomes parts (tar shards, folders of a TouchDataset, of audio files, of
Lhotse's cuts), in parallel, restartable, each recording decoded once.

A shard is a tar of ``KEY.txt``, if there is a text, and ``KEY.wav`` (or what the audio is), ``size`` utterances each in
the order of the data. Features are packed as ``KEY.npy``, (T, F), in place of audio: those that are there, or those
that ``settings.features`` describes, computed of the audio.

Raw lists and Kaldi's tables are placed before anything is decoded, and so is all else that is to be grouped or split;
other data are read once, in their order. With ``groups`` utterances are grouped by length, as by CAT's ``pack_data``:
``10:500`` puts 10 <= frames < 500 in a folder ``10_500``; utterances in no group are left out and counted. An utterance
that cannot be made is missing in its shard, counted under a reason and listed in ``failed.jsonl``.

After a kill, the same call goes on, and ends with the same bytes. Jobs that each pack a ``split`` end with those of one
job.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from uio_pipes.base.errors import ListError, UioError
from uio_pipes.base.processes import in_order, window
from uio_pipes.base.urls import AnyPath, plural
from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.placement import (
    FeatureSettings,
    InOrder,
    LengthGroup,
    PackSettings,
    Placement,
    Places,
    Split,
    parse_group,
    parse_groups,
    parse_split,
)
from uio_pipes.tools.data.reading import Bad, TableUtterances, UtteranceList, open_utterances
from uio_pipes.tools.data.writing.journal import Finished, Journal, OtherPacking, note, write_failures, write_list
from uio_pipes.tools.data.writing.making import Placed, make_task, tasks_of
from uio_pipes.tools.data.writing.parts import PartWriter

__all__ = [
    "WHOLE", "FeatureSettings", "LengthGroup", "OtherPacking", "PackSettings", "Packing", "PackingFailed", "Split",
    "pack", "parse_group", "parse_groups", "parse_split",
]  # fmt: skip

WHOLE = Split()
TARS = (".tar", ".tar.zst")  # suffixes of shards
FEW = 8  # tasks of an unlisted source that are done here, since starting processes takes as long
LOST = (
    "a process was killed while it cut recordings, perhaps for want of memory (2 bytes a sample of a whole recording "
    "each): run the same command again with fewer --jobs; it goes on where it was"
)


class PackingFailed(UioError):
    """Packing cannot go on; the message says why and what to do."""


@dataclass
class Packing:
    """What was written, over all runs and jobs. ``waiting``: parts that other jobs still make; ``left_out``: utterances
    in no group, and sound ones that are not wanted; ``dropped``: fields that the new form has no place for."""

    data_list: str = ""
    shards: list[str] = field(default_factory=list)
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # could not be made
    dropped: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)  # the stages that made them
    waiting: int = 0

    @property
    def lost(self) -> str:
        """What was left out, by its reasons."""
        return ", ".join(f"{count} {reason}" for reason, count in sorted((self.left_out + self.failed).items()))

    def __str__(self) -> str:
        part = "shard" if self.shards and self.shards[0].endswith(TARS) else "part"
        size = f"{plural(self.utterances, 'utterance')} in {plural(len(self.shards), part)}"
        size += f", {self.frames / 360_000:.2f} h" if self.frames and not self.features else ""
        size += f", {self.bytes / 1e6:.1f} MB"
        size += f" ({plural(self.waiting, part)} still to come)" if self.waiting else ""
        size += f"; left out: {self.lost}" if self.lost else ""
        return size + (f"; without the fields {', '.join(self.dropped)}" if self.dropped else "")


def pack(
    source: AnyPath | Sequence[AnyPath],
    out: AnyPath,
    data_list: AnyPath,
    settings: PackSettings,
    jobs: int = 1,
    *,
    split: Split = WHOLE,
    texts: Sequence[str] | None = (),
    segments: str | None = None,
    allow_pipes: bool = False,
    fields: Mapping[str, str] | None = None,
    tolerance: float | None = None,
    retry_failed: bool = False,
) -> Packing:
    """Write the data of ``source`` as parts under ``out``; when all are complete, list them in ``data_list``.

    ``source``: data of any kind; or any number of Kaldi's scps, or of folders with one, with ``texts``, or the
    ``text`` beside each. ``texts`` None: utterances, of any source, need no transcript. All are paths or URLs.
    Utterances of one recording must stand together in a list, or it is opened again. Memory: about 2 bytes a sample of
    a whole recording for each of ``jobs`` processes, twice that in this one. ``segments``, ``allow_pipes``: of a Kaldi
    folder. ``fields``: names that fields have in the data, by ours. ``tolerance``: seconds by which audio may differ
    from what its list declares. ``retry_failed``: make parts again that lack an utterance.

    Raises: ListError, OtherPacking, PackingFailed.
    """
    folder = Folder(out)
    sources = [os.fspath(one) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    utterances = open_utterances(
        sources, texts=texts, segments=segments, allow_pipes=allow_pipes, fields=fields, tolerance=tolerance
    )
    settings = replace(_fitting(settings, utterances, sources[0]), needs_text=texts is not None)
    planned = isinstance(utterances, TableUtterances) or settings.groups or split.count > 1
    # First: nothing is written if the source is missing.
    places: Places = Placement(utterances, settings) if planned else InOrder(utterances, settings)
    journal = Journal(folder, split)
    try:
        given: dict[str, Any] = {"fields": dict(fields)} if fields else {}
        given |= {} if tolerance is None else {"tolerance": tolerance}
        given |= {"lengths": places.places} if isinstance(places, Placement) and settings.groups else {}
        journal.take_over(settings.identity() | {"list": places.digest} | given)
        _Packer(places, settings, folder, journal, split).run(jobs, retry_failed)
        journal.refresh()
        return _summary(places, settings, folder, os.fspath(data_list), journal)
    finally:
        journal.close()


def _fitting(settings: PackSettings, utterances: UtteranceList, source: str) -> PackSettings:
    """Return the settings for what the utterances have, audio or features. Raises: ListError if they do not fit."""
    stored = isinstance(utterances, TableUtterances) and getattr(utterances.table, "has_features", False)
    if stored:
        features = settings.features or FeatureSettings()
        if features.conf is not None:
            raise ListError(f"{source} has features already: leave --features out, or name a list of audio")
        settings = replace(settings, form="as-is", sample_rate=None, features=features)
    elif settings.features is not None and settings.features.conf is None:
        raise ListError(f"{source} has audio: say by --features which features are to be computed of it")
    if settings.features is not None and settings.to != "shards":
        raise ListError("features are packed into tars; a TouchDataset holds audio")
    return settings


class _Packer:
    """Makes the parts that are not there yet, and notes each in the journal."""

    def __init__(self, places: Places, settings: PackSettings, folder: Folder, journal: Journal, split: Split) -> None:
        self.places, self.settings, self.folder, self.journal, self.split = places, settings, folder, journal, split

    def run(self, jobs: int, retry_failed: bool) -> None:
        settled = self.journal.settled(retry_failed)
        placed = self.places.utterances(settled, self.split)
        todo = self.places.share(self.split) - settled.keys() if isinstance(self.places, Placement) else None
        if todo is not None and not todo:
            return
        total = self.places.total if todo is None else sum(map(self.places.count, todo))
        what = f"packing {str(self.split).replace('of', '/')}" if self.split.count > 1 else "packing"
        if self.places.apart and 1 < jobs <= len(todo or ()):
            for done in follow(self._whole_parts(placed, jobs), what, total):
                self.journal.finished[done.shard] = done
            return
        count, add = self.places.count, self.journal.add
        with PartWriter(self.folder, self.settings.to, self.journal.mark, count, add) as parts:
            made = self._made(tasks_of(placed), jobs)
            pairs = (pair for task, found in made for pair in zip(task, found, strict=True))
            for (name, utterance), one in follow(((pair, 1) for pair in pairs), what, total):
                parts.add(name, utterance.key, one, not isinstance(utterance, Bad))

    def _whole_parts(self, placed: Iterable[Placed], jobs: int) -> Iterator[tuple[Finished, int]]:
        """Have each part made and written by one process, so that no audio is sent between processes."""
        under_way: dict[str, list[Placed]] = {}

        def work() -> Iterator[tuple[str, tuple[Any, ...]]]:
            for one in placed:
                task = under_way.setdefault(name := one[0], [])
                task.append(one)
                if len(task) == self.places.count(name):
                    yield name, (self.folder.url, name, self.journal.mark, under_way.pop(name), self.settings)

        for name, done in self._elsewhere(_write_part, work(), jobs):
            yield done, self.places.count(name)

    def _made(self, tasks: Iterator[list[Placed]], jobs: int) -> Iterator[tuple[list[Placed], list[Any]]]:
        """Make the utterances of each task: here if these are few, in processes, or in threads where the utterances
        cannot be sent to processes, since they are being fetched."""
        few = 2 if isinstance(self.places, Placement) else FEW
        first = list(itertools.islice(tasks, few)) if jobs > 1 else []
        work: Any = ((task, (task, self.settings)) for task in itertools.chain(first, tasks))
        if len(first) < few:
            return ((task, make_task(*given)) for task, given in work)
        try:
            pickle.loads(pickle.dumps(first))
        except (TypeError, AttributeError, pickle.PicklingError):
            return _in_threads(work, jobs)
        return self._elsewhere(make_task, work, jobs)

    def _elsewhere(self, function: Any, work: Any, jobs: int) -> Iterator[tuple[Any, Any]]:
        torch = self.settings.features is not None or self.settings.to == "cuts"
        needed = ["uio_pipes.tools.data.writing.features"] if torch else []
        needed += ["uio_pipes.dsp.resample"] if self.settings.sample_rate else []
        return in_order(function, work, jobs, [__name__, *needed], PackingFailed(LOST))


def _in_threads(work: Any, jobs: int) -> Iterator[tuple[Any, Any]]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from window(pool.submit, work, jobs + 2)


def _write_part(out: str, name: str, mark: str, task: list[Placed], settings: PackSettings) -> Finished:
    """Write one whole part, and note it in the journal."""
    folder, done = Folder(out), list[Finished]()
    with PartWriter(folder, settings.to, mark, lambda _: len(task), done.append) as parts:
        for piece in tasks_of(task):
            for (_, one), made in zip(piece, make_task(piece, settings), strict=True):
                parts.add(name, one.key, made)
    note(folder, done[0], mark)
    return done[0]


def _summary(places: Places, settings: PackSettings, folder: Folder, data_list: str, journal: Journal) -> Packing:
    """Write the list, which names complete parts only, and the failures, if no part is waiting."""
    names = set(places.shards)
    finished = [journal.finished[name] for name in sorted(names & journal.finished.keys())]
    failures = [[*astuple(bad)] for bad in places.bad] + [failure for done in finished for failure in done.failed]
    packed = Packing(data_list, left_out=places.left_out, failed=Counter(reason for _, reason, _ in failures))
    packed.features = settings.features.stages() if settings.features else []
    packed.waiting = len(names) - len(finished)
    packed.dropped = sorted({name for done in finished for name in done.dropped})
    for done in finished:
        packed.utterances += done.utterances
        packed.frames += done.frames
        packed.bytes += done.bytes
        packed.shards += [folder.join(done.shard)] if done.utterances else []
    if packed.waiting:
        return packed
    if not packed.shards:
        first = f"; the first: {failures[0][2]}" if failures else ""
        raise ListError(f"nothing was packed: {packed.lost or 'no utterances'}{first}")
    write_failures(folder, failures)
    write_list(data_list, folder, [done for done in finished if done.utterances], settings.to)
    return packed
