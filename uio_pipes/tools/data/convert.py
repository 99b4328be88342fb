"""Converting data from any readable form to a TouchDataset, WeNet's shards, a raw list or Lhotse's cuts.

It is read as training reads it. Each part (a folder of a TouchDataset, a shard) takes ``per_part`` utterances in order
and is moved to its place when it is complete; after a kill, the same call goes on. Utterances that cannot be converted
are counted under their reasons and listed in ``failed.jsonl``.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, takewhile
from typing import Any, Literal, NamedTuple

import torch

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import in_order, window
from uio_pipes.base.urls import counted, name_of
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node
from uio_pipes.io.folders import Folder, entry_of, write_to
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.table.streamed import rows_without_audio
from uio_pipes.tools.data.common import Noting, follow
from uio_pipes.tools.data.pack import LOST, WHOLE, PackingFailed
from uio_pipes.tools.data.reading.data_list import GivenNames, count_utterances
from uio_pipes.tools.data.recognize import Recognized, recognize
from uio_pipes.tools.data.writing.cutting import FileForm, Form
from uio_pipes.tools.data.writing.journal import LIST, Finished, Journal, write_failures, write_shard_list
from uio_pipes.tools.data.writing.shards import Converted, Kept, Part, RawPart, TarPart, open_part
from uio_pipes.tools.data.writing.utterances import CutsPart, Referred, decode_utterance, keep_file, refer_to_file

To = Literal["indexed", "shards", "raw", "cuts"]
_NAMES = {"indexed": "data-{:05d}", "shards": "shards_{:09d}.tar", "raw": "wav-{:05d}", "cuts": "cuts-{:05d}"}


@dataclass
class Conversion:
    """The result of a conversion, over all of its runs. ``left_out``: sound utterances that are not wanted;
    ``dropped``: fields that the new form has no place for."""

    data_list: str = ""
    parts: int = 0
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    dropped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        hours = self.frames / 360_000
        size = f"{hours:.2f} h, {self.bytes / 1e6:.1f} MB in {counted(self.parts, 'part')}"
        text = f"{counted(self.utterances, 'utterance')}, {size}"
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted((self.left_out + self.failed).items()))
        text += f"; left out: {lost}" if lost else ""
        return text + (f"; without the fields {', '.join(self.dropped)}" if self.dropped else "")


def convert(
    source: str,
    out: str,
    *,
    to: To = "indexed",
    per_part: int = 5000,
    resample: int | None = None,
    form: Form = "wav",
    compress: bool = False,
    list_path: str | None = None,
    fields: Mapping[str, str] | None = None,
    needs_text: bool = True,
    allow_pipes: bool = False,
    jobs: int = 1,
    processes: int = 1,
) -> Conversion:
    """Convert the data of ``source``, all that :func:`recognize` knows and that has audio, to ``out``.

    Mono, 16 bits, the first channel; but cuts refer to audio that is a file of its own, and only other audio is
    written (all of it with ``resample``). ``resample``: to that rate in Hz, otherwise each keeps its own. ``form``: of
    audio files in shards, raw lists and cuts; "as-is", in shards: whole files unchanged. ``compress``: shards, with
    zstd and checksums. ``list_path``: the list written at the end, by default :func:`list_name` in OUT.
    ``fields``: names that fields have in the data, by ours. ``needs_text``: False if utterances may have no transcript;
    those of cuts may have none anyway. ``jobs``: threads that decode. ``processes``: if more
    than one, each reads all of the source and makes other parts of it; what is written is the same.
    ``allow_pipes``: run the commands in a Kaldi folder's ``wav.scp``.

    Raises: ListError, OtherPacking.
    """
    known = recognize(source, allow_pipes, fields)
    if known.lacks:
        raise ListError(f"{source} has {known.lacks} to convert: it is {known.kind}, and is read as it is")
    fingerprint = known.pipeline._list_fingerprint()  # reads the source first: nothing is written if it is missing
    folder = Folder(out)
    target = list_path or folder.join(list_name(to))
    journal = Journal(folder, WHOLE)
    try:
        settings: dict[str, Any] = {"to": to, "per_part": per_part, "resample": resample, "format": form}
        settings |= ({"fields": fields} if fields else {}) | ({} if needs_text else {"text": ""})
        name = _NAMES[to] + (".zst" if compress and to == "shards" else "")
        journal.take_over({"source": fingerprint, **settings, **({"name": name} if name != _NAMES[to] else {})})
        wanted = _Task(source, out, to, per_part, resample, form, fields, needs_text, allow_pipes, name)
        conversion = _Conversion(wanted, journal)
        conversion.run(known, jobs, processes)
        return conversion.finish(target)
    finally:
        journal.close()


def list_name(to: To) -> str:
    """Return the usual name of the list that is written."""
    return "cuts.jsonl.gz" if to == "cuts" else "data.list"


def _total(source: Recognized) -> int | None:
    """Return the number of utterances, if a list, an index or a manifest gives it."""
    if counts := source.pipeline._count(1):
        return counts[0]
    return count_utterances(source.path, "shard") if source.kind == "shard list" else None


class _Task(NamedTuple):
    """What is converted, and to what, as :func:`convert` says; ``name``: of parts, with a field for their number."""

    source: str
    out: str
    to: To
    per_part: int
    resample: int | None
    form: Form
    fields: GivenNames
    needs_text: bool
    allow_pipes: bool
    name: str


class _MadePart(NamedTuple):
    """A part that was made. ``done``: None if there is nothing in it; ``last``: no other part comes after it;
    ``left_out``: what has been left out up to its end."""

    done: Finished | None
    dropped: set[str]
    last: bool
    left_out: Counter[str]


class _Parts:
    """Makes parts in the order of their numbers, and passes over those that are not asked for."""

    def __init__(self, wanted: _Task, pipeline: Pipeline, pool: ThreadPoolExecutor, jobs: int) -> None:
        self.wanted, self.pool, self.jobs = wanted, pool, jobs
        self.folder, self.ledger = Folder(wanted.out), Noting()
        self.number, self.ended = 0, False
        self.make = _maker(wanted)
        decoded = pipeline.decode_audio(longest=None)
        graph = decoded if wanted.resample is None else decoded.resample(wanted.resample)
        self.graph, self.node = graph, graph.build(Lane(self.ledger, needs_text=wanted.needs_text))
        self.node.reset(None)

    def part(self, number: int) -> Generator[None, None, _MadePart]:
        """Make a part; yield at each utterance of it or of those before it."""
        self.ledger.passing = True
        while self.number < number and not self.ended:
            yield from self._through()
            self.number += 1
        self.ledger.passing = False
        if self.ended:
            return _MadePart(None, set(), True, Counter(self.ledger.skipped))
        return (yield from self._made())

    def _through(self) -> Iterator[None]:
        taken = 0
        for _ in _samples(self.node, self.wanted.per_part):
            taken += 1
            yield
        self.ended = taken < self.wanted.per_part

    def _made(self) -> Generator[None, None, _MadePart]:
        taken, lost = 0, list[list[str]]()
        work = ((sample, (self.make, sample)) for sample in _samples(self.node, self.wanted.per_part))
        with self._open() as part:
            for sample, result in window(self.pool.submit, work, 2 * self.jobs + 2):
                taken += 1
                yield
                if isinstance(result, DataError):
                    lost.append([sample.key, result.reason, str(result)])
                else:
                    part.add(result)
        self.number += 1
        self.ended = taken < self.wanted.per_part
        for error in rows_without_audio(self.graph, self.ledger.tallies) if self.ended else ():
            self.ledger.fail(error, "convert")
        lost += ([error.member, error.reason, str(error)] for error in self.ledger.take())
        done = replace(part.done, failed=[*lost, *part.done.failed]) if taken or lost else None
        return _MadePart(done, part.dropped, self.ended, Counter(self.ledger.skipped))

    def _open(self) -> Part:
        name = self.wanted.name.format(self.number)
        form: FileForm = "flac" if self.wanted.form == "flac" else "wav"
        if self.wanted.to in ("raw", "cuts"):
            return (RawPart if self.wanted.to == "raw" else CutsPart)(self.folder, name, str(WHOLE), form)
        return open_part(self.folder, name, str(WHOLE), form)


def _maker(wanted: _Task) -> Callable[[Sample], Converted | Kept | Referred | DataError]:
    """Return what brings an utterance into the other form."""
    if wanted.to == "cuts":
        return refer_to_file if wanted.resample is None else partial(decode_utterance, needs_text=False)
    if wanted.to != "shards":
        return partial(decode_utterance, needs_text=wanted.needs_text)
    if wanted.form == "as-is":
        return partial(keep_file, needs_text=wanted.needs_text, sample_rate=wanted.resample)
    return partial(decode_utterance, needs_text=wanted.needs_text, keeps=TarPart.keeps)


def _made_here(parts: _Parts, numbers: Iterable[int]) -> Iterator[tuple[_MadePart | None, int]]:
    """Yield the parts of these numbers as they are made, and between them None for each utterance."""
    for number in numbers:
        made = parts.part(number)
        while True:
            try:
                next(made)
                yield None, 1
            except StopIteration as end:
                yield end.value, 0
                break


_parts: _Parts | None = None  # of a process in a pool, which is asked for ever higher numbers


def _make_part(wanted: _Task, number: int) -> _MadePart:
    global _parts
    if _parts is None:
        torch.set_num_threads(1)  # as one_thread
        known = recognize(wanted.source, wanted.allow_pipes, wanted.fields)
        _parts = _Parts(wanted, known.pipeline, ThreadPoolExecutor(1), 1)
    return next(part for part, _ in _made_here(_parts, [number]) if part is not None)


class _Conversion:
    """All parts of a conversion, those of earlier runs, too."""

    def __init__(self, wanted: _Task, journal: Journal) -> None:
        self.wanted, self.journal = wanted, journal
        self.names: list[str] = []
        self.dropped: set[str] = set()
        self.left_out = Counter[str]()
        self.ended = False

    def run(self, known: Recognized, jobs: int, processes: int) -> None:
        """Make all parts that are not there yet: with so many threads, or in processes if there are parts for two."""
        total = _total(known)
        processes = processes if total is None else min(processes, -(-total // self.wanted.per_part))
        with one_thread(), ThreadPoolExecutor(jobs) as pool:
            parts: Iterator[tuple[_MadePart | None, int]]
            if processes > 1:  # each reads all, and makes the parts that fall to it
                work = ((number, (self.wanted, number)) for number in self._numbers())
                made = in_order(_make_part, work, processes, [__name__], PackingFailed(LOST))
                parts = ((part, part.done.utterances + len(part.done.failed) if part.done else 0) for _, part in made)
            else:
                parts = _made_here(_Parts(self.wanted, known.pipeline, pool, jobs), self._numbers())
            for part in follow(parts, "converting", total):
                if part is not None:
                    self._take(part)

    def _numbers(self) -> Iterator[int]:
        """Yield the numbers of the parts to be made, until the last one is known."""
        done = self.journal.settled()
        for number in takewhile(lambda _: not self.ended, count()):
            name = self.wanted.name.format(number)
            if name in done:
                self.names.append(name)
            else:
                yield number

    def _take(self, part: _MadePart) -> None:
        self.dropped |= part.dropped
        if part.last and not self.ended:
            self.ended, self.left_out = True, part.left_out
        if part.done is not None:
            self.names.append(part.done.shard)
            self.journal.add(part.done)

    def finish(self, target: str) -> Conversion:
        """Write the list, which names complete parts only, and the failures."""
        folder, names = Folder(self.wanted.out), sorted(self.names)
        finished = [self.journal.finished[name] for name in names]
        failures = list(self.journal.failures(set(names)))
        total = Conversion(target, failed=Counter(reason for _, reason, _ in failures), dropped=sorted(self.dropped))
        total.left_out = self.left_out
        for one in finished:
            total.parts += one.utterances > 0
            total.utterances += one.utterances
            total.frames += one.frames
            total.bytes += one.bytes
        write_failures(folder, failures)
        if not total.utterances:
            first = f"; the first: {failures[0][2]}" if failures else ""
            raise ListError(f"nothing of {self.wanted.source} could be converted: {total}{first}")
        self._write_list(target, folder, [one for one in finished if one.utterances])
        return total

    def _write_list(self, target: str, folder: Folder, finished: list[Finished]) -> None:
        if self.wanted.to in ("indexed", "shards"):
            return write_shard_list(target, folder, finished, tars=self.wanted.to == "shards")
        parts = folder.read([f"{one.shard}/{LIST}" for one in finished])
        if self.wanted.to == "raw":
            places = (entry_of(folder.join(one.shard), target) for one in finished)
            parts = [_lines_in(place, part) for place, part in zip(places, parts, strict=True)]
        lines = b"".join(parts)
        return write_to(target, gzip.compress(lines, mtime=0) if target.endswith(".gz") else lines)


def _lines_in(place: str, lines: bytes) -> bytes:
    """Return the lines of a part's list, with its audio files in the folder ``place``."""
    objects = map(json.loads, lines.splitlines())
    named = ({**line, "wav": f"{place}/{name_of(line['wav'])}"} for line in objects)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in named).encode()


def _samples(node: Node, count: int) -> Iterator[Sample]:
    """Yield the next ``count`` samples, or all that are left."""
    for _ in range(count):
        try:
            yield node.next()
        except StopIteration:
            return
