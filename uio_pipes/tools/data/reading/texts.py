"""The texts of any data list, for dictionaries: audio is not opened, and need not be there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.lists.json_lines import parse_object
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.tar.checks import NO_UTTERANCE, against_manifest, listed_in, no_raw_line
from uio_pipes.formats.tar.fields import text_of
from uio_pipes.formats.tar.reader import UNREADABLE, TarReader, suspects, unchecked
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.access import PLAIN
from uio_pipes.io.opening import known_size
from uio_pipes.io.stream import open_source
from uio_pipes.sources.kaldi.tables import is_folder
from uio_pipes.sources.touchdataset.folder import folders, names_folder
from uio_pipes.tools.data.reading.data_list import (
    DataType,
    GivenNames,
    data_type_by,
    exists,
    first_line,
    is_archive,
    names_touchdataset,
    read_table,
    reads_records,
)
from uio_pipes.tools.data.reading.utterance_lists import Bad, RawList, fields_of, unwritable


def shard_texts(url: str) -> Iterator[str | DataError]:
    """Yield the texts of the shards in a list, and the failures that ``load_from_tar`` counts. Raises: ListError."""
    table = ItemTable((url,), PLAIN)
    for number in range(len(table)):
        shard, place, expected = table[number], table.place(number), table.expected(number)
        no_raw_line(shard, place)
        try:
            reader = _tar_reader(shard)
        except DataError as error:
            yield listed_in(error, shard, place, expected)
            continue
        size = known_size(shard, None)
        with closing(reader):
            seen = yield from _of_one(shard, reader, expected)
        if expected is not None and (bad := against_manifest(shard, expected, seen, size)):
            yield bad


def _tar_reader(shard: str, **how: Any) -> TarReader:
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
        yield from suspects(lambda: _tar_reader(shard), reader.sound, shard)
    if reader.unchecked:
        yield unchecked(shard)
    return seen


logger = logging.getLogger("uio_pipes")


class Texts:
    """The texts of data of any kind, whose ``fields`` may have other names; ``bad``: unreadable ones."""

    def __init__(self, url: str, data_type: DataType | None = None, fields: GivenNames = None) -> None:
        self.url, self.bad = url.rstrip("/") or "/", list[Bad]()
        self._read = partial(_of_records, fields=fields) if fields else _reader(self.url, data_type)

    def __iter__(self) -> Iterator[str]:
        self.bad = []
        for one in self._read(self.url):
            if isinstance(one, Bad):
                self.bad.append(one)
            else:
                yield one


def _reader(url: str, data_type: DataType | None) -> Callable[[str], Iterator[str | Bad]]:
    if is_folder(url):
        if names_touchdataset(url):
            return _of_indexed
        return _of_kaldi if exists(f"{url}/text") else _of_records
    if data_type is None and reads_records(url):
        return _of_records
    if not is_archive(url):
        first = first_line(url)
        if names_folder(first):
            return _of_indexed
        data_type = data_type or data_type_by(url, first)
    return _of_raw if data_type == "raw" else _of_shards


def _of_raw(url: str) -> Iterator[str | Bad]:
    return RawList(url).read(_text)


def _of_records(url: str, fields: GivenNames = None) -> Iterator[str | Bad]:
    """Read the texts as training does, but no audio."""
    from uio_pipes.core.lane import Lane  # these need torch
    from uio_pipes.run.lane_runner import items_of
    from uio_pipes.tools.data.common import Noting
    from uio_pipes.tools.data.recognize import recognize

    ledger = Noting()
    for sample in items_of(recognize(url, fields=fields).pipeline.build(Lane(ledger))):
        if isinstance(txt := sample.get("txt"), str):
            yield unwritable(txt, sample.key, sample.url) or txt
        else:
            yield Bad(sample.key, "missing_text", _lacking(sample.url, sample.fields))
    yield from map(_bad, ledger.take())


def _of_kaldi(url: str) -> Iterator[str | Bad]:
    table = read_table(f"{url}/text", 0)
    for number in range(len(table)):
        try:
            yield table.value(number)
        except DataError as error:
            yield _bad(error)


def _of_indexed(url: str) -> Iterator[str | Bad]:
    for folder, name, _ in folders((url,), None, PLAIN):
        if not name:
            raise ListError(f"{folder} holds the ids of tokens, without texts")
        file = IndexedFile(f"{folder.rstrip('/')}/{name}")
        for number in range(len(file)):
            place = f"{folder}/{name}, utterance {number}"
            try:
                yield _text(file.read(number), place)
            except ListError as error:
                yield Bad(place, "bad_line", str(error))


def _of_shards(url: str) -> Iterator[str | Bad]:
    for found in shard_texts(url):
        if isinstance(found, str):
            yield found
        elif found.reason in NOTES and not found.key:
            logger.warning("%s", found)  # of a whole shard: no utterance failed
        else:
            yield _bad(found)


def _text(line: bytes, place: str) -> str | Bad:
    """Return the text of an utterance's JSON. Raises: ListError if the line is not a JSON object."""
    fields = fields_of(line, place, parse_object)
    if isinstance(fields, Bad):
        return fields
    key, txt = str(fields.get("key") or place), fields.get("txt")
    if not isinstance(txt, str):
        return Bad(key, "missing_text", _lacking(place, fields))
    return unwritable(txt, key, place) or txt


def _lacking(place: str, there: Mapping[str, Any]) -> str:
    return f"{place}: the utterance has no txt: {named_otherwise('txt', there)}"


def _bad(error: DataError) -> Bad:
    return Bad(error.key or error.member or error.url, error.reason, str(error))
