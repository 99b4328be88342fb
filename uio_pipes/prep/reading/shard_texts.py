"""The texts of tar shards, one after the other, and the failures in a shard. No torch in here."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.lists.table import Table
from uio_pipes.formats.tar.fields import payloads_under, text_of
from uio_pipes.formats.tar.reader import UNREADABLE, TarReader
from uio_pipes.formats.tar.suspects import suspects, unchecked
from uio_pipes.formats.tar.whole_shard import NO_UTTERANCE, against_manifest, listed_in, no_raw_line
from uio_pipes.io.access import PLAIN
from uio_pipes.io.opening import known_size
from uio_pipes.io.stream import open_source

LOOKED_AT = 4  # utterances


def shard_texts(url: str) -> Iterator[str | DataError]:
    """Yield the texts of the shards in a list, and the failures that ``load_from_tar`` counts. Raises: ListError."""
    table = Table((url,), PLAIN)
    for number in range(len(table)):
        shard, place, expected = table[number], table.place(number), table.expected(number)
        no_raw_line(shard, place)
        seen, size = 0, None
        try:
            reader = _reader(shard)
        except DataError as error:
            yield listed_in(error, shard, place)
        else:
            size = known_size(shard, None)
            with closing(reader):
                seen = yield from _of_one(shard, reader, expected)
        if expected is not None and (bad := against_manifest(shard, expected, seen, size)):
            yield bad


def holds_texts(url: str, fields: Mapping[str, str] | None = None) -> bool:
    """Return False if none of the first utterances of the first shard has a transcript. Raises: ListError."""
    shard, suffix = Table((url,), PLAIN)[0], (fields or {}).get("txt", "txt").partition(":")[0]
    seen = list[bool]()
    with (
        suppress(DataError, StopIteration),
        closing(_reader(shard, text="", payloads=payloads_under(fields))) as reader,
    ):
        while len(seen) < LOOKED_AT:
            seen.append(suffix in reader.next().fields)
    return any(seen) or not seen


def _reader(shard: str, **how: Any) -> TarReader:
    return TarReader(shard, open_source(shard, PLAIN), **how)


def _of_one(shard: str, reader: TarReader, expected: ShardEntry | None) -> Generator[str | DataError, None, int]:
    """Yield the texts of one shard; return the number of its utterances, failed ones included."""
    seen = 0
    while True:
        try:
            text = text_of(reader.next(), shard)
        except StopIteration:
            break
        except DataError as error:
            if error.reason == "unclear_end" and expected is not None:
                continue  # the manifest will show it
            yield error
            if error.reason in UNREADABLE:
                break
            seen += error.reason not in NO_UTTERANCE
        else:
            seen += 1
            yield text
    if reader.sound is not None:
        yield from suspects(lambda: _reader(shard), reader.sound, shard)
    if reader.unchecked:
        yield unchecked(shard)
    return seen
