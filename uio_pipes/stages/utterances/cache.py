"""``cache``: stores the results of earlier stages in a folder, so each is computed only once.

All that is deferred until here, and that the kept fields depend on, becomes one link of the utterance's chain. Run, it
looks for a record under a key of what goes in: the fields that these stages read, where audio is known by its file and
place there, and the stages themselves. If there is one, nothing of it is run or read, not even the header that gives
the planned length, which is in the record. So a plan is the same whether there is a record or not.

Whether stages draw shows when they run: a result for which nothing was drawn is kept for every epoch, others under a
key that has the utterance's seed, and so its epoch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import torch

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import check_names, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.chain import Chain, Link
from uio_pipes.core.digests import Digest
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait
from uio_pipes.formats.stored_fields import dumps, loads, path_in, record_of
from uio_pipes.io.access import as_bytes
from uio_pipes.io.opening import identity
from uio_pipes.io.shelf import Entry, PlanNumbers, RecordKey, read_record, shelf
from uio_pipes.stages.utterances.concat import Joins
from uio_pipes.stages.utterances.map import Map, MapNode

_MUTABLE = (torch.Tensor, np.ndarray, list, dict, bytearray)
_ENOUGH = 1_000  # records before a share is judged, unless the epoch ends before


@dataclass(frozen=True)
class Cache(Flow):
    """Store the results of the stages before it, and read them from then on instead of computing them again.

    Put it after decoding, features without randomness, or a ``map`` that encodes, and before random augmentation. A
    later epoch, another rank or run, and another pipeline that begins with the same stages find what is there; what is
    not there, or is damaged (``damaged_cache``), is computed and kept. Batches are the same bit by bit whether the
    folder is full, empty or half gone, and so is a resume. A record is known by the audio's file, with its size and
    time of change or ETag, the fields that the stages read, and the stages with all arguments and the code of
    functions; not by what a function gets elsewhere, as from a file. Any number of processes and machines
    may use the folder at once. ``uio cache`` shows, checks and prunes it.

    A ``map`` without ``length`` is left out on a hit only where it stands directly before ``cache``.

    Args:
        folder: path or URL of the cache; any number of pipelines may share it.
        fields: names of the fields to keep, as in ``["feat"]``; others that these stages make or change are gone, the
            waveform among them. Default: None, all that they make, but not what they make of text alone.
        size: bytes of the folder from which on nothing is added, as a number or as text. Default: "100GB".
        read_only: find what is there, and add nothing. Default: False.

    Raises:
        PipelineError: an argument breaks a rule, or there is nothing before it whose result it can keep.
    """

    name: ClassVar[str] = "cache"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    note: ClassVar[str] = "what is not there yet is computed when the batch is made"

    folder: str | os.PathLike[str] = field(metadata=NO_IDENTITY)
    fields: Sequence[str] | None = None
    size: int | str = field(default="100GB", metadata=NO_IDENTITY)
    read_only: bool = field(default=False, metadata=NO_IDENTITY)

    also: ClassVar[tuple[str, ...]] = ()  # what a record depends on, besides the stages before
    before: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "folder", checked_folder(self.name, self.folder))
        if self.fields is not None:
            check_names(self.name, "fields", self.fields)
        require(as_bytes(self.size) > 0, self.name, "size must be bytes, or text like '200GB'", self.size, "give one")

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if there is nothing before it that it can keep."""
        check_before(self.name, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return CacheNode(source, lane, site, self, CachedLink)


def checked_folder(stage: str, folder: Any) -> str:
    """Return the path or URL of a cache. Raises: PipelineError if it is none."""
    ok = isinstance(folder, (str, os.PathLike)) and bool(os.fspath(folder))
    require(ok, stage, "folder must be a folder or a URL", folder, f'as in .{stage}("/scratch/cache", …)')
    return str(os.fspath(folder))


def check_before(name: str, before: Sequence[Stage]) -> None:
    """Raises: PipelineError if the cache ``name`` cannot keep what a stage before it makes."""
    for stage in before:
        of = stage.of if isinstance(stage, Op) else ""
        if of or isinstance(stage, Joins):
            what = f"what {stage.name} makes of the stream {of!r}" if of else f"the utterances that {stage.name} joins"
            raise PipelineError(f"{name}: {what} cannot be cached: put .{name}(…) before {stage.name}")


class CacheNode(Node):
    """Puts a link of the kind ``kind`` in place of those that it covers. ``maps``: maps that would have run here, and
    do. ``stage``: a :class:`Cache`, or one like it."""

    def __init__(self, source: Node, lane: Lane, site: Site, stage: Any, kind: type[CachedLink]) -> None:
        self.maps: list[Link] = []
        while isinstance(source, MapNode):
            self.maps.insert(0, source.link)
            source = source.source
        super().__init__(source)
        self.lane, self.stage, self.kind = lane, stage, kind
        self.place = site.within(lane.source).removeprefix("/")

    def start(self) -> None:
        self.covered: dict[tuple[Chain, int], tuple[Chain, CachedLink | None]] = {}
        self.version = lru_cache(1 << 12)(identity)

    def next(self) -> Sample:
        while True:
            sample: Sample = self.source.next()
            for link in self.maps:
                sample.chain = sample.chain.then(link)
            known = sample.chain, sample.done
            if known not in self.covered:
                self.covered[known] = self._cover(*known)
            chain, kept = self.covered[known]
            if kept is None:
                return sample
            sample.restart(chain)
            if not kept.wants(sample):
                continue
            if not self.maps:
                return sample
            try:
                sample.compute(kept)
            except Exception as error:
                self.lane.ledger.handle(sample.failure(error, Map.name), Map.name)
            else:
                self.lane.ledger.succeeded(Map.name)
                return sample

    def _cover(self, chain: Chain, done: int) -> tuple[Chain, CachedLink | None]:
        """Return the chain in which one link stands for those that it covers, and that link; None if none is."""
        to_come = [i for i in range(len(chain.links)) if not done >> i & 1]
        bits = 0
        for i in to_come:
            if self._wanted(chain.links[i]):
                bits |= chain.needs[i]
        inner = [chain.links[i] for i in to_come if bits >> i & 1]
        if not inner and not self.kind.uses_audio:
            return chain, None
        others = [chain.links[i] for i in to_come if not bits >> i & 1]
        kept = self.kind(Chain(tuple(inner)), self)
        name = self.stage.name
        if of := next((link.of for link in kept.inner.links if link.of), ""):
            raise PipelineError(
                f"{name}: what is made of the stream {of!r} cannot be cached: put .{name}(…) before that"
            )
        gone = kept.made - frozenset(kept.made if kept.fields is None else kept.fields)
        for link in others:
            if lacks := sorted(link.reads & gone):
                rule = f"{link.name} before it needs {lacks[0]}, which is not cached"
                raise PipelineError(f"{name}: {rule}: add it to fields, or put {link.name} after .{name}(…)")
        return Chain((kept, *others)), kept

    def _wanted(self, link: Link) -> bool:
        everything = self.stage.fields is None or self.kind.uses_audio
        wanted = MEASURED if everything else frozenset(self.stage.fields)
        touched = link.reads | link.writes if everything else link.writes
        return "*" in touched or not touched.isdisjoint(wanted)


class CachedLink:
    """The link that finds in the cache what the links of ``inner`` make, or runs them and keeps it.

    ``uses_audio``: what is kept is made of all that ``inner`` makes of the audio, in place of which it comes.
    """

    of = ""
    uses_audio: ClassVar[bool] = False

    def __init__(self, inner: Chain, node: CacheNode) -> None:
        self.stage = stage = node.stage
        self.lane, self.place = node.lane, node.place
        self.name, self.inner, self.fields, self.here = stage.name, inner, stage.fields, bool(node.maps)
        self.reads = MEASURED.union(*(link.reads for link in inner.links))
        self.made = (MEASURED if self.uses_audio else frozenset()).union(*(link.writes for link in inner.links))
        self.writes = self.made | frozenset(stage.fields or ())
        self.measured = None if self.made.isdisjoint(["*", *MEASURED]) else self._measured
        self.version = node.version
        self.stages = [*stages_of(inner), *stage.also]
        self.mark = (
            Digest().add(vars(sys.modules["uio_pipes"])["__version__"], self.fields, self.here, *self.stages).made()
        )
        self.salts = [getattr(link, "salt", 0) for link in inner.links]
        self.about = "\n".join(one.describe(stable=True) if isinstance(one, Stage) else one for one in self.stages)
        args = stage.folder, self.mark.hex(), as_bytes(stage.size), self.about, not stage.read_only, stage.before
        self.shelf = self.lane.shared(("cache", *args), lambda: shelf(*args))

    def wants(self, sample: Sample) -> bool:
        """Return whether an utterance is to go on; otherwise it has been counted."""
        return True

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan if self.measured is None else self.measured(sample)

    def _measured(self, sample: Sample) -> Plan | None:
        """Return the planned length after the links of ``inner``."""
        key = self._key(sample)
        for entry in self._entries(sample, key):
            return _plan(entry.lengths)
        inner, given = self._within(sample)
        plan = inner.planned()
        if inner.done:  # only its audio tells the length
            self._put(sample, *self._computed(sample, key, inner, given))
            sample.done |= 1 << sample.chain.links.index(self)
        return plan

    def found(self, sample: Sample) -> bool:
        """Return whether there is a record."""
        with suppress(DataError):  # of a remote file that is gone: it fails when it is read
            return any(True for _ in self._entries(sample, self._key(sample)))
        return False

    def apply(self, sample: Sample) -> None:
        key = self._key(sample)
        self._put(sample, *(self._found(sample, key) or self._computed(sample, key, *self._within(sample))))

    def _key(self, sample: Sample) -> bytes:
        """Return the key of what is made without draws. Nothing that it depends on changes before this link has run."""
        if sample.hashed is not None and sample.hashed[0] is self:
            return sample.hashed[1]
        fields = sample.fields
        touched = self.reads | self.made
        names = sorted(fields if "*" in touched else touched & fields.keys())
        digest = Digest(self.version).add(self.mark)
        for name in names:
            value = fields[name]
            digest.add(name)
            digest.file(value) if name in ("wav", "feat") and isinstance(value, str) else digest.add(value)
        sample.hashed = self, digest.made()
        return sample.hashed[1]

    def _drawn(self, sample: Sample, key: bytes) -> bytes:
        """Return the key of what is made with draws."""
        return Digest().add(key, sample.replaced({}).seed, self.salts).made()  # to look for it is no draw

    def _entries(self, sample: Sample, key: bytes) -> Iterator[Entry]:
        yield from self.shelf.find(numbers_of(key))
        for entry in self.shelf.find(numbers_of(self._drawn(sample, key))):
            sample.note_draws()
            yield entry

    def _found(self, sample: Sample, key: bytes) -> tuple[dict[str, Any], Plan | None] | None:
        for entry in self._entries(sample, key):
            try:
                if (data := read_record(entry)) is not None:
                    return record_of(data, entry.path, entry.offset), _plan(entry.lengths)
            except DataError as error:
                self.lane.ledger.fail(cast(DataError, sample.failure(error, self.name)), self.name)
        return None

    def _within(self, sample: Sample) -> tuple[Sample, dict[str, Any]]:
        """Return an utterance for the links of ``inner``, and its fields. What is not kept must not change in place."""
        apart = self.fields is not None and "*" in self.made
        given = {name: deepcopy(v) if apart and isinstance(v, _MUTABLE) else v for name, v in sample.fields.items()}
        return sample.replaced(given).restart(self.inner), given

    def _computed(
        self, sample: Sample, key: bytes, inner: Sample, given: dict[str, Any]
    ) -> tuple[dict[str, Any], Plan | None]:
        """Run the links, and keep what they make. Return it, with the planned length: the fields by name, and under ""
        those that are gone."""
        plan = None if self.here or self.measured is None else inner.planned()
        inner.compute_all()
        if self.here:
            with suppress(DataError):
                plan = inner.planned()
        made = inner.fields
        new = [name for name, value in made.items() if self._is_new(name, value, given)]
        found = {name: made[name] for name in (new if self.fields is None else self.fields) if name in made}
        spent = MEASURED if self.uses_audio else frozenset[str]()
        found[""] = [n for n in given if n not in found and (n not in made or n in new or n in spent)]
        if inner.has_drawn:
            sample.note_draws()
        return self._kept(sample, key, inner, found, plan), plan

    def _kept(
        self, sample: Sample, key: bytes, inner: Sample, found: dict[str, Any], plan: Plan | None
    ) -> dict[str, Any]:
        """Keep what has been found, and return what the utterance gets: as another one will find it, also in memory,
        where other strides, or a place that two fields share, would change what a later stage computes."""
        tally, drawn = CacheTally(), inner.has_drawn
        if not self.lane.ledger.quiet:
            tally = cast(CacheTally, self.lane.ledger.tallies.setdefault(self.place, tally))
        tally.made, tally.drawn = tally.made + 1, tally.drawn + drawn
        if absent := [name for name in self.fields or () if name not in found]:
            tally.odd = f"there is no field {absent[0]!r} to cache; {sample.key} has {', '.join(inner.fields)}"
        try:
            if name := path_in(found):
                raise TypeError(f"path ({name})")
            data = dumps(found)
        except TypeError as error:
            tally.odd = f"a {error} cannot be cached, so it is computed each time: cache other fields"
            return found
        self.shelf.add(numbers_of(self._drawn(sample, key) if drawn else key), data, numbers_of_plan(plan))
        return loads(bytearray(data))

    def _is_new(self, name: str, value: Any, given: dict[str, Any]) -> bool:
        """Return whether the links have made a field, or may have changed it where it is."""
        if name not in given or value is not given[name]:
            return True
        return self.fields is None and isinstance(value, _MUTABLE) and not self.made.isdisjoint(["*", name])

    def _put(self, sample: Sample, found: dict[str, Any], plan: Plan | None) -> None:
        for name in found[""]:
            sample.fields.pop(name, None)
        sample.fields.update((name, value) for name, value in found.items() if name)
        if self.measured is not None:
            sample.settle(plan)


def stages_of(chain: Chain) -> list[Any]:
    """Return the stages whose links are in a chain, with what else they read; the names of links without a stage."""
    found: list[Any] = []
    for link in chain.links:
        if isinstance(link, CachedLink):
            found += [*link.stages, f"{link.name}: {', '.join(link.fields or ('all',))}"]
        else:
            stage = getattr(link, "stage", None)
            found += [link.name] if stage is None else [stage, *map(str, stage.content())]
    return found


def numbers_of(key: bytes) -> RecordKey:
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")


def numbers_of_plan(plan: Plan | None) -> PlanNumbers:
    return (
        (0, 0, 0) if plan is None else (plan.samples, plan.sample_rate, 0 if plan.frames is None else plan.frames + 1)
    )


def _plan(lengths: PlanNumbers) -> Plan | None:
    samples, rate, frames = lengths
    return None if not rate else Plan(samples, rate, frames - 1 if frames else None)


@dataclass
class CacheTally:
    """Counts of what was computed for the cache: see :class:`~uio_pipes.core.ledger.Tally`.

    ``drawn``: how many of those ``made`` depend on draws; ``odd``: what is said of a field that cannot be kept.
    """

    made: int = 0
    drawn: int = 0
    odd: str = ""
    reported: bool = False

    def add(self, other: CacheTally) -> None:
        """Add the counts of ``other``."""
        self.made, self.drawn = self.made + other.made, self.drawn + other.drawn
        self.odd = self.odd or other.odd

    def verdict(self, last: bool) -> str | None:
        """Return the warning if it is due, once. ``last``: no more is counted in this epoch."""
        if self.reported or not (self.odd or (self.drawn and (last or self.made >= _ENOUGH))):
            return None
        self.reported = True
        if self.odd:
            return self.odd
        return (
            f"{self.drawn} of {self.made} utterances were computed with random draws of this epoch, so that only this "
            "epoch can find them again: put .cache(…) before the stages that draw"
        )
