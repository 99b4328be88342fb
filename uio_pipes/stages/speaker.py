"""``speaker``: the speaker's number."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uio_pipes.errors import DataError
from uio_pipes.io.local import Ref
from uio_pipes.lane import Draws
from uio_pipes.sample import Sample
from uio_pipes.stage import PerUtterance, is_whole, require
from uio_pipes.tokenizers.base import digest
from uio_pipes.tokenizers.symbols import read_symbols

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Speaker"]


class _Table(Mapping[str, int]):
    """Speakers' numbers; printed and compared by how many there are and a hash of the content."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = {str(name): number for name, number in numbers.items()}

    def __getitem__(self, name: str) -> int:
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"{len(self)} speakers {digest(sorted(self.items()))}"


@dataclass(frozen=True)
class Speaker(PerUtterance):
    """Replace the name in ``speaker`` by its number in ``table``, 0 if it is not there (WeNet's way).

    ``table``: path of a symbol table (``name number`` a line), read now, or a dict. The batch then has ``speaker`` (B,)
    int32. The name is a field of the raw list, or ``KEY.speaker`` in a shard; an utterance without one is the failure
    ``missing_speaker``.

    Raises: ListError if the table cannot be read.
    """

    name: ClassVar[str] = "speaker"
    reads: ClassVar[frozenset[str]] = frozenset(["speaker"])
    writes: ClassVar[frozenset[str]] = frozenset(["speaker"])

    table: str | os.PathLike[str] | Mapping[str, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        table, remedy = self.table, "a symbol table has `name number` a line"
        ok = isinstance(table, (str, os.PathLike, Mapping))
        require(ok, self.name, "table must be the path of a symbol table, or a dict of name to number", table, remedy)
        numbers = table if isinstance(table, Mapping) else read_symbols(table)
        ok = all(is_whole(number) and number >= 0 for number in numbers.values())
        require(ok, self.name, "speakers' numbers must be whole, 0 or more", table, remedy)
        object.__setattr__(self, "table", _Table(numbers))

    def apply(self, sample: Sample, draws: Draws) -> None:
        name = sample.fields.get("speaker")
        if name is None:
            raise DataError(
                "missing_speaker", "the utterance has no `speaker`: add it to the list, or leave .speaker out"
            )
        name = name.read() if isinstance(name, Ref) else name
        name = name.decode("utf-8").strip() if isinstance(name, bytes) else str(name)
        assert isinstance(self.table, Mapping)
        sample.fields["speaker"] = self.table.get(name, 0)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().map(_named).speaker({"0": 1, "1": 2}).batch(4).pad()


def _named(sample: Sample) -> Sample:
    sample["speaker"] = sample.key[-1]
    return sample
