"""Decoding results in the order of the list, from any number of ranks."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from uio_pipes.base.errors import NothingRead, PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.io.files import write_lines
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.lanes import LISTENERS
from uio_pipes.run.loader import Loader
from uio_pipes.run.options import RunOptions
from uio_pipes.run.partial import Changed, DecodedBatch, Partial, ResultWriter, State, changes, write_json
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ranks import private_group
from uio_pipes.stages.batches.pad import ORIGIN, keeping

logger = logging.getLogger("uio_pipes")
LANES = 16  # more than ranks × workers of most decodings; a later run may have as many
REMEDY = 'Decode as before, or begin again with OrderedResults(…, on_change="restart")'


class OrderedResults:
    """Write decoding results to one file in the order of the list, on any number of ranks, and resume after a kill.

    As in ``results = uio.OrderedResults("test.txt", pipeline)``, then ``for batch in results: results.add(texts)``, and
    at last ``results.finish()``. Each rank writes what it has to ``test.txt.partial``, a line a batch, together with
    the position of the loader. The same program goes on from there, with other numbers of ranks and workers, too, and
    the file is the same, byte by byte. Ranks only wait for each other in the beginning and in ``finish``.

    Args:
        path: the file to write: ``KEY result`` a line; a result that is no text is written as JSON.
        pipeline: what to decode, without shuffle, ending with ``pad``.
        about: what else must be the same for earlier results to be used again, such as the name of the model: strings,
            numbers, lists and dicts. Default: None, nothing.
        on_change: what happens to earlier results of another list, graph or ``about``: "error", or "restart". Default:
            "error".
        **options: options of :class:`Loader`, but for ``uneven`` and ``steps_per_epoch``. ``lanes`` is 16,
            but at most the number of items in the list, or, if that is more, ranks × workers, unless given.

    Raises:
        PipelineError: an option breaks a rule, or the pipeline does not end with ``pad``.
        StateError: earlier results are of something else; or all utterances failed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        pipeline: Graph,
        *,
        about: Mapping[str, Any] | None = None,
        on_change: str = "error",
        **options: Any,
    ) -> None:
        if own := {"uneven", "steps_per_epoch"} & options.keys():
            raise PipelineError(f"OrderedResults: {min(own)} cannot be set for decoding: each utterance comes once")
        if on_change not in ("error", "restart"):
            raise PipelineError(f"OrderedResults: on_change must be 'error' or 'restart', not {on_change!r}")
        graph = keeping(pipeline, ORIGIN, "OrderedResults")
        loader = Loader(graph, **{**options, "uneven": "join"})
        most = LANES if "lanes" not in options else 0
        if (lanes := min(most, loader.fingerprints()["list"][0] or most)) > loader.lanes:  # none of them without data
            loader = Loader(graph, **{**options, "uneven": "join", "lanes": lanes})
        if loader.world_size > 1 and not loader._options.ranks.members:
            raise PipelineError("OrderedResults: ranks must be able to wait for each other: init_process_group first")
        self.path, self.loader = Path(path), loader
        self._about = {**(about or {}), **loader.fingerprints()}
        self._summary = self.path.with_name(f"{self.path.name}.json")
        self._partial = Partial(self.path.with_name(f"{self.path.name}.partial"))
        self._batch: list[tuple[str, str]] = []  # origin and key of each utterance of the batch to be added
        self._failures: list[str] = []  # since the last batch that was added
        self._before: State = {}  # the position after that
        self._writer: ResultWriter
        self._state = self._from_first(lambda: self._begun(on_change == "restart"))

    @property
    def complete(self) -> bool:
        """True if an earlier run has decoded everything and written the file; no batch is left."""
        return self._state is None

    def _begun(self, restart: bool) -> State | None:
        """Return the state to go on from; None if the file is complete."""
        about = json.loads(json.dumps(self._about))
        if restart:
            self._partial.discard()
        elif self.path.is_file() and self._summary.is_file():
            before = json.loads(self._summary.read_text(encoding="utf-8"))["about"]
            if not (changed := changes(before, about)):
                logger.warning("%s is complete: nothing is left to decode", self.path)
                return None
            raise Changed(f"{self.path} belongs to another decoding: {changed}. {REMEDY}")
        self._summary.unlink(missing_ok=True)
        self._partial.folder.mkdir(parents=True, exist_ok=True)
        whole = Loader(self.loader.pipeline, seed=self.loader.seed, lanes=self.loader.lanes, rank=0, world_size=1)
        try:
            self._partial.begin(about, whole.state_dict())
        except Changed as error:
            raise Changed(f"{error}. {REMEDY}") from error
        return self._partial.state()

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of this rank that are not decoded yet; :meth:`add` notes the results of each."""
        if self._state is None:
            return
        loader = self.loader
        loader.load_state_dict(self._state)
        with self._partial.writer(loader.rank) as self._writer, noting_failures(loader) as self._failures:
            self._before = loader.state_dict()
            with contextlib.suppress(NothingRead):  # where nothing can be read, the failures say so in the end
                for batch in () if loader.finished else loader:
                    self._batch = list(zip(batch.pop(ORIGIN), batch["keys"], strict=True))
                    yield batch
                    if self._batch:
                        rule = "call add(results) with the results of a batch before the next"
                        raise PipelineError(f"OrderedResults: {rule}")
            self._note([])

    def add(self, results: Sequence[Any]) -> None:
        """Record the results of the last batch; they are on disk when this returns.

        Args:
            results: of each utterance of the batch, in its order: a text, or anything that JSON can hold.

        Raises:
            PipelineError: there are not as many as utterances in the batch.
        """
        if len(results) != len(self._batch):
            counts = f"{len(results)} results for {len(self._batch)} utterances"
            raise PipelineError(f"OrderedResults: {counts}: add takes one for each, in the order of batch['keys']")
        self._note([[*names, one] for names, one in zip(self._batch, results, strict=True)])

    def _note(self, rows: list[Any]) -> None:
        after = self.loader.state_dict()
        self._writer.add(DecodedBatch(moved(self._before, after), rows, [*self._failures]))
        self._before, self._batch = after, []
        self._failures.clear()

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yield key and result of all utterances that all ranks have decoded so far, in the order of the list."""
        rows = [row for record in self._partial.records() for row in record.utterances]
        return ((key, result) for _, key, result in sorted(rows, key=lambda row: row[0]))

    def finish(self) -> Path:
        """Wait for all ranks, and write the file; return its path. Failures are in ``PATH.failed``, if there are any.

        Raises:
            PipelineError: not all batches of a rank have been decoded.
        """
        if self._state is not None:
            self._from_first(lambda: None)  # all ranks are here
            self._from_first(self._write)
            self._state = None
        return self.path

    def _write(self) -> None:
        whole = Loader(self.loader.pipeline, seed=self.loader.seed, lanes=self.loader.lanes, rank=0, world_size=1)
        whole.load_state_dict(self._partial.state())
        if not whole.finished:
            raise PipelineError("OrderedResults: call finish() after the loop over the batches has ended on all ranks")
        failures = sorted({failure for record in self._partial.records() for failure in record.failures})
        texts = ((k, one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) for k, one in self.rows())
        write_lines(self.path, (f"{key} {text}".rstrip().replace("\n", " ") for key, text in texts))
        failed = self.path.with_name(f"{self.path.name}.failed")
        failed.unlink(missing_ok=True)
        if failures:
            write_lines(failed, (failure.replace("\n", " ") for failure in failures))
        write_json(self._summary, {"about": self._about, "failures": len(failures)})
        self._partial.discard()

    def _from_first(self, make: Any) -> Any:
        """Return what ``make`` returns on the first rank; an error there is raised on all ranks."""
        loader = self.loader
        made: list[Any] = [None, None]
        if loader.rank == 0 and not loader.peer:
            try:
                made[0] = make()
            except Exception as error:
                made[1] = error
        if (members := loader._options.ranks.members) and len(members) > 1:
            dist.broadcast_object_list(made, group=private_group(members), group_src=0)
        if made[1] is not None:
            raise made[1]
        return made[0]


@contextlib.contextmanager
def noting_failures(loader: Loader) -> Iterator[list[str]]:
    """Give a list that gets the loader's reports on what failed, of each when the batch after it comes."""
    LISTENERS.add(listener := _FailuresOf(loader))
    try:
        yield listener.found
    finally:
        LISTENERS.discard(listener)


class _FailuresOf:
    origins = False

    def __init__(self, loader: Loader) -> None:
        self.loader, self.found = loader, list[str]()

    def hear(self, message: Message, progress: EpochProgress, options: RunOptions) -> None:
        if progress is self.loader._progress and options.ranks.reads:
            self.found += map(str, message.reports)


def moved(before: State, after: State) -> State:
    """Return the lanes whose position has changed."""
    return {name: text for name, text in after.items() if name != "meta" and before.get(name) != text}
