"""All checks of one shard, in one pass over its bytes, of utterances of raw lists, and of sources read in any order."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.decode import decode, sample_range
from uio_pipes.audio.length import Plan, StoredFeatures, audio_info, npy_shape, segment_samples
from uio_pipes.audio.video import decode_video
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.urls import suffix_of
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Tally
from uio_pipes.core.roles import Source
from uio_pipes.formats.lists.json_lines import parse
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.lists.quarantine import home
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.checks import (
    NO_UTTERANCE,
    against_manifest,
    check_fresh,
    has_sidecar,
    miscounted,
    read_sidecar,
)
from uio_pipes.formats.tar.index import ShardIndex
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, Grouping
from uio_pipes.formats.touchdataset import StoredRecord, remedy_for
from uio_pipes.io.access import Access
from uio_pipes.io.local import AudioInfo, Ref
from uio_pipes.io.opening import open_binary
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.sources.conversations import recordings_of
from uio_pipes.sources.lhotse.recording import Recorded, fits
from uio_pipes.sources.lhotse.stored import StoredArray
from uio_pipes.sources.nemo.table import NemoTable
from uio_pipes.sources.touchdataset.folder import Pcm
from uio_pipes.sources.touchdataset.source import IndexedTable
from uio_pipes.tools.data.audio_checks import check_duration, check_rate, check_suffix, check_whole
from uio_pipes.tools.data.common import Noting, PackedKeys
from uio_pipes.tools.data.scan import Looked, Scanning


@dataclass(frozen=True)
class WantedChecks:
    """The checks to be made beyond structure, headers, texts and counts.

    ``decode``: decode all audio and load all features; ``crc``: a shard or folder without an index is a finding (if
    there is one, CRC32s are always compared); ``rate``: Hz that all audio must have; ``indexes``: the folder of
    ``uio index --into``; ``fields``: names that fields have in the data, by ours.
    """

    decode: bool = False
    crc: bool = False
    rate: int | None = None
    grouping: Grouping = "wenet"
    text: str = "txt"
    indexes: str | None = None
    fields: Mapping[str, str] | None = None


@dataclass
class Checked:
    """The findings in one shard, or in some lines of a raw list."""

    keys: PackedKeys
    utterances: int = 0
    bytes: int = 0
    findings: list[DataError] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)


def verify_shard(url: str, entry: ShardEntry | None, wanted: WantedChecks, access: Access | None = None) -> Checked:
    """Check one shard. ``entry``: its entry in the list's manifest."""
    checked = Checked(PackedKeys.of(url, [], []))
    try:
        names = wanted.fields or {}
        reading = Scanning(url, access, wanted.grouping, names.get("txt", wanted.text), names)
        for looked in reading:
            key, offset = looked.utterance.key, looked.utterance.offset
            found = _looked_at(looked, wanted)
            checked.findings += (finding(each.reason, each.message, url, key, offset) for each in found)
        index = reading.index()
    except DataError as error:
        checked.findings.append(error)
        return checked
    checked.keys, checked.utterances, checked.bytes = PackedKeys.of_shard(url, index), len(index), index.shard.size
    checked.findings = [*index.errors, *reading.bad, *checked.findings]
    if entry is not None:
        seen = len(index) + sum(error.reason not in NO_UTTERANCE for error in index.errors)
        if seen != entry.utterances:
            checked.findings.append(miscounted(url, entry.utterances, seen))
        same = entry._replace(utterances=seen)
        if bad := against_manifest(url, same, seen, index.shard.size, f"{index.shard.crc32:08x}"):
            checked.findings.append(bad)
    checked.findings += _against_index(url, index, wanted, access)
    return checked


def _looked_at(looked: Looked, wanted: WantedChecks) -> Iterator[DataError]:
    """Yield the findings of one utterance beyond its header."""
    audio = looked.audio
    if audio is not None and audio[0].rpartition(".")[2] in AUDIO_SUFFIXES:  # `fields` may name any other suffix
        yield from check_suffix(*audio)
    if audio is not None and looked.info is not None and looked.features is None:
        yield from check_rate(looked.info.sample_rate, wanted.rate)
    if wanted.decode and looked.error is None:
        try:
            if audio is not None:
                decode(audio[1], None)
                yield from check_whole(audio[1])
            if looked.features is not None:
                yield from _check_npy(looked.features)
        except DataError as error:
            yield error


def _check_npy(features: bytes) -> Iterator[DataError]:
    try:
        array = np.load(io.BytesIO(features), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:
        yield DataError("bad_features", f"cannot read the features: {error}")
        return
    yield from _check_finite(array, "bad_features", "features")


def _check_finite(values: npt.NDArray[Any], reason: str, what: str) -> Iterator[DataError]:
    if not np.isfinite(values).all():
        yield DataError(reason, f"some {what} are not numbers (NaN or infinite): make them again")


def _against_index(url: str, now: ShardIndex, wanted: WantedChecks, access: Access | None) -> Iterator[DataError]:
    if not has_sidecar(url, access, wanted.indexes):
        if wanted.crc:
            yield DataError("missing_index", "the shard has no index: make it with uio index", url=url)
        return
    then: ShardIndex | None = None
    try:
        then = read_sidecar(url, access, wanted.indexes)
        check_fresh(then, url, access, wanted.indexes)
    except ListError as error:
        yield DataError("stale_index", str(error), url=url)
    if then is None:
        return
    crcs = {now.start(i): {m.suffix: m.crc for m in now.members(i)} for i in range(len(now))}
    for i in range(len(then)):
        members = {m.suffix: m.crc for m in then.members(i)}
        if members != crcs.get(then.start(i), members):
            message = "the bytes are not those that were indexed (CRC32): fetch or pack the file again"
            yield finding("bad_crc", message, url, then.key(i), then.start(i))


_KEPT = 0.01  # frames per second


class Share(NamedTuple):
    """The ``part``-th of ``parts`` shares of the utterances that ``listing`` lists; ``name``: its path.

    A pipeline in its place is read in order: that of a Shar.
    """

    name: str
    listing: Source | Pipeline
    part: int = 0
    parts: int = 1


def verify_records(records: Share, wanted: WantedChecks) -> Checked:
    """Check a share. A folder that cannot be opened is the finding ``bad_index``."""
    checked = Checked(PackedKeys.of(records.name, [], []))
    keys, places = list[str](), list[str]()

    @lru_cache(1)  # segments of one recording follow one another
    def read(wav: Any) -> bytes:
        data = _read(wav)
        checked.bytes += len(data)
        return data

    for place, fields in _utterances(records, wanted, checked):
        keys.append(fields["key"])
        places.append(place)
        try:
            found = list(_utterance(fields, wanted, checked, read))
        except DataError as error:
            found = [error]
        checked.findings += (finding(each.reason, each.message, place, fields["key"]) for each in found)
    checked.keys, checked.utterances = PackedKeys.at(records.name, keys, places), len(keys)
    return checked


def _utterances(records: Share, wanted: WantedChecks, checked: Checked) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and fields of each utterance of a share that can be read."""
    if isinstance(records.listing, Pipeline):
        yield from _in_order(records, records.listing, checked)
        return
    try:
        table = records.listing.table()
    except ListError as error:
        checked.findings += [DataError("bad_index", str(error), url=records.name)] if records.part == 0 else []
        return
    if isinstance(table, IndexedTable):
        found = list(_checksums(table, wanted))
        checked.findings += found if records.part == 0 else []
    if isinstance(table, NemoTable) and records.part == 0:
        checked.findings += table.findings()
    for number in range(len(table) * records.part // records.parts, len(table) * (records.part + 1) // records.parts):
        try:
            fields = table.fields(number)
        except LeftOut:
            continue
        except DataError as error:
            error.key = error.key or table.key(number)
            checked.findings.append(error)
            continue
        yield table.place(number), fields


def _in_order(records: Share, pipeline: Pipeline, checked: Checked) -> Iterator[tuple[str, dict[str, Any]]]:
    ledger = Noting()
    for sample in items_of(pipeline.build(Lane(ledger, records.part, records.parts))):
        yield sample.url, sample.fields
        checked.findings += ledger.take()
    checked.findings, checked.tallies = checked.findings + ledger.take(), ledger.tallies


def _checksums(table: IndexedTable, wanted: WantedChecks) -> Iterator[DataError]:
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


def _utterance(fields: dict[str, Any], wanted: WantedChecks, checked: Checked, read: Any) -> Iterator[DataError]:
    _beside(fields, wanted, checked)
    if isinstance(feat := fields.get("feat"), StoredFeatures):
        if wanted.decode:
            yield from _check_finite(feat.load(), "bad_features", "features")
        else:
            feat.frames  # noqa: B018  reads the header
        return
    wav = fields.get("feat", fields.get("wav"))
    if wav is None:  # text, or a conversation
        for number, one in enumerate(recordings_of(fields), 1):
            yield from _within(f"recording {number}", _utterance(one, wanted, checked, read))
        return
    if isinstance(wav, np.ndarray):
        checked.bytes += wav.nbytes
        yield from _array(wav, fields, wanted)
    elif isinstance(wav, Recorded):
        yield from _recorded(wav, fields, wanted, read)
    elif isinstance(wav, Pcm):
        checked.bytes += wav.size
        yield from _samples(wav, fields, wanted)
        wav.compare()
    else:
        yield from verify_recording(fields, wav if isinstance(wav, bytes) else read(wav), wanted)


def _within(what: str, found: Iterator[DataError]) -> Iterator[DataError]:
    try:
        for error in found:
            yield error.within(what)
    except DataError as error:
        yield error.within(what)


def _array(values: npt.NDArray[Any], fields: dict[str, Any], wanted: WantedChecks) -> Iterator[DataError]:
    """Check samples, or features, that are there as numbers. Raises: DataError ``missing_sample_rate``."""
    if "feat" not in fields:
        if (rate := fields.get("sample_rate")) is None:
            raise DataError("missing_sample_rate", "samples need their rate in Hz: give a column sample_rate")
        yield from check_rate(int(rate), wanted.rate)
    if wanted.decode:
        reason, what = ("bad_features", "features") if "feat" in fields else ("nan_audio", "samples")
        yield from _check_finite(values, reason, what)


def _beside(fields: dict[str, Any], wanted: WantedChecks, checked: Checked) -> None:
    """Check what is there beside audio and features: other modalities, custom recordings and arrays."""
    for name, value in fields.items():
        if type(value) is StoredRecord:
            checked.bytes += value.size
            value.compare()
            if wanted.decode and name == "video":  # all of it is decoded, and hardly any of it kept
                decode_video(value.read_at, value.size, None, None, _KEPT, (8, 8))
        elif wanted.decode and name != "wav" and isinstance(value, (Recorded, StoredArray)):
            value.read()


def _recorded(wav: Recorded, fields: dict[str, Any], wanted: WantedChecks, read: Any) -> Iterator[DataError]:
    """Compare a recording's files with its manifest, and have it decoded if that is wanted."""
    data = [source if isinstance(source, bytes) else read(source) for source in wav.sources]
    told = AudioInfo(int(wav.manifest["num_samples"]), wav.info.sample_rate, wav.info.channels)
    if len(data) == 1 and not wav.manifest.get("transforms"):
        found = audio_info(data[0], {})
        if found is not None and found.sample_rate != told.sample_rate:
            message = f"the manifest says {told.sample_rate} Hz, the audio has {found.sample_rate}: correct one of them"
            yield DataError("wrong_rate", message)
        elif found is not None:
            fits(found.samples, told.samples, told.sample_rate)
    yield from _samples(wav, fields, wanted)
    for each in data if wanted.decode else ():
        yield from check_whole(each)


def _samples(wav: Pcm | Recorded, fields: dict[str, Any], wanted: WantedChecks) -> Iterator[DataError]:
    start, end = fields.get("start"), fields.get("end")
    if not (start is None and end is None):
        sample_range(wav.info.samples, wav.info.sample_rate, start, end)
    yield from check_rate(wav.info.sample_rate, wanted.rate)
    if wanted.decode:
        wav.decode(None, start, end)


def verify_lines(lines: Sequence[tuple[str, str]], wanted: WantedChecks, access: Access | None = None) -> Checked:
    """Check lines, each given with its place. Recordings are read whole."""
    findings, keys, places = list[DataError](), list[str](), list[str]()
    size = 0
    for text, place in lines:
        key = ""
        try:
            fields = parse(text, place, wanted.fields, bool(wanted.text))
            key = fields["key"]
            keys.append(key)
            places.append(place)
            with open_binary(fields.get("feat") or fields["wav"], access) as file:
                data = file.read()
            size += len(data)
            found = list(verify_recording(fields, data, wanted))
        except DataError as error:
            found = [error]
        findings += (finding(each.reason, each.message, place, key or each.member) for each in found)
    return Checked(PackedKeys.at(home(lines[0][1]), keys, places), len(keys), size, findings)


def verify_recording(fields: dict[str, Any], data: bytes, wanted: WantedChecks) -> Iterator[DataError]:
    """Check one utterance of a recording, ``data``. Raises: DataError for a finding that ends the check."""
    if "feat" in fields:
        npy_shape(data, len(data))
        return
    start, end = fields.get("start"), fields.get("end")
    info = audio_info(data, fields)
    name = fields["wav"] if isinstance(fields["wav"], str) else ""
    yield from check_suffix(suffix_of(name), data)
    if info is not None:
        stated = fields.get("sample_rate", wanted.rate)
        if end is not None:
            sample_range(info.samples, info.sample_rate, start, end)
        yield from check_rate(info.sample_rate, stated if isinstance(stated, int) else wanted.rate)
        yield from check_duration(fields, Plan(segment_samples(info, start, end), info.sample_rate))
    if wanted.decode:
        waveform, rate = decode(data, None, start, end)
        if info is None:
            yield from check_duration(fields, Plan(waveform.shape[-1], rate))
        yield from check_whole(data, end)
