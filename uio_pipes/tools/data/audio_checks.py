"""What ``uio verify`` checks of an audio file beyond what every decoding does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import soundfile

from uio_pipes.audio.containers import belies, sniff
from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.flac import has_other_samples
from uio_pipes.audio.length import Plan, planned_by_duration
from uio_pipes.audio.lossy import check_ogg
from uio_pipes.base.errors import DataError


def check_suffix(suffix: str, data: bytes) -> Iterator[DataError]:
    if (form := belies(suffix, data[:16])) is not None and suffix:
        yield DataError("wrong_suffix", f"named .{suffix}, but it is {form}, and is decoded as that: rename it")


def check_rate(rate: int, wanted: int | None) -> Iterator[DataError]:
    if wanted is not None and rate != wanted:
        yield DataError("wrong_rate", f"{rate} Hz instead of {wanted}: resample it, or leave --rate out")


def check_whole(data: bytes, end: float | None = None) -> Iterator[DataError]:
    """Yield what may be wrong with a file that can be decoded, of which the samples up to ``end`` are wanted."""
    form = sniff(data)
    try:
        if form == "flac" and has_other_samples(data):
            message = "the MD5 in its header is not that of its samples: the file is damaged; copy it again"
            yield DataError("bad_audio", message)
    except soundfile.SoundFileError as error:
        yield DataError("bad_audio", f"cannot be decoded: {getattr(error, 'error_string', error)}")
    if form == "ogg" and end is None and not _is_marked(data):
        message = (
            "the last page of the Ogg file is whole, but not marked as the last: some recorders never do that, or it "
            "was cut off there. Compare its length with the original's; ffmpeg -i FILE -c copy OUT marks the end"
        )
        yield DataError("suspect", message)


@lru_cache(maxsize=2)
def _is_marked(data: bytes) -> bool:
    try:
        return check_ogg(lambda offset, count: data[offset : offset + count], len(data))
    except DataError:
        return True  # of a segment, the rest of the file may be damaged


def check_duration(fields: dict[str, Any], actual: Plan) -> Iterator[DataError]:
    """Compare ``duration``, by which batches are planned, with the length of the audio: whether it is too short, as
    training does, or as much too long. Raises: DataError ``bad_duration``.
    """
    if (told := planned_by_duration(fields)) is None:
        return
    seconds, declared = actual.samples / actual.sample_rate, fields["duration"]
    allowed = told.samples / told.sample_rate - float(declared) + TOLERANCE
    message = f"the audio has {seconds:.3f} s, `duration` says {declared}: "
    if actual.samples * told.sample_rate > told.samples * actual.sample_rate:
        yield DataError("length_mismatch", message + "correct it, or leave it out")
    elif seconds < float(declared) - allowed:
        yield DataError("length_mismatch", message + "copy the audio again if it was cut off, or correct the duration")
