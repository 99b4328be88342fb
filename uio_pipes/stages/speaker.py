"""``speaker``: the speaker's number."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.io.local import Ref
from uio_pipes.tokenizers.base import digest
from uio_pipes.tokenizers.symbols import read_symbols


@dataclass(frozen=True)
class Speaker(PerUtterance):
    """Replace the name in ``speaker`` by its number; a name that the table lacks becomes 0, as in WeNet.

    The name is a field of the raw list, or ``KEY.speaker`` in a shard; an utterance without one is the failure
    ``missing_speaker``. The batch then has ``speaker`` (B,) int32.

    Args:
        table: a dict of numbers by name, or the path of a symbol table (one ``name number`` per line), which is
            read when a loader starts.

    Raises:
        ListError: when the loader starts, if the table cannot be read.
    """

    name: ClassVar[str] = "speaker"
    reads: ClassVar[frozenset[str]] = frozenset(["speaker"])
    writes: ClassVar[frozenset[str]] = frozenset(["speaker"])

    table: str | os.PathLike[str] | Mapping[str, int]

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
        table = self.table if isinstance(self.table, Mapping) else read_symbols(self.table)
        ok = all(is_whole(number) and number >= 0 for number in table.values())
        rule = "speakers' numbers must be whole, 0 or more"
        require(ok, self.name, rule, table, "each line of a symbol table is `name number`")
        return {str(name): number for name, number in table.items()}

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        self.numbers  # noqa: B018  a bad file fails before the first utterance
        return super().build(source, lane, site)

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; fingerprints have a hash of the table instead of its path."""
        if stable or isinstance(self.table, Mapping):
            return f"{self.name}({len(self.numbers)} speakers {digest(sorted(self.numbers.items()))})"
        return super().describe()

    def apply(self, sample: Sample, draws: Draws) -> None:
        name = sample.fields.get("speaker")
        if name is None:
            raise DataError(
                "missing_speaker", "the utterance has no `speaker`: add it to the list, or leave .speaker out"
            )
        name = name.read() if isinstance(name, Ref) else name
        name = name.decode("utf-8").strip() if isinstance(name, bytes) else str(name)
        sample.fields["speaker"] = self.numbers.get(name, 0)
