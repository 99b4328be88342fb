"""All checks of one shard, in one pass over its bytes, and of utterances of any other source, read as training does."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import soundfile

from uio_pipes.audio.containers import DECLARED, LONGEST, Declared, belies, decoding, sniff
from uio_pipes.audio.decode import TOLERANCE, sample_range
from uio_pipes.audio.flac import stream_info
from uio_pipes.audio.length import Plan, audio_info, measure, planned_by_duration, segment_samples
from uio_pipes.audio.lossy import check_ogg
from uio_pipes.audio.recording import Recording, as_waveform, decoded
from uio_pipes.audio.video import decode_video
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.urls import suffix_of
from uio_pipes.core.items import SampleMaker, read_payload
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger, Tally
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Source
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.checks import (
    NO_UTTERANCE,
    against_manifest,
    check_fresh,
    has_sidecar,
    read_sidecar,
)
from uio_pipes.formats.tar.index import ArchiveIndex
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, Grouping
from uio_pipes.formats.touchdataset import StoredRecord
from uio_pipes.io.access import PLAIN
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opening import is_local
from uio_pipes.io.references import Ref
from uio_pipes.io.relative_paths import RelativeRef
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.sources.conversations import recordings_of
from uio_pipes.sources.lhotse.recording import Recorded
from uio_pipes.tools.data.common import Noting, PackedKeys
from uio_pipes.tools.data.reading import RawTable
from uio_pipes.tools.data.scan import Scanning


@dataclass(frozen=True)
class WantedChecks:
    """The checks to be made beyond structure, headers, texts and counts.

    ``decode``: decode all audio and load all features; ``crc``: a shard or folder without an index is a finding (if
    there is one, CRC32s are always compared); ``rate``: Hz that all audio must have; ``indexes``: the folder of
    ``uio index --into``; ``fields``: names that fields have in the data, by ours; ``tolerance``: seconds by which audio
    may differ from what its list declares, None: what sources take as usual.
    """

    decode: bool = False
    crc: bool = False
    rate: int | None = None
    grouping: Grouping = "wenet"
    text: str = "txt"
    indexes: str | None = None
    fields: Mapping[str, str] | None = None
    tolerance: float | None = None


@dataclass
class Checked:
    """The findings in one shard, or in some lines of a raw list."""

    keys: PackedKeys
    utterances: int = 0
    findings: list[DataError] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)


def verify_shard(url: str, entry: ShardEntry | None, wanted: WantedChecks) -> Checked:
    """Check one shard. ``entry``: its entry in the list's manifest."""
    checked, names = Checked(PackedKeys.of(url, [], [])), wanted.fields or {}
    try:
        reading = Scanning(url, wanted.grouping, names.get("txt", wanted.text), names)
        for looked in reading:
            key, offset = looked.utterance.key, looked.utterance.offset
            suffix, audio = looked.audio or ("", None)
            named = suffix.rpartition(".")[2]  # `fields` may name any other suffix
            features = looked.features if names or audio is None else None  # an array beside audio may be anything
            for fields in () if looked.error else ({"wav": audio}, {"feat": features}):
                found = check_utterance(fields, wanted, named if named in AUDIO_SUFFIXES else "")
                checked.findings += (finding(each.reason, each.message, url, key, offset) for each in found)
        index = reading.index()
    except DataError as error:
        checked.findings.append(error)
        return checked
    checked.keys, checked.utterances = PackedKeys.of_shard(url, index), len(index)
    checked.findings = [*index.errors, *reading.bad, *checked.findings]
    if entry is not None:
        seen = len(index) + sum(error.reason not in NO_UTTERANCE for error in index.errors)
        bad = against_manifest(url, entry, seen, index.shard.size, f"{index.shard.crc32:08x}")
        checked.findings += [bad] if bad else []
    checked.findings += _against_index(url, index, wanted)
    return checked


def _against_index(url: str, now: ArchiveIndex, wanted: WantedChecks) -> Iterator[DataError]:
    if not has_sidecar(url, folder=wanted.indexes):
        if wanted.crc:
            yield DataError("missing_index", "the shard has no index: make it with uio index", url=url)
        return
    then: ArchiveIndex | None = None
    try:
        then = read_sidecar(url, PLAIN, wanted.indexes)
        check_fresh(then, url, PLAIN, wanted.indexes)
    except ListError as error:
        yield DataError("stale_index", str(error), url=url)
    if then is None:
        return
    crcs = {now.start(i): {m.name: m.crc for m in now.members(i)} for i in range(len(now))}
    for i in range(len(then)):
        members = {m.name: m.crc for m in then.members(i)}
        if members != crcs.get(then.start(i), members):
            message = "the bytes are not those that were indexed (CRC32): fetch or pack the file again"
            yield finding("bad_crc", message, url, then.key(i), then.start(i))


def check_utterance(fields: dict[str, Any], wanted: WantedChecks, suffix: str = "") -> Iterator[DataError]:
    """Yield what is wrong with an utterance that was read from any source. ``suffix``: of the name of its audio."""
    try:
        for name, value in fields.items():
            if isinstance(value, (StoredRecord, Recorded)):
                value.compare()
            if wanted.decode and name == "video" and isinstance(value, Ref):  # all is decoded, and hardly any kept
                decode_video(value.read_at, value.size, None, None, _KEPT, (8, 8))
            elif wanted.decode and name not in ("wav", "feat") and isinstance(value, Ref):
                value.read()
        if (feat := fields.get("feat")) is not None:
            measure({"feat": feat})
            if wanted.decode:
                _SAMPLES.sample({"key": "", "feat": feat}, Origin(0), "")["feat"]  # which is loaded when it is touched
        elif fields.get("wav") is not None:
            yield from _check_audio(fields, wanted, suffix)
        for number, one in enumerate(recordings_of(fields), 1):
            yield from (error.within(f"recording {number}") for error in check_utterance(one, wanted))
    except DataError as error:
        yield error


_KEPT = 0.01  # frames of a video per second
_SAMPLES = SampleMaker(Lane(Ledger()))


def _check_audio(fields: dict[str, Any], wanted: WantedChecks, suffix: str) -> Iterator[DataError]:
    """Yield what is wrong with audio of any kind. Raises: DataError for what ends the check."""
    wav, start, end = fields["wav"], fields.get("start"), fields.get("end")
    if isinstance(wav, np.ndarray):
        if (rate := fields.get("sample_rate")) is None:
            raise DataError("missing_sample_rate", "samples need their rate in Hz: give a column sample_rate")
        yield from _check_rate(int(rate), wanted.rate)
        if wanted.decode:
            as_waveform(wav, None)
        return
    wav = fields["wav"] = wav.local if isinstance(wav, RelativeRef) else wav
    info = audio_info(wav, fields)
    if isinstance(wav, str):
        suffix = suffix_of(wav)
    if isinstance(wav := fields["wav"], (str, bytes)):  # of a remote file, now its bytes
        head = wav[:16] if isinstance(wav, bytes) else LocalFile(is_local(wav) or wav).read_upto(0, 16)
        if suffix and (form := belies(suffix, head)) is not None:
            yield DataError("wrong_suffix", f"named .{suffix}, but it is {form}, and is decoded as that: rename it")
    plan = None if info is None else Plan(segment_samples(info, start, end), info.sample_rate)
    whole = start is None and end is None
    if info is not None and not whole:
        sample_range(info.samples, info.sample_rate, start, end)
    if wanted.decode:
        waveform, rate = decoded(wav, None, start, end)
        plan = plan or Plan(waveform.shape[-1], rate)
        stored = getattr(wav, "stored", None if isinstance(wav, Recording) else wav)
        if whole and stored is not None:
            yield from check_whole(read_payload(stored))
    if plan is not None:
        for expected_rate in dict.fromkeys((fields.get("sample_rate"), wanted.rate)):
            yield from _check_rate(plan.sample_rate, expected_rate)
        yield from _check_duration(fields, plan)


def _check_rate(rate: int, wanted: Any) -> Iterator[DataError]:
    if isinstance(wanted, int) and rate != wanted:
        yield DataError("wrong_rate", f"{rate} Hz instead of {wanted}: resample it, or leave --rate out")


def check_whole(data: bytes) -> Iterator[DataError]:
    """Yield what may be wrong with a file of which all can be decoded."""
    form = sniff(data)
    try:
        if form == "flac" and _has_other_samples(data):
            message = "the MD5 in its header is not that of its samples: the file is damaged; copy it again"
            yield DataError("bad_audio", message)
    except soundfile.SoundFileError as error:
        yield DataError("bad_audio", f"cannot be decoded: {getattr(error, 'error_string', error)}")
    if form == "ogg" and not check_ogg(lambda offset, count: data[offset : offset + count], len(data)):
        message = (
            "the last page of the Ogg file is whole, but not marked as the last: some recorders never do that, or it "
            "was cut off there. Compare its length with the original's; ffmpeg -i FILE -c copy OUT marks the end"
        )
        yield DataError("suspect", message)


def _has_other_samples(data: bytes) -> bool:
    """Return whether the MD5 in the header of a FLAC file is not that of the samples; False if it holds none."""
    info = stream_info(data)
    if info is None or not any(md5 := data[26:42]):
        return False
    found = hashlib.md5(usedforsecurity=False)
    with soundfile.SoundFile(io.BytesIO(data)) as audio:
        for block in audio.blocks(1 << 16, dtype="int32", always_2d=True):
            whole = (block >> 32 - info.bits).astype("<i4").view(np.uint8)
            found.update(whole.reshape(-1, 4)[:, : (info.bits + 7) // 8].tobytes())
    return found.digest() != md5


def _check_duration(fields: dict[str, Any], actual: Plan) -> Iterator[DataError]:
    """Compare ``duration``, by which batches are planned, with the length of the audio: whether it is too short, as
    training does, or as much too long. Raises: DataError ``bad_duration``.
    """
    if (planned := planned_by_duration(fields)) is None:
        return
    seconds, declared = actual.samples / actual.sample_rate, fields["duration"]
    allowed = planned.samples / planned.sample_rate - float(declared)
    allowed += TOLERANCE if Declared.of(fields).tolerance is None else 0.0
    message = f"the audio has {seconds:.3f} s, `duration` says {declared}: "
    if actual.samples * planned.sample_rate > planned.samples * actual.sample_rate:
        yield DataError("length_mismatch", message + "correct it, leave it out, or raise the tolerance")
    elif seconds < float(declared) - allowed:
        yield DataError("length_mismatch", message + "copy the audio again if it was cut off, or correct the duration")


class Share(NamedTuple):
    """The ``part``-th of ``parts`` shares of the utterances that ``listing`` lists; ``name``: its path.

    A pipeline in its place is read in order: that of a Shar.
    """

    name: str
    listing: Source | RawLines | Pipeline
    part: int = 0
    parts: int = 1


class RawLines(RawTable):
    """Some lines of raw lists, each with its place: what lists them, and their table."""

    def __init__(self, lines: Sequence[tuple[str, str]], wanted: WantedChecks) -> None:
        self.some, self.names, self.needs_text = lines, wanted.fields, bool(wanted.text)

    def __len__(self) -> int:
        return len(self.some)

    def line(self, number: int) -> tuple[str, str]:
        return self.some[number]

    def table(self) -> RawLines:
        return self

    def key(self, number: int) -> str:
        return ""


def verify_records(records: Share, wanted: WantedChecks) -> Checked:
    """Check a share. A folder that cannot be opened is the finding ``bad_index``."""
    checked = Checked(PackedKeys.of(records.name, [], []))
    keys, places = list[str](), list[str]()
    for place, fields in _utterances(records, wanted, checked):
        keys.append(key := fields["key"])
        places.append(place)
        if wanted.tolerance is not None:
            fields[DECLARED] = Declared(wanted.tolerance)
        with decoding(LONGEST, declared=Declared.of(fields)):
            found = check_utterance(fields, wanted)
            checked.findings += (finding(each.reason, each.message, place, key) for each in found)
    checked.keys, checked.utterances = PackedKeys.at(records.name, keys, places), len(keys)
    return checked


def _utterances(records: Share, wanted: WantedChecks, checked: Checked) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and fields of each utterance of a share that can be read."""
    if isinstance(records.listing, Pipeline):
        ledger = Noting()
        for sample in items_of(records.listing.build(Lane(ledger, records.part, records.parts))):
            checked.findings += ledger.take()
            yield sample.url, sample.fields
        checked.findings, checked.tallies = checked.findings + ledger.take(), ledger.tallies
        return
    try:
        table = records.listing.table()
    except ListError as error:
        checked.findings += [DataError("bad_index", str(error), url=records.name)] if records.part == 0 else []
        return
    if findings := getattr(records.listing, "findings", None):
        found = list(findings(table, records.part, wanted.crc, wanted.indexes))
        checked.findings += found if records.part == 0 else []
    for number in range(len(table) * records.part // records.parts, len(table) * (records.part + 1) // records.parts):
        try:
            yield table.place(number), table.fields(number)
        except LeftOut:
            continue
        except DataError as error:
            error.key = error.key or error.member or table.key(number)
            checked.findings.append(error)
