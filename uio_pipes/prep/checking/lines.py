"""All checks of some lines of a raw list, with the recordings that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from uio_pipes.audio.decode import decode, sample_range
from uio_pipes.audio.length import Plan, audio_info, npy_shape, planned_by_duration, segment_samples
from uio_pipes.audio.sniff import belies
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import suffix_of
from uio_pipes.formats.findings import finding
from uio_pipes.formats.lists.quarantine import home
from uio_pipes.formats.lists.raw_line import parse
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.checking.shard import Checked, WantedChecks, check_rate


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
    suffix = suffix_of(name)
    if (form := belies(suffix, data[:16])) is not None and suffix:
        yield DataError("wrong_suffix", f"named .{suffix}, but it is {form}, and is decoded as that: rename it")
    if info is not None:
        stated = fields.get("sample_rate", wanted.rate)
        if end is not None:
            sample_range(info.samples, info.sample_rate, start, end)
        yield from check_rate(info.sample_rate, stated if isinstance(stated, int) else wanted.rate)
        yield from _check_duration(fields, Plan(segment_samples(info, start, end), info.sample_rate))
    if wanted.decode:
        waveform, rate = decode(data, None, start, end)
        if info is None:
            yield from _check_duration(fields, Plan(waveform.shape[-1], rate))


def _check_duration(fields: dict[str, Any], actual: Plan) -> Iterator[DataError]:
    """Compare ``duration``, by which batches are planned, with the length of the audio, as training does.

    Raises: DataError ``bad_duration``.
    """
    told = planned_by_duration(fields)
    if told is not None and actual.samples * told.sample_rate > told.samples * actual.sample_rate:
        seconds = actual.samples / actual.sample_rate
        message = f"the audio has {seconds:.3f} s, `duration` says {fields['duration']}: correct it, or leave it out"
        yield DataError("length_mismatch", message)
