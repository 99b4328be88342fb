"""The texts of any data list, for dictionaries: audio is not opened, and need not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.lists.json_lines import parse_object
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.kaldi.tables import KaldiLines, is_folder
from uio_pipes.sources.seen import GivenNames, Seen, exists
from uio_pipes.sources.touchdataset.folder import folders, names_touchdataset
from uio_pipes.tools.data.reading.utterances import Bad


class Texts:
    """The texts of data of any kind, whose ``fields`` may have other names; ``bad``: unreadable ones."""

    def __init__(self, url: str, fields: GivenNames = None) -> None:
        self.url, self.bad = url.rstrip("/") or "/", list[Bad]()
        self._read = partial(_of_records, fields=fields) if fields else _reader(self.url)

    def __iter__(self) -> Iterator[str]:
        self.bad = []
        for one in self._read(self.url):
            if isinstance(one, Bad):
                self.bad.append(one)
            else:
                yield one


def _reader(url: str) -> Callable[[str], Iterator[str | Bad]]:
    """Return how texts are read: those of three formats without torch, which takes its time."""
    if (seen := Seen(url)).is_named or seen.is_inline:
        return _of_records
    if names_touchdataset(url):
        return _of_indexed
    if is_folder(url):
        return _of_kaldi if exists(f"{url}/text") else _of_records
    return _of_raw if not seen.columns.isdisjoint(("wav", "feat", "txt")) and seen.is_json else _of_records


def _of_raw(url: str) -> Iterator[str | Bad]:
    table = ItemTable((url,), PLAIN)
    return (_text(table[number], table.place(number)) for number in range(len(table)))


def _of_records(url: str, fields: GivenNames = None) -> Iterator[str | Bad]:
    """Read the texts as training does, but no audio."""
    from uio_pipes.core.lane import Lane  # these need torch
    from uio_pipes.run.lane_runner import items_of
    from uio_pipes.tools.data.common import Noting
    from uio_pipes.tools.data.recognize import recognize

    ledger = Noting()
    for sample in items_of(recognize(url, fields=fields).pipeline.build(Lane(ledger))):
        if isinstance(txt := sample.get("txt"), str):
            yield txt
        else:
            yield Bad(sample.key, "missing_text", _lacking(sample.url, sample.fields))
    yield from map(Bad.of, ledger.take())


def _of_kaldi(url: str) -> Iterator[str | Bad]:
    table = KaldiLines([f"{url}/text"], 0)
    for number in range(len(table)):
        try:
            yield table.value(number)
        except DataError as error:
            yield Bad.of(error)


def _of_indexed(url: str) -> Iterator[str | Bad]:
    for folder, name, _ in folders((url,), None, PLAIN):
        if not name:
            raise ListError(f"{folder} holds the ids of tokens, without texts")
        file = IndexedFile(f"{folder.rstrip('/')}/{name}")
        for number in range(len(file)):
            yield _text(file.read(number).decode("utf-8", "surrogateescape"), f"{folder}/{name}, utterance {number}")


def _text(line: str, place: str) -> str | Bad:
    """Return the text of an utterance's JSON."""
    try:
        fields = parse_object(line, place)
    except DataError as error:
        return Bad.of(error)
    except ListError as error:
        return Bad(place, "bad_line", str(error))
    txt = fields.get("txt")
    return (
        txt if isinstance(txt, str) else Bad(str(fields.get("key") or place), "missing_text", _lacking(place, fields))
    )


def _lacking(place: str, there: Mapping[str, Any]) -> str:
    return f"{place}: the utterance has no txt: {named_otherwise('txt', there)}"
