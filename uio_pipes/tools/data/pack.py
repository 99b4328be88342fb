"""Packing a raw list or Kaldi's tables into WeNet's shards: in parallel, restartable, each recording decoded once.

A shard is a tar of ``KEY.txt``, if there is a text, and ``KEY.wav`` (or what the audio is), ``size`` utterances each
in the list's order. A ``name`` that ends neither in .tar nor in .tar.zst (compressed, with checksums) makes folders of
a TouchDataset instead of tars. Features are packed as ``KEY.npy``, (T, F), in place of audio: those that ``feats.scp``
points at, or those that ``settings.features`` describes, computed of the audio.

With ``groups`` utterances are grouped by length, as by CAT's ``pack_data``: ``10:500`` puts 10 <= frames < 500 in a
folder ``10_500``; utterances in no group are left out and counted. An utterance that cannot be cut is missing in its
shard, counted under a reason and listed in ``failed.jsonl``.

After a kill, the same call goes on, and ends with the same bytes. Jobs that each pack a ``split`` end with those of one
job.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from uio_pipes.base.errors import ListError, UioError
from uio_pipes.base.processes import import_ray, in_order, join_cluster
from uio_pipes.base.urls import AnyPath, counted
from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.placement import (
    FeatureSettings,
    LengthGroup,
    PackSettings,
    Placed,
    Placement,
    Split,
    cut_task,
    parse_group,
    parse_groups,
    parse_split,
    tasks_of,
)
from uio_pipes.tools.data.reading.utterance_lists import Utterance, UtteranceList, names_features, open_list
from uio_pipes.tools.data.writing.cutting import CutResult
from uio_pipes.tools.data.writing.journal import Finished, Journal, OtherPacking, write_failures, write_shard_list
from uio_pipes.tools.data.writing.shards import TARS, ShardWriter, write_shard


def open_sources(
    sources: Sequence[str], texts: Sequence[str] | None, settings: PackSettings, segments: str | None, allow_pipes: bool
) -> tuple[UtteranceList, PackSettings]:
    """Return the utterances of ``sources``, and the settings by which they are packed. Raises: ListError."""
    sources = [source.rstrip("/") or "/" for source in sources]
    stored = [names_features(source) for source in sources]
    if (settings.features is not None or any(stored)) and not settings.name.endswith(TARS):
        raise ListError("features are packed into tars; a TouchDataset holds audio")
    if not any(stored):
        return _audio(sources, texts, settings, segments, allow_pipes), settings
    if not all(stored):
        raise ListError(f"{sources[stored.index(False)]} does not name features, as {sources[stored.index(True)]} does")
    if segments is not None:
        raise ListError("segments cut recordings, and features are of utterances already: leave them out")
    features = settings.features or FeatureSettings()
    if features.conf is not None:
        raise ListError(f"{sources[0]} has features already: leave --features out, or name a list of audio")
    from uio_pipes.tools.data.writing.features import FeatureTables  # only here: it needs torch

    settings = replace(settings, form="as-is", sample_rate=None, features=features)
    return FeatureTables(sources, texts, measured=bool(settings.groups)), settings


def _audio(
    sources: Sequence[str], texts: Sequence[str] | None, settings: PackSettings, segments: str | None, allow_pipes: bool
) -> UtteranceList:
    if len(sources) > 1:
        raise ListError(
            f"{sources[0]} and {len(sources) - 1} more are not features: of audio, one list is packed at a time (join "
            "raw lists with cat, Kaldi folders with utils/combine_data.sh)"
        )
    if texts:
        raise ListError(
            "transcripts of their own (--text) belong to feats.scp: a raw list and a Kaldi folder have them"
        )
    if settings.features is not None and settings.features.conf is None:
        raise ListError(f"{sources[0]} has audio: say by --features which features are to be computed of it")
    return open_list(sources[0], segments, allow_pipes, needs_text=texts is not None)


__all__ = [
    "WHOLE", "FeatureSettings", "LengthGroup", "OtherPacking", "PackSettings", "Packing", "PackingFailed", "Split",
    "names_features", "pack", "parse_group", "parse_groups", "parse_split",
]  # fmt: skip

WHOLE = Split()
LOST = (
    "a process was killed while it cut recordings, perhaps for want of memory (2 bytes a sample of a whole recording "
    "each): run the same command again with fewer --jobs; it goes on where it was"
)


class PackingFailed(UioError):
    """Packing cannot go on; the message says why and what to do."""


@dataclass
class Packing:
    """The result of a packing, over all of its runs and jobs; ``waiting``: shards that other jobs still pack."""

    shards: list[str] = field(default_factory=list)
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # in no group
    failed: Counter[str] = field(default_factory=Counter)  # could not be cut
    features: list[str] = field(default_factory=list)  # the stages that made them
    waiting: int = 0

    def __str__(self) -> str:
        lost = (f"{count} {reason}" for reason, count in sorted((self.left_out + self.failed).items()))
        without = ", ".join(lost)
        size = f"{counted(self.utterances, 'utterance')} in {counted(len(self.shards), 'shard')}"
        size += f", {self.bytes / 1e6:.1f} MB"
        size += f" ({counted(self.waiting, 'shard')} still to come)" if self.waiting else ""
        return f"{size}; left out: {without}" if without else size


def pack(
    source: AnyPath | Sequence[AnyPath],
    out: AnyPath,
    shard_list: AnyPath,
    settings: PackSettings,
    jobs: int = 1,
    *,
    split: Split = WHOLE,
    texts: Sequence[str] | None = (),
    segments: str | None = None,
    allow_pipes: bool = False,
    executor: Literal["local", "ray"] = "local",
    retry_failed: bool = False,
) -> Packing:
    """Pack ``source`` into shards under ``out``; when all are complete, write their paths to ``shard_list``.

    ``source``: a raw list or a Kaldi folder; or scps of features, or folders with one, any number of them, with
    ``texts``, or the ``text`` beside each. ``texts`` None: utterances, of any source, need no transcript. ``out``,
    ``shard_list``: as ``source``, paths or URLs. Utterances of one
    recording must stand together in the list, or it is opened again. Memory: about 2 bytes a sample of a whole
    recording for each of ``jobs`` processes, twice that in this one. ``executor`` "ray": on the cluster that
    RAY_ADDRESS names, or on one of ``jobs`` cores started here. ``segments``, ``allow_pipes``: of a Kaldi folder.
    ``retry_failed``: pack shards again that lack an utterance.

    Raises: ListError, OtherPacking, PackingFailed.
    """
    folder = Folder(out)
    sources = [os.fspath(one) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    utterances, settings = open_sources(sources, texts, settings, segments, allow_pipes)
    placement = Placement(utterances, settings)  # first: nothing is written if the list is missing
    journal = Journal(folder, split)
    try:
        journal.take_over(settings.identity(utterances.digest) | ({"text": ""} if texts is None else {}))
        todo = placement.share(split) - journal.settled(retry_failed)
        _pack_share(placement, todo, folder, journal, split, jobs, executor)
        journal.refresh()
        return _summary(placement, folder, os.fspath(shard_list), journal)
    finally:
        journal.close()


def _pack_share(
    placement: Placement, todo: set[str], folder: Folder, journal: Journal, split: Split, jobs: int, executor: str
) -> None:
    if not todo:
        return
    placed, total = placement.utterances(todo), sum(map(placement.count, todo))
    what = f"packing {str(split).replace('of', '/')}" if split.count > 1 else "packing"
    written: Iterator[Finished] | None = None
    if executor == "ray":
        written = _pack_on_ray(tasks_of(placed), placement, folder, str(split), jobs)
    elif 1 < jobs <= len(todo) and placement.apart:
        written = _shards_in_pool(placed, placement, folder, str(split), jobs)
    if written is not None:
        for done in follow(((done, placement.count(done.shard)) for done in written), what, total):
            journal.finished[done.shard] = done
        return
    with ShardWriter(folder, str(split), placement.count, journal.add) as shards:
        cut = _cut_all(placed, placement.settings, jobs)
        pairs = (pair for task, audios in cut for pair in zip(task, audios, strict=True))
        for (shard, utterance), audio in follow(((pair, 1) for pair in pairs), what, total):
            shards.add(shard, utterance, audio)


def _shards_in_pool(
    placed: Iterable[Placed], placement: Placement, folder: Folder, mark: str, jobs: int
) -> Iterator[Finished]:
    """Have each shard cut and written by one process, so that no audio is sent between processes."""
    work: Any = (
        (shard, (folder.url, shard, mark, task, placement.settings)) for shard, task in _whole_shards(placed, placement)
    )
    return (done for _, done in in_order(_pack_shard, work, jobs, _preload(placement.settings), PackingFailed(LOST)))


def _preload(settings: PackSettings) -> list[str]:
    """Return the modules to be imported once for all helper processes; torch only to resample, and for features."""
    if settings.features is not None:
        return ["uio_pipes.tools.data.pack", "uio_pipes.tools.data.writing.features"]
    return ["uio_pipes.tools.data.pack", *(["uio_pipes.dsp.resample"] if settings.sample_rate else [])]


def _whole_shards(placed: Iterable[Placed], placement: Placement) -> Iterator[tuple[str, list[Placed]]]:
    under_way: dict[str, list[Placed]] = {}
    for one in placed:
        task = under_way.setdefault(one[0], [])
        task.append(one)
        if len(task) == placement.count(one[0]):
            yield one[0], under_way.pop(one[0])


def _pack_shard(out: str, shard: str, mark: str, task: list[Placed], settings: PackSettings) -> Finished:
    pieces = (
        zip((utterance for _, utterance in part), cut_task(part, settings), strict=True) for part in tasks_of(task)
    )
    return write_shard(Folder(out), shard, mark, itertools.chain.from_iterable(pieces))


def _summary(placement: Placement, folder: Folder, shard_list: str, journal: Journal) -> Packing:
    all_shards = set(placement.shards)
    failures = [[bad.key, bad.reason, bad.detail] for bad in placement.bad] + list(journal.failures(all_shards))
    packed = Packing(left_out=placement.left_out, failed=Counter(reason for _, reason, _ in failures))
    packed.features = placement.settings.features.stages() if placement.settings.features else []
    packed.waiting = len(all_shards - journal.finished.keys())
    finished = [journal.finished[name] for name in sorted(all_shards & journal.finished.keys())]
    for done in finished:
        packed.utterances += done.utterances
        packed.frames += done.frames
        packed.bytes += done.bytes
        packed.shards += [folder.join(done.shard)] if done.utterances else []
    if packed.waiting:
        return packed
    if not packed.shards:
        _nothing(failures, packed)
    write_failures(folder, failures)
    # The list is written last: it names complete shards only.
    full = [done for done in finished if done.utterances]
    write_shard_list(shard_list, folder, full, tars=placement.settings.name.endswith(TARS))
    return packed


def _nothing(failures: list[list[str]], packed: Packing) -> NoReturn:
    lost = ", ".join(f"{count} {reason}" for reason, count in sorted((packed.left_out + packed.failed).items()))
    first = f"; the first: {failures[0][2]}" if failures else ""
    raise PackingFailed(f"nothing was packed: {lost or 'no utterances'}{first}")


def _cut_all(
    placed: Iterable[Placed], settings: PackSettings, jobs: int
) -> Iterator[tuple[list[Placed], list[CutResult]]]:
    if jobs == 1:
        return ((task, cut_task(task, settings)) for task in tasks_of(placed))
    work: Any = ((task, (task, settings)) for task in tasks_of(placed))
    return in_order(cut_task, work, jobs, _preload(settings), PackingFailed(LOST))


# On Ray: the pieces of a shard are sent from the nodes that cut them to the one that writes it. The nodes need this
# package, the recordings, and the output folder (a shared file system, or a URL). The bytes are those that one machine
# writes. A lost node's tasks run again elsewhere.

ShardPiece = list[tuple[Utterance, CutResult]]  # of one shard
PER_CORE = 4  # tasks under way, for each core of the cluster
MOST = 3600.0  # seconds in which at least one of them must end


def _pack_on_ray(
    tasks: Iterator[list[Placed]], placement: Placement, folder: Folder, mark: str, jobs: int
) -> Iterator[Finished]:
    """Cut ``tasks`` and write the shards; yield each shard when it is in its place.

    Joins the cluster that ``RAY_ADDRESS`` names, or starts Ray on ``jobs`` cores of this machine.
    """
    ray = import_ray("executor ray")
    begun = join_cluster(ray, jobs)
    try:
        yield from _Cluster(ray, placement, folder, mark).pack(tasks)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[-1]
        raise UioError(f"a task on Ray failed: {first}; the same command goes on where it was") from error
    finally:
        if begun:
            ray.shutdown()


class _Cluster:
    def __init__(self, ray: Any, placement: Placement, folder: Folder, mark: str) -> None:
        self.ray, self.placement, self.folder, self.mark = ray, placement, folder, mark
        self.cut, self.write = ray.remote(_cut_pieces), ray.remote(_write)
        self.limit = PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.pieces: dict[str, list[Any]] = {}
        self.seen: dict[str, int] = {}
        self.cutting: list[Any] = []
        self.writing: list[Any] = []

    def pack(self, tasks: Iterator[list[Placed]]) -> Iterator[Finished]:
        for task in tasks:
            self._begin(task)
            yield from self._take(0)
            while len(self.cutting) + len(self.writing) >= self.limit:
                yield from self._take(MOST)
        while self.writing:
            yield from self._take(MOST)

    def _begin(self, task: list[Placed]) -> None:
        shards = list(dict.fromkeys(shard for shard, _ in task))
        refs = self.cut.options(num_returns=len(shards)).remote(task, shards, self.placement.settings)
        for shard, ref in zip(shards, [refs] if len(shards) == 1 else refs, strict=True):
            self.pieces.setdefault(shard, []).append(ref)
            self.cutting.append(ref)
        for shard, _ in task:
            self.seen[shard] = self.seen.get(shard, 0) + 1
        for shard in shards:
            if self.seen[shard] == self.placement.count(shard):
                self.writing.append(self.write.remote(self.folder.url, shard, self.mark, *self.pieces.pop(shard)))

    def _take(self, timeout: float) -> Iterator[Finished]:
        """Yield the shards that have been written; with a ``timeout``, wait until something ends.

        Raises: UioError if nothing does.
        """
        under_way = self.cutting + self.writing
        done, _ = self.ray.wait(under_way, num_returns=len(under_way) if timeout == 0 else 1, timeout=timeout,
                                fetch_local=False)  # fmt: skip
        if timeout and not done:
            raise UioError(
                f"none of {len(under_way)} tasks on Ray has ended within {timeout:.0f} s; free there: "
                f"{self.ray.available_resources()}. End other jobs or add nodes; the same command goes on where it was"
            )
        ended = set(done)
        self.cutting = [ref for ref in self.cutting if ref not in ended]
        for ref in [ref for ref in self.writing if ref in ended]:
            self.writing.remove(ref)
            yield self.ray.get(ref)


def _cut_pieces(task: list[Placed], shards: list[str], settings: PackSettings) -> Any:
    pieces: dict[str, ShardPiece] = {shard: [] for shard in shards}
    for (shard, utterance), audio in zip(task, cut_task(task, settings), strict=True):
        pieces[shard].append((utterance, audio))
    return pieces[shards[0]] if len(shards) == 1 else tuple(pieces.values())


def _write(out: str, shard: str, mark: str, *pieces: ShardPiece) -> Finished:
    return write_shard(Folder(out), shard, mark, itertools.chain.from_iterable(pieces))
