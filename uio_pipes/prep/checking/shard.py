"""All checks of one shard, in one pass over its bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from uio_pipes.audio.containers import belies
from uio_pipes.audio.decode import decode
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.manifest import ShardEntry
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
from uio_pipes.io.access import Access
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.scan import Looked, Scanning


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


def verify_shard(url: str, entry: ShardEntry | None, wanted: WantedChecks, access: Access | None = None) -> Checked:
    """Check one shard. ``entry``: its entry in the list's manifest."""
    checked = Checked(PackedKeys.of(url, [], []))
    try:
        names = wanted.fields or {}
        reading = Scanning(url, access, wanted.grouping, names.get("txt", wanted.text), names)
        for looked in reading:
            checked.findings += _named(url, looked, _utterance(looked, wanted))
        found = reading.scan()
    except DataError as error:
        checked.findings.append(error)
        return checked
    index = found.index
    checked.keys = PackedKeys.of(
        url, [index.key(i) for i in range(len(index))], [index.start(i) for i in range(len(index))]
    )
    checked.utterances, checked.bytes = len(index), index.shard.size
    checked.findings = [*index.errors, *found.bad, *checked.findings]
    if entry is not None:
        checked.findings += _against_manifest(url, index, entry)
    checked.findings += _against_index(url, index, wanted, access)
    return checked


def _named(url: str, looked: Looked, found: Iterator[DataError]) -> Iterator[DataError]:
    utterance = looked.utterance
    for each in found:
        yield finding(each.reason, each.message, url, utterance.key, utterance.offset)


def _utterance(looked: Looked, wanted: WantedChecks) -> Iterator[DataError]:
    """Yield the findings of one utterance beyond its header."""
    audio = looked.audio
    named = audio is not None and audio[0].rpartition(".")[2] in AUDIO_SUFFIXES  # `fields` may name any other suffix
    if audio is not None and named and (form := belies(audio[0], audio[1][:16])) is not None:
        message = f"named .{audio[0]}, but it is {form}, and is decoded as that: rename it"
        yield DataError("wrong_suffix", message)
    if audio is not None and looked.info is not None and looked.features is None:
        yield from check_rate(looked.info.sample_rate, wanted.rate)
    if wanted.decode and looked.error is None:
        try:
            if audio is not None:
                decode(audio[1], None)
            _features(looked)
        except DataError as error:
            yield error


def check_rate(rate: int, wanted: int | None) -> Iterator[DataError]:
    if wanted is not None and rate != wanted:
        yield DataError("wrong_rate", f"{rate} Hz instead of {wanted}: resample it, or leave --rate out")


def _features(looked: Looked) -> None:
    """Load the features. Raises: DataError ``bad_features``."""
    if looked.features is None:
        return
    try:
        array = np.load(io.BytesIO(looked.features), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise DataError("bad_features", f"cannot read the features: {error}") from error
    if not np.isfinite(array).all():
        raise DataError("bad_features", "some features are not numbers (NaN or infinite): make them again")


def _against_manifest(url: str, index: ShardIndex, entry: ShardEntry) -> Iterator[DataError]:
    seen = len(index) + sum(error.reason not in NO_UTTERANCE for error in index.errors)
    if seen != entry.utterances:
        yield miscounted(url, entry.utterances, seen)
    crc, same = f"{index.shard.crc32:08x}", entry._replace(utterances=seen)
    if bad := against_manifest(url, same, seen, index.shard.size, crc):
        yield bad


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
