"""All checks of the utterances of TouchDatasets and Kaldi folders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.findings import finding
from uio_pipes.formats.tar.index_files import has_sidecar
from uio_pipes.formats.touch.checksums import remedy_for
from uio_pipes.formats.touch.pcm import Pcm
from uio_pipes.formats.touch.table import IndexedTable
from uio_pipes.io.local import Ref
from uio_pipes.io.opening import open_binary
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.checking.lines import verify_recording
from uio_pipes.prep.checking.shard import Checked, Wanted, check_rate
from uio_pipes.sources.indexed import ListIndexed
from uio_pipes.sources.kaldi import ListKaldi


class Share(NamedTuple):
    """The ``part``-th of ``parts`` shares of the utterances that ``listing`` lists; ``name``: its path."""

    name: str
    listing: ListIndexed | ListKaldi
    part: int = 0
    parts: int = 1


def verify_records(records: Share, wanted: Wanted) -> Checked:
    """Check a share. A folder that cannot be opened is the finding ``bad_index``."""
    checked = Checked(PackedKeys.of(records.name, [], []))
    try:
        table = records.listing.table()
    except ListError as error:
        checked.findings += [DataError("bad_index", str(error), url=records.name)] if records.part == 0 else []
        return checked
    if isinstance(table, IndexedTable):
        found = list(_checksums(table, wanted))
        checked.findings += found if records.part == 0 else []
    keys, numbers = list[str](), list[int]()

    @lru_cache(1)  # segments of one recording follow one another
    def read(wav: Any) -> bytes:
        data = _read(wav)
        checked.bytes += len(data)
        return data

    for number in range(len(table) * records.part // records.parts, len(table) * (records.part + 1) // records.parts):
        try:
            fields = table.fields(number)
        except DataError as error:
            error.key = error.key or table.key(number)
            checked.findings.append(error)
            continue
        keys.append(fields["key"])
        numbers.append(number)
        try:
            found = list(_utterance(fields, wanted, checked, read))
        except DataError as error:
            found = [error]
        place = table.place(number)
        checked.findings += (finding(each.reason, each.message, place, fields["key"]) for each in found)
    checked.keys, checked.utterances = PackedKeys.of(records.name, keys, numbers), len(keys)
    return checked


def _checksums(table: IndexedTable, wanted: Wanted) -> Iterator[DataError]:
    """Have the records compared with their checksums, if there are any."""
    for file in table.files:
        if not has_sidecar(file.data.path, folder=wanted.indexes):
            if wanted.crc:
                remedy = remedy_for(file.data.path, wanted.indexes)
                yield DataError("missing_index", f"there are no checksums: make them with {remedy}", url=file.data.path)
            continue
        try:
            file.compare(wanted.indexes)
        except ListError as error:
            yield DataError("stale_index", str(error), url=file.data.path)


def _read(wav: Any) -> bytes:
    if isinstance(wav, Ref):
        return wav.read()
    with open_binary(wav) as file:
        return file.read()


def _utterance(fields: dict[str, Any], wanted: Wanted, checked: Checked, read: Any) -> Iterator[DataError]:
    if "feat" in fields:
        _features(fields["feat"], wanted)
        return
    wav = fields["wav"]
    if isinstance(wav, Pcm):
        checked.bytes += wav.size
        yield from _samples(wav, fields, wanted)
        return
    yield from verify_recording(fields, read(wav), wanted)


def _samples(wav: Pcm, fields: dict[str, Any], wanted: Wanted) -> Iterator[DataError]:
    start, end = fields.get("start"), fields.get("end")
    if not (start is None and end is None):
        sample_range(wav.info.samples, wav.info.sample_rate, start, end)
    yield from check_rate(wav.info.sample_rate, wanted.rate)
    wav.compare()
    if wanted.decode and not wav.decode(None, start, end)[0].isfinite().all():
        yield DataError("nan_audio", "some samples are not numbers (NaN or infinite): convert the data again")


def _features(feat: StoredFeatures, wanted: Wanted) -> None:
    """Check the header, or all of the features. Raises: DataError."""
    if not wanted.decode:
        feat.frames  # noqa: B018  reads the header
    elif not np.isfinite(feat.load()).all():
        raise DataError("bad_features", "some features are not numbers (NaN or infinite): make them again")
