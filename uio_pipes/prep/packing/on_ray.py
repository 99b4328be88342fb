"""Packing on a Ray cluster: the pieces of a shard are sent from the nodes that cut them to the one that writes it.

The nodes need this package, the recordings, and the output folder (a shared file system, or a URL). The bytes are
those that one machine writes. A lost node's tasks run again elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from uio_pipes.base.errors import UioError
from uio_pipes.base.processes import import_ray, join_cluster
from uio_pipes.prep.packing.grouping import PackSettings, Placed, Placement, cut_task
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import CutResult
from uio_pipes.prep.writing.files import Folder
from uio_pipes.prep.writing.journal import Finished
from uio_pipes.prep.writing.shards import write_shard

ShardPiece = list[tuple[Utterance, CutResult]]  # of one shard
PER_CORE = 4  # tasks under way, for each core of the cluster
MOST = 3600.0  # seconds in which at least one of them must end


def pack_on_ray(
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
