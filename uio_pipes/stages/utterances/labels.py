"""``speaker``, ``tag`` and ``overlay``: speaker numbers, constant fields, and new metadata for packed utterances."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import Warns
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.items import LOAD_FEATURES
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, one_of, printed
from uio_pipes.formats.lists.json_lines import check_segment
from uio_pipes.formats.lists.overlay_table import OverlayTable, content_of
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local
from uio_pipes.io.references import Ref
from uio_pipes.tokenizers.base import digest, read_symbols


def _speakers(stage: Speaker, stable: bool) -> str | None:
    """Fingerprints have a hash of the table instead of its path."""
    if not stable and not isinstance(stage.table, Mapping):
        return None
    return f"{len(stage.numbers)} speakers {digest(sorted(stage.numbers.items()))}"


@dataclass(frozen=True)
class Speaker(Op):
    """Replace the name in ``speaker`` by its number; a name that is not in the table becomes 0, as in WeNet.

    The name is a field of the raw list, or ``KEY.speaker`` in a shard; an utterance without one is the failure
    ``missing_speaker``. The batch then has ``speaker`` (B,) int32.

    Args:
        table: a dict of numbers by name, or the path of a symbol table (one ``name number`` per line), which is
            read when a loader starts.

    Raises:
        ListError: when the loader starts, if the table cannot be read.
    """

    name: ClassVar[str] = "speaker"
    reads = ("speaker",)
    writes = ("speaker",)

    table: str | os.PathLike[str] | Mapping[str, int] = field(metadata=printed(_speakers))

    def __post_init__(self) -> None:
        super().__post_init__()
        table, remedy = self.table, "each line of a symbol table is `name number`"
        ok = isinstance(table, (str, os.PathLike, Mapping))
        require(ok, self.name, "table must be the path of a symbol table, or a dict of name to number", table, remedy)
        if isinstance(table, Mapping):
            self.numbers  # noqa: B018  wrong numbers fail now

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers by name. Reads the table. Raises: ListError."""
        table = self.table if isinstance(self.table, Mapping) else read_symbols(self.table, ".speaker(…)")
        ok = all(is_whole(number) and number >= 0 for number in table.values())
        rule = "speakers' numbers must be whole, 0 or more"
        require(ok, self.name, rule, table, "each line of a symbol table is `name number`")
        return {str(name): number for name, number in table.items()}

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        self.numbers  # noqa: B018  a bad file fails before the first utterance
        return super().build(source, lane, site)

    def apply(self, sample: Sample, draws: Draws) -> None:
        name = sample.fields.get("speaker")
        if name is None:
            raise DataError(
                "missing_speaker", "the utterance has no `speaker`: add it to the list, or leave .speaker out"
            )
        name = name.read() if isinstance(name, Ref) else name
        name = name.decode("utf-8").strip() if isinstance(name, bytes) else str(name)
        sample.fields["speaker"] = self.numbers.get(name, 0)


_FIXED = MEASURED | {"key"}


@dataclass(frozen=True)
class Tag(Op):
    """Give every utterance the same fields, such as the language and the task of one source of a mix.

    ``lang`` and ``task`` become the lists ``langs`` and ``tasks`` of a padded batch.

    Args:
        fields: values by name: strings, numbers, True or False. They replace those of the data.
    """

    name: ClassVar[str] = "tag"

    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = self.fields
        ok = isinstance(fields, Mapping) and bool(fields) and all(isinstance(name, str) and name for name in fields)
        require(ok, self.name, "fields must be values by name", fields, 'as in {"lang": "en"}')
        for name, value in fields.items():
            rule = "a tag cannot be key or a field of the audio"
            require(name not in _FIXED, self.name, rule, name, "choose another name")
            ok = isinstance(value, (str, int, float, bool))
            require(ok, self.name, f"{name} must be a string, a number, True or False", value, "give one value")

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.fields)

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields.update(self.fields)


_OF_AUDIO = ("start", "end", "duration", TIMELINE)  # they describe the old audio


@dataclass(frozen=True)
class Overlay(Warns, Flow):
    """Replace fields of utterances, by key, with those of a file: new transcripts, speakers or segments.

    It works on every source, and reads an entry when its utterance passes; 16 bytes per key are kept in memory. A
    compressed or remote file is first copied to a temporary file (in ``TMPDIR``), once per process. If ``wav`` is
    replaced, the ``start``, ``end``, ``duration`` and ``timeline`` of the old one are removed. An entry that cannot be
    read is counted with its utterance as the failure ``bad_overlay``. Put this stage directly after the one that loads
    utterances; stages of streams whose fields it leaves alone may come first. A state remembers what the file held.

    Args:
        path: local path or URL of a JSONL file with one ``{"key": …, "txt": …, …}`` per line, plain or ``.gz``; or
            the prefix of a TouchDataset's metadata (``FOLDER/metainfo_v2``), of which the fields that describe its
            own audio (``wav``, ``sample_rate``, ``start``, …) are ignored.
        missing: what to do with an utterance whose key is not in the file: "keep" it as it is, "drop" it (counted
            as ``not_in_overlay``), or stop the run with an "error". Default: "keep".
        storage_options: how the file is reached, as :class:`AccessOptions` says. Default: None.
    """

    name: ClassVar[str] = "overlay"
    reasons = ("not_in_overlay",)
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "by key"

    # the file has a fingerprint of its own
    path: str | os.PathLike[str] = field(metadata=NO_IDENTITY | printed(lambda stage, _: repr(os.fspath(stage.path))))
    missing: Literal["keep", "drop", "error"] = one_of(("keep", "drop", "error"), "keep")
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.path, (str, os.PathLike)) and bool(os.fspath(self.path))
        require(ok, self.name, "path must be a JSONL file or the prefix of a metainfo", self.path, "name one")
        Access.of(self.name, storage_options=self.storage_options)

    def check(self, before: Sequence[Stage]) -> None:
        for stage in before:
            if isinstance(stage, Op) and not stage.of:
                rule = f"overlay replaces fields that {stage.name} may have worked on"
                raise PipelineError(f"{rule}: put overlay before {stage.name}, directly after loading")

    def content(self) -> list[tuple[int, str]]:
        return [(0, content_of(os.fspath(self.path), self.access))]

    @property
    def access(self) -> Access:
        return Access.of(self.name, storage_options=self.storage_options)

    def table(self) -> OverlayTable:
        """Read the keys. Raises: ListError."""
        return OverlayTable(os.fspath(self.path), self.access)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _OverlayNode(source, lane, self)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.missing == "drop" else counts

    def warnings(self, lanes: int) -> list[str]:
        path = is_local(os.fspath(self.path)) or ""
        empty = os.path.isfile(path) and not os.path.getsize(path)
        return [f"the overlay {path} is empty: nothing is replaced"] if empty else []


class _OverlayNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Overlay) -> None:
        super().__init__(source)
        self.lane, self.stage, self.run_key = lane, stage, lane.run_key

    def start(self) -> None:
        self.table = self.lane.shared(("overlay", os.fspath(self.stage.path)), self.stage.table)

    def next(self) -> Sample:
        while True:
            sample: Sample = self.source.next()
            try:
                entry = self.table.get(sample.key)
                if entry is not None:
                    sample = _replaced(sample, entry, self.run_key)
            except DataError as error:
                self.lane.ledger.handle(sample.failure(error, self.stage.name), self.stage.name)
                continue
            self.lane.ledger.succeeded(self.stage.name)
            if entry is not None or self.stage.missing == "keep":
                return sample
            if self.stage.missing == "error":
                raise ListError(
                    f"the utterance {sample.key!r} of {sample.url} is not in the overlay {os.fspath(self.stage.path)}; "
                    'add it, or choose missing="keep" or "drop"'
                )
            self.lane.ledger.count("not_in_overlay")


def _replaced(sample: Sample, entry: dict[str, Any], run_key: bytes) -> Sample:
    """Return the sample with the entry's fields, which are checked like those of a line in a raw list."""
    if isinstance(entry.get("txt"), (int, float)):
        entry["txt"] = str(entry["txt"])
    for name in ("txt", "wav", "feat"):
        if name in entry and not isinstance(entry[name], str):
            raise DataError("bad_overlay", f"the overlay's {name} must be a string, not {entry[name]!r:.80}")
    gone = _OF_AUDIO if "wav" in entry else ()
    fields = {**{name: value for name, value in sample.fields.items() if name not in gone}, **entry}
    check_segment(fields, sample.url, sample.key)
    chain = sample.chain
    for link in chain.links:
        if link.of and not entry.keys().isdisjoint(link.reads | link.writes):
            rule = f"the overlay replaces a field of the stream {link.of!r}, which {link.name} may have worked on"
            raise PipelineError(f"{rule}: put overlay before {link.name}")
    if "feat" in entry:
        loading = (link is LOAD_FEATURES and not sample.done >> i & 1 for i, link in enumerate(chain.links))
        chain = chain if any(loading) else chain.then(LOAD_FEATURES)
    new = Sample(fields, sample.origin, run_key, chain, sample.url)
    new.done = sample.done
    return new
