"""Utterances cut from a recording: its bytes as they are, or decoded once and encoded one by one as wav or flac.

No torch in here: the processes that pack start in a quarter of a second and stay small. The samples are those of
``uio_pipes`` in raw mode (``decode_audio`` of the same segment): equal for lossless formats; of Opus, which raw
mode enters in the middle, within 60 dB.
"""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from uio_pipes.audio.codecs import CODED, check_coded, decode_coded
from uio_pipes.audio.containers import (
    HEAD,
    Declared,
    check_claims,
    check_finite,
    check_length,
    decoding,
    sniff,
    sniff_codec,
    with_size,
)
from uio_pipes.audio.decode import sample_range, samples_of
from uio_pipes.audio.flac import check_flac, check_single
from uio_pipes.audio.lossy import check_ogg, check_ogg_segment, with_length
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import suffix_of
from uio_pipes.io.local import open_data, open_regular
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.io.references import Ref
from uio_pipes.tools.data.reading import Bad, Utterance

FRAMES_PER_SECOND = 100
FileForm = Literal["wav", "flac"]


def frames_of(samples: int, sample_rate: int) -> int:
    """Return the number of frames of 10 ms, rounded up, as lengths are planned everywhere."""
    return -(-samples * FRAMES_PER_SECOND // sample_rate)


def to_int16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Convert samples in [-1, 1] to 16-bit PCM, rounded and clipped."""
    scaled: NDArray[np.float32] = np.rint(samples * np.float32(32768))
    np.clip(scaled, -32768, 32767, out=scaled)
    return scaled.astype(np.int16)


def encode(samples: NDArray[np.int16], sample_rate: int, form: FileForm) -> bytes:
    """Return a mono wav or flac file of 16 bits."""
    buffer = io.BytesIO()
    if form == "flac":
        soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_16")
        return buffer.getvalue()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2", copy=False).tobytes())
    return buffer.getvalue()


def resampled(samples: NDArray[np.int16], rate: int, sample_rate: int) -> NDArray[np.int16]:
    import torch  # only here, for recordings of another rate

    from uio_pipes.dsp.resample import resample

    torch.set_num_threads(1)  # the cores are shared by processes, and one thread gives the same bits everywhere
    waveform = torch.from_numpy(samples.astype(np.float32) / np.float32(32768))[None]
    return to_int16(resample(waveform, rate, sample_rate)[0].numpy())


Form = Literal["as-is", "wav", "flac"]
Dtype = Literal["float32", "float16"]  # of features
BLOCK = 1 << 20  # samples decoded at a time
UNKNOWN = 2**62  # libsndfile's count of samples where the header gives none is above this


class Audio(NamedTuple):
    """A file of audio or features: its bytes, the suffix of its name, and its length in frames, of 10 ms for audio (-1:
    not known). ``samples``, ``sample_rate``: of what was decoded."""

    data: bytes
    suffix: str
    frames: int
    samples: int = 0
    sample_rate: int = 0

    @classmethod
    def of(cls, samples: NDArray[np.int16], sample_rate: int, form: FileForm) -> Audio:
        """Return decoded samples as a file."""
        frames = frames_of(len(samples), sample_rate)
        return cls(encode(samples, sample_rate, form), form, frames, len(samples), sample_rate)


CutResult = Audio | Bad


def cut_recording(wav: Any, utterances: list[Utterance], sample_rate: int | None, form: Form) -> list[CutResult]:
    """Return for each utterance of this recording its audio file, or its failure. ``wav``: a path or URL, a reference
    to a file's bytes, or these.

    ``form`` "as-is": whole files are kept, except those of another rate than ``sample_rate``, if that is given; audio
    that must be decoded becomes wav.
    """
    try:
        whole = form == "as-is" and all(one.start is None and one.end is None for one in utterances)
        path = is_local(wav) if isinstance(wav, str) else None
        data = _read(wav) if whole or path is None else None
        source = path if data is None and path is not None else data or b""
        with _readable(source) as (read, size):
            head = read(0, size if isinstance(source, bytes) else HEAD)
        if not size:
            raise DataError("empty_audio", "the file has 0 bytes; make it again")
        check_length(head, size)
        if sniff(head) == "flac":
            with _readable(source) as (read, size):
                check_flac(read, size)
                if any(one.start is None and one.end is None for one in utterances):
                    check_single(read(0, size))
        if with_size(head) is not head:
            data = source = with_size(_read(wav) if data is None else data)
        if (
            whole
            and data is not None
            and (kept := _as_it_is(data, wav if isinstance(wav, str) else "", sample_rate)) is not None
        ):
            return [kept] * len(utterances)
        return _decoded(source, utterances, sample_rate, "flac" if form == "flac" else "wav")
    except DataError as error:
        return [failure_of(one, error) for one in utterances]
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        missing = isinstance(wav, str) and (path := is_local(wav)) is not None and not os.access(path, os.R_OK)
        found = DataError("missing_file" if missing else "bad_audio", _message_of(error))
        return [failure_of(one, found) for one in utterances]


def failure_of(one: Utterance, error: DataError) -> Bad:
    """Return the failure of an utterance, which names its audio or, if that is no file of its own, the utterance."""
    named = error if error.url else f"{one.wav}: {error}" if isinstance(one.wav, str) else error.at(one.file, one.key)
    return Bad(one.key, error.reason, str(named))


@contextmanager
def _readable(source: str | bytes) -> Iterator[tuple[Callable[[int, int], bytes], int]]:
    """Open a file, or its content: a function that reads at an offset so many bytes, and the size."""
    if isinstance(source, bytes):
        yield lambda offset, count: source[offset : offset + count], len(source)
        return
    with open_regular(source) as file:
        yield lambda offset, count: os.pread(file.fileno(), count, offset), os.fstat(file.fileno()).st_size


def _message_of(error: Exception) -> str:
    """Return the message without libsndfile's name of the file: for bytes this would be a Python object."""
    if isinstance(error, soundfile.LibsndfileError):
        return str(error.error_string)
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _read(wav: Any) -> bytes:
    if isinstance(wav, str):
        with open_binary(wav) as file:
            return file.read()
    return wav.read() if isinstance(wav, Ref) else bytes(wav)


def _as_it_is(data: bytes, name: str, sample_rate: int | None) -> Audio | None:
    """None if it must be resampled. Raises: DataError for a header that is not one of a sound audio file."""
    named = suffix_of(name)
    form, suffix = sniff(data), sniff_codec(data) or (named if named.isalnum() else "wav")
    if form in CODED:
        check_coded(data, form)
        return Audio(data, suffix, -1) if sample_rate is None else None
    content = with_length(data, complete=True)  # not by a seek to its end, of which libmpg123 prints errors
    with soundfile.SoundFile(io.BytesIO(content)) as audio:
        check_claims(audio.samplerate, audio.channels)
        rate, samples = audio.samplerate, audio.frames
        if suffix == "flac" and 0 < samples < UNKNOWN:  # a file that was cut off fails only at its end
            audio.seek(samples - 1)
            if not len(audio.read(1)):
                raise DataError("truncated_audio", "the file ends before its header says; copy it again")
    if sample_rate not in (None, rate):
        return None
    if form == "ogg":
        with _readable(data) as (read, size):
            check_ogg(read, size)
    if samples <= 0:
        raise DataError("empty_audio", "it has no samples")
    known = samples < UNKNOWN
    return Audio(data, suffix, frames_of(samples, rate) if known else -1)


def _decoded(
    source: str | bytes, utterances: list[Utterance], sample_rate: int | None, form: FileForm
) -> list[CutResult]:
    if (kind := sniff(source)) in CODED:
        decoded = decode_coded(source, kind, None, None)
        samples, rate, total = to_int16(decoded.samples[0]), decoded.sample_rate, decoded.total
        ranges = [_range(utterance, rate, total) for utterance in utterances]
    else:
        if kind == "mp3":
            source = with_length(source if isinstance(source, bytes) else _read(source))
        with (
            open_data(source) as file,
            soundfile.SoundFile(file if isinstance(source, bytes) else file.fileno(), closefd=False) as audio,
        ):
            rate, total = audio.samplerate, audio.frames
            check_claims(rate, audio.channels)
            ranges = [_range(utterance, rate, total) for utterance in utterances]
            until = max((found[1] for found in ranges if isinstance(found, tuple)), default=0)
            if kind == "ogg":
                try:
                    _check_ogg(source, audio, 0, until if all(isinstance(found, tuple) for found in ranges) else total)
                except DataError:
                    return [_alone(source, audio, one, sample_rate or rate, form) for one in utterances]
            samples = _decode(audio, 0, until)
    return [
        found if isinstance(found, Bad) else _encode(samples, *found, rate, sample_rate or rate, form, one)
        for one, found in zip(utterances, ranges, strict=True)
    ]


def _check_ogg(source: str | bytes, audio: soundfile.SoundFile, first: int, last: int) -> None:
    """Check the pages that hold these samples: libsndfile does not report damaged ones. Raises: DataError."""
    with _readable(source) as (read, size):
        check_ogg_segment(read, size, audio.samplerate, audio.frames, first, last)


def _alone(
    source: str | bytes, audio: soundfile.SoundFile, utterance: Utterance, sample_rate: int, form: FileForm
) -> CutResult:
    """Cut one utterance of a damaged recording by itself: positions after damage cannot be counted from the start."""
    rate, total = audio.samplerate, audio.frames
    try:
        last = total if utterance.end is None else round(utterance.end * rate)
        _check_ogg(source, audio, round((utterance.start or 0) * rate), last)
        found = _range(utterance, rate, total)
        if isinstance(found, Bad):
            return found
        samples = _decode(audio, found[0], found[1] - found[0])
    except DataError as error:
        return failure_of(utterance, error)
    return _encode(samples, 0, found[1] - found[0], rate, sample_rate, form, utterance)


def _range(utterance: Utterance, rate: int, total: int) -> tuple[int, int] | Bad:
    """Return the first sample and the one after the last."""
    try:
        with decoding(None, declared=Declared.of(utterance.fields)):
            return sample_range(total if total < UNKNOWN else 0, rate, utterance.start, utterance.end)
    except DataError as error:
        return failure_of(utterance, error)


def _decode(audio: soundfile.SoundFile, first: int, wanted: int) -> NDArray[np.int16]:
    """Decode ``wanted`` samples of the first channel from ``first`` on, fewer if decoding ends early."""
    exact = audio.subtype == "PCM_16"
    samples = np.empty(wanted, np.int16)
    done, most = 0, BLOCK if audio.seekable() else wanted
    while done < wanted:
        block = samples_of(audio, first + done, min(most, wanted - done), "int16" if exact else "float32")[:, 0]
        if not len(block):
            break
        if audio.subtype in ("FLOAT", "DOUBLE"):
            check_finite(block)
        samples[done : done + len(block)] = block if exact else to_int16(block)
        done += len(block)
    return samples[:done]


def _encode(
    samples: NDArray[np.int16], first: int, last: int, rate: int, sample_rate: int, form: FileForm, one: Utterance
) -> CutResult:
    if last > len(samples):
        return Bad(one.key, "truncated_audio", f"{one.file}: decoding ended after {len(samples) / rate:.2f} s")
    cut = samples[first:last]
    if rate != sample_rate:
        cut = resampled(cut, rate, sample_rate)
    return Audio.of(cut, sample_rate, form)
