"""The record of a run: the losses of every utterance, with where it came from, in Parquet files that any reader of
Parquet can open. A thread writes them while training continues.

A Parquet file that was cut off is lost, as its index stands at its end. So each second the newest file is written anew
with what has come since, in place of itself, until it is large enough and another one begins.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist

from uio_pipes.base.checks import is_whole
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.core.lane import RowOrigin
from uio_pipes.formats.lists.quarantine import home
from uio_pipes.io.files import atomic_path
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.lanes import LISTENERS
from uio_pipes.run.loader import Loader
from uio_pipes.run.options import RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ranks import is_grouped

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("uio_pipes")
EVERY = 0.9  # seconds
LARGE = 20_000  # rows of a file after which another one begins
RECENT = 1_024  # batches whose origin is kept until they are logged
NO_PYARROW = 'a record is written and read by pyarrow: pip install "uio_pipes[parquet]"'
PLACE = {"step": "int64", "epoch": "int32", "rank": "int32", "lane": "int32", "pass": "int64", "k": "int64"}
ROW = {"row": "int32", "ranks": "int32", "batch": "int64"}  # of the batch; how many; its number, as the loader counts
ORIGIN = {
    **{"key": "string", "source": "string", "shard": "string", "item": "int64", "offset": "int64", "part": "string"},
    **{"frames": "int32", "tokens": "int32", "sample_rate": "int32", "speaker": "string"},
}
REPEATED = ["source", "shard", "speaker"]  # texts that many rows share
COLUMNS = PLACE | ROW | ORIGIN  # that every record has; the numbers come after them


class Delivered(NamedTuple):
    """Where a batch comes from, according to the loader."""

    step: int
    epoch: int
    rank: int
    lane: int
    pass_: int
    k: int
    ranks: int
    origins: Sequence[RowOrigin]


class Logged(NamedTuple):
    """A batch that was logged. ``ready``: what the trainer's device has to reach before its numbers can be read."""

    keys: list[str]
    step: int | None
    delivered: Delivered | None
    numbers: dict[str, torch.Tensor]
    ready: Any


class _Deliveries:
    """Where batches come from, by their keys, until they are logged: those of one loader, or of any in this process.
    ``wanted``: peers on a mesh get the same batches, which the first of them logs."""

    origins = True

    def __init__(self, loader: Loader | None) -> None:
        self.of: OrderedDict[tuple[str, ...], Delivered] = OrderedDict()
        self.wanted = loader is None or loader.peer == 0
        self.loader = None if loader is None else weakref.ref(loader)

    def hear(self, message: Message, progress: EpochProgress, options: RunOptions) -> None:
        """Take note of a batch that is delivered, and the position of the epoch behind it."""
        loader = None if self.loader is None else self.loader()
        if message.batch is None or (self.loader is not None and (loader is None or loader._progress is not progress)):
            return
        self.wanted = options.ranks.peer == 0
        place = (progress.step - 1, progress.epoch, options.rank, message.lane, message.pass_, message.k)
        try:
            keys = tuple(keys_in(message.batch))
            self.of[keys] = Delivered(*place, options.world_size, message.origins)
            self.of.move_to_end(keys)  # it may have come before
        except (TypeError, LookupError):  # a collate function made something else of the batch
            return
        if len(self.of) > RECENT:
            self.of.popitem(last=False)


class Recorder:
    """Record numbers for each utterance in training, such as losses or error rates, to tell good data from bad.

    ``record.log(batch, step=step, loss=losses)`` in the training step takes microseconds: a thread writes Parquet
    files every second, so that a process that is killed loses the last second. ``uio worst FOLDER`` looks through
    them, and pandas, polars and DuckDB read the folder as it is. Every rank makes a recorder of the same folder; those
    for training and for validation are in folders of their own. What cannot be written does not disturb the training.

    Args:
        folder: a folder on this machine or one that all hosts share; a run that goes on writes to the same one.
        loader: the loader whose batches are logged, from which come epoch, lane, k, source, shard, place, length and
            speaker of each utterance. Default: None, any loader of this process. Make the recorder before its batches.

    Raises:
        PipelineError: pyarrow is missing, or an argument breaks a rule.
    """

    def __init__(self, folder: str | os.PathLike[str], loader: Loader | None = None) -> None:
        if not isinstance(folder, (str, os.PathLike)) or "://" in str(folder):
            raise PipelineError(f"Recorder: folder must be local or shared, not {folder!r}")
        if not isinstance(loader, Loader | None):
            raise PipelineError(f"Recorder: loader must be the Loader that gives the batches, not {loader!r}")
        self._deliveries = _Deliveries(loader)
        rank = dist.get_rank() if is_grouped() else 0
        self.followers = list[Callable[[Logged, Recorder], None]]()
        self._writer = RecordWriter(Path(folder), rank if loader is None else loader.rank)
        self.folder, self.flush = self._writer.folder, self._writer.write
        self._finalizer = weakref.finalize(self, self._writer.close)  # at the end of the process, too
        LISTENERS.add(self._deliveries)
        if loader is not None:
            loader._follow(loader._options)  # lanes that run by now tell no origins

    def log(self, batch: Any, *, step: int | None = None, **numbers: Any) -> None:
        """Record numbers of the utterances of a batch.

        Args:
            batch: a batch of the loader, or the keys of its utterances.
            step: number of the step, as the trainer counts. Default: None, that of the loader in its epoch.
            **numbers: by the name of their column: one for each utterance of the batch, in its order, or one for all,
                as the norm of a gradient; tensors, on a GPU, too, for which nothing waits, arrays or lists.

        Raises:
            PipelineError: there are no keys, not as many numbers as utterances, a name is that of another column, or
                the recorder is closed.
        """
        keys = batch if _are_keys(batch) else keys_in(batch)
        if not keys or not _are_keys(keys):
            raise PipelineError("log: the batch has no keys: give a list of the keys of its utterances instead")
        if not numbers or (step is not None and not is_whole(step)):
            rule = f"step must be a whole number, not {step!r}" if numbers else "give numbers as keyword arguments"
            raise PipelineError(f"log: {rule}; as in log(batch, step=5, loss=losses)")
        made, taken, ready = self._deliveries.of.get(tuple(keys)), dict[str, torch.Tensor](), None
        if step is None and made is None:
            raise PipelineError(
                "log: the step is unknown, because the batch is from no loader of this recorder: give step=…"
            )
        for name, value in numbers.items():
            if name in COLUMNS:
                raise PipelineError(f"log: {name!r} is already a column of every record: give the numbers another name")
            taken[name], ready = _taken(name, value, len(keys), ready)
        if not self._finalizer.alive:
            raise PipelineError("log: this recorder is closed: create another one for the same folder")
        logged = Logged(list(keys), step, made, taken, ready)
        if self._deliveries.wanted:
            self._writer.put(logged)
        for follower in self.followers:
            follower(logged, self)

    @property
    def loader(self) -> Loader | None:
        """The loader that it was made with, as long as there is one."""
        return None if self._deliveries.loader is None else self._deliveries.loader()

    def close(self) -> None:
        """Write the rest, and end the thread."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise PipelineError("a Recorder cannot be copied or pickled: create one on each rank")


def keys_in(batch: Any) -> list[str]:
    """Return the keys of the utterances in a batch, or of the one that stands for it."""
    if not isinstance(batch, Mapping):
        return [sample["key"] for sample in batch]
    keys: list[str] = batch.get("keys", [batch["key"]] if "key" in batch else [])
    return keys


def _are_keys(given: object) -> bool:
    return isinstance(given, (list, tuple)) and all(isinstance(key, str) for key in given)


def _taken(name: str, value: Any, count: int, ready: Any) -> tuple[torch.Tensor, Any]:
    """Return the numbers in memory of their own, and what to wait for before they are there."""
    try:
        tensor = torch.as_tensor(value).detach().reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PipelineError(f"log: {name} must be numbers, not {type(value).__name__}: {error}") from error
    if tensor.numel() not in (1, count) or tensor.is_complex():
        raise PipelineError(f"log: {name} has {tensor.numel()} values for {count} utterances: give one each, or one")
    if not tensor.is_cuda:
        return tensor.to("cpu", torch.float32, copy=True), ready
    own = torch.empty(tensor.shape, dtype=torch.float32, pin_memory=True)
    own.copy_(tensor.to(torch.float32), non_blocking=True)
    ready = ready or torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record()
    return own, ready


class RecordWriter:
    """Writes the log of one rank. What cannot be written does not disturb the training."""

    def __init__(self, folder: Path, rank: int) -> None:
        try:
            import pyarrow.parquet

            pyarrow.array([0])  # imports pandas if it is there, which takes seconds
        except ImportError as error:
            raise PipelineError(f"Recorder: {NO_PYARROW}") from error
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PipelineError(f"Recorder: cannot make the folder {folder}: {error.strerror}") from error
        self.folder, self.rank, self.failed = folder, rank, False
        self._name = f"rank-{rank:05d}-{time.time_ns() // 1_000_000:013d}-{secrets.token_hex(4)}"
        self._logged: deque[Logged] = deque()
        self._number, self._table = 0, cast(Any, None)  # of the newest file
        self._writing = threading.Lock()
        self._end, self._thread = threading.Event(), threading.Thread(target=self._run, name="uio-records", daemon=True)

    def put(self, logged: Logged) -> None:
        """Queue something to be written."""
        self._logged.append(logged)
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Write what is left."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._end.wait(EVERY)
            self.write()

    def write(self) -> None:
        """Write what was logged since the last time."""
        try:
            with self._writing:
                self._write()
        except Exception as error:  # whatever it is, training continues
            if not self.failed:
                logger.warning("the record in %s has a gap (%s); training continues", self.folder, error)
            self.failed = True

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        logged = [self._logged.popleft() for _ in range(len(self._logged))]
        if not logged:
            return
        tables = [one for one in (self._table, table_of(logged, self.rank)) if one is not None]
        self._table = pa.concat_tables(tables, promote_options="default")
        table, path = self._table, self.folder / f"{self._name}-{self._number:06d}.parquet"
        if len(table) >= LARGE:  # written or not
            self._table = None
        with atomic_path(path) as part:
            pq.write_table(table, part, compression="zstd", use_dictionary=REPEATED)
        self._number += self._table is None


def table_of(logged: Iterable[Logged], rank: int) -> Any:
    """Return the rows of batches as a table of pyarrow."""
    import pyarrow as pa

    places: dict[str, list[Any]] = {name: [] for name in (*PLACE, "ranks", "batch")}
    rows: list[int] = []
    origins: list[RowOrigin] = []
    numbers: dict[str, list[Any]] = {}
    for keys, step, made, given, ready in logged:
        if ready is not None:
            ready.synchronize()
        count, done = len(keys), len(origins)
        known: dict[str, list[RowOrigin]] = {}  # of a key from several sources there are several
        place: tuple[int | None, ...] = (step, None, rank, *(None,) * 5)
        if made is not None:
            for one in made.origins:
                known.setdefault(one.key, []).append(one)
            place = (made.step if step is None else step, *made[1:-1], made.step)
        origins += [known[key].pop(0) if known.get(key) else RowOrigin(key) for key in keys]
        for column, value in zip(places.values(), place, strict=True):
            column += [value] * count
        rows += range(count)
        for name, tensor in given.items():
            column = numbers.setdefault(name, [])
            column += [None] * (done - len(column)) + tensor.tolist() * (count // tensor.numel())
    columns = places | {"row": rows} | dict(zip(ORIGIN, map(list, zip(*origins, strict=True)), strict=True))
    homes = {url: home(url) for url in set(columns["shard"]) if url is not None}
    columns["shard"] = list(map(homes.get, columns["shard"]))
    columns["part"] = ["/".join(map(str, sub)) for sub in columns["part"]]
    made_of = {name: pa.array(columns[name], getattr(pa, kind)()) for name, kind in COLUMNS.items()}
    for name, values in numbers.items():
        made_of[name] = pa.array(values + [None] * (len(origins) - len(values)), pa.float32())
    return pa.table(made_of)


def files_of(folder: Path) -> list[Path]:
    """Return the files of a record by the time when each writer began, and its numbers."""
    return sorted(folder.glob("rank-*.parquet"), key=lambda path: path.name.split("-")[2:])


def read_record(folder: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Any:
    """Read a record as a table of pyarrow, in the order in which it was written, ranks one after the other.

    What a run logged again after it had gone on from a state is in it once, each number as it was the last time. What
    it did not log again, as it leaves an utterance out from there on, stays as it was.

    Args:
        folder: the folder of the recorders.
        columns: those wanted. Default: None, all.

    Raises:
        ListError: there is no record, or it is damaged.
        PipelineError: pyarrow is missing.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise PipelineError(NO_PYARROW) from error
    if not (files := files_of(Path(folder))):
        raise ListError(f"{os.fspath(folder)} has no record (rank-00000-….parquet): uio.Recorder writes it")
    try:
        tables = [pq.read_table(path) for path in files]
    except (OSError, pa.ArrowException) as error:
        raise ListError(f"the record in {os.fspath(folder)} is damaged ({error}): remove that file") from error
    table = pa.concat_tables(tables, promote_options="default")
    numbers = [name for name in table.column_names if name not in COLUMNS]
    same = [*PLACE, "key"]
    same.remove("rank")  # other ranks may go on with a lane
    # Two names that no number has: "row" is here that among rows of the same key, "rank" the order.
    keys = table["key"].combine_chunks().dictionary_encode()
    of = np.cumsum(table["row"].to_numpy() == 0) * len(keys.dictionary) + keys.indices.to_numpy()
    order, places = np.argsort(of, kind="stable"), np.arange(len(of))
    begins = np.maximum.accumulate(np.where(np.diff(of[order], prepend=-1), places, 0))
    repeats = np.empty_like(places)
    repeats[order] = places - begins
    given = table.select([*same, *numbers]).append_column("row", pa.array(repeats))
    given = given.append_column("rank", pa.array(np.arange(len(table))))
    grouped = given.group_by([*same, "row"], use_threads=False)  # so that the last is the newest
    last = grouped.aggregate([("rank", "max"), *((name, "last") for name in numbers)]).sort_by("rank_max")
    table = table.take(last["rank_max"].combine_chunks()).drop_columns(numbers)
    for name in numbers:
        table = table.append_column(name, last[f"{name}_last"])
    return table if columns is None else table.select(list(columns))
