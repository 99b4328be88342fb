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
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from uio_pipes.audio.codecs import CODED, check_coded, decode_coded
from uio_pipes.audio.containers import HEAD, check_claims, check_finite, check_length, sniff, sniff_codec, with_size
from uio_pipes.audio.decode import TOLERANCE, samples_of
from uio_pipes.audio.flac import check_flac, check_single
from uio_pipes.audio.lossy import check_frames, check_ogg, check_ogg_segment, with_length
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import is_named, suffix_of
from uio_pipes.io.command import run_command
from uio_pipes.io.local import open_data, open_regular
from uio_pipes.io.opening import is_local, open_binary, open_file
from uio_pipes.tools.data.reading.utterance_lists import Utterance

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
    not known)."""

    data: bytes
    suffix: str
    frames: int


@dataclass(frozen=True)
class Failure:
    """An utterance that could not be cut: the ``reason`` under which it is counted, and the details."""

    reason: str
    detail: str


CutResult = Audio | Failure


def cut_recording(wav: str, utterances: list[Utterance], sample_rate: int | None, form: Form) -> list[CutResult]:
    """Return for each utterance of this recording its audio file, or its failure.

    ``form`` "as-is": whole files are kept, except those of another rate than ``sample_rate``, if that is given; audio
    that must be decoded becomes wav.
    """
    try:
        whole = form == "as-is" and all(one.start is None and one.end is None for one in utterances)
        apart = wav.endswith("|") or in_ark(wav) or is_local(wav) is None  # not a local file of its own
        data = _read(wav) if whole or apart else None
        source = (is_local(wav) or wav) if data is None else data
        head, size = _head(source)
        if not size:
            raise DataError("empty_audio", "the file has 0 bytes; make it again", url=wav)
        check_length(head, size)
        if sniff(head) == "flac":
            with _readable(source) as (read, size):
                check_flac(read, size)
                if any(one.start is None and one.end is None for one in utterances):
                    check_single(read(0, size))
        if with_size(head) is not head:
            data = source = with_size(_read(wav) if data is None else data)
        if whole and data is not None and (kept := _as_it_is(data, wav, sample_rate)) is not None:
            return [kept] * len(utterances)
        return _decoded(source, wav, utterances, sample_rate, "flac" if form == "flac" else "wav")
    except DataError as error:
        return [_failure(error, wav)] * len(utterances)
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        missing = is_local(wav) is not None and not _exists(is_local(wav) or "")
        failure = Failure("missing_file" if missing else "bad_audio", f"{wav}: {_told(error)}")
        return [failure] * len(utterances)


def _failure(error: DataError, wav: str) -> Failure:
    return Failure(error.reason, str(error) if error.url else f"{wav}: {error}")


@contextmanager
def _readable(source: str | bytes) -> Iterator[tuple[Callable[[int, int], bytes], int]]:
    """Open a file, or its content: a function that reads at an offset so many bytes, and the size."""
    if isinstance(source, bytes):
        yield lambda offset, count: source[offset : offset + count], len(source)
        return
    with open_regular(source) as file:
        yield lambda offset, count: os.pread(file.fileno(), count, offset), os.fstat(file.fileno()).st_size


def _head(source: str | bytes) -> tuple[bytes, int]:
    """Return the first bytes of a file, or of its content, and its size."""
    with _readable(source) as (read, size):
        return read(0, size if isinstance(source, bytes) else HEAD), size


def _told(error: Exception) -> str:
    """Return the message without libsndfile's name of the file: for bytes this would be a Python object."""
    if isinstance(error, soundfile.LibsndfileError):
        return str(error.error_string)
    return (isinstance(error, OSError) and error.strerror) or str(error)


def in_ark(wav: str) -> bool:
    """Return whether the audio lies in one of Kaldi's arks: ``wavs.ark:OFFSET``."""
    path, _, offset = wav.rpartition(":")
    return is_named(path, ".ark") and offset.isdecimal()


def _read(wav: str) -> bytes:
    if wav.endswith("|"):  # the list's reader lets commands through only where they are allowed
        return run_command(wav)
    if in_ark(wav):
        from uio_pipes.sources.kaldi.ark import ark_audio  # only here: it needs torch

        path, _, offset = wav.rpartition(":")
        return ark_audio(open_file(path), int(offset)).read()
    with open_binary(wav) as file:
        return file.read()


def _exists(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


def whole_file(data: bytes, place: str, sample_rate: int | None) -> Audio | None:
    """Return the content of an audio file as it is; None if it must be decoded: it has another rate than
    ``sample_rate``, or is no audio file. Raises: DataError if it is damaged."""
    try:
        return _as_it_is(data, place, sample_rate)
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise DataError("bad_audio", _told(error)) from error


def _as_it_is(data: bytes, wav: str, sample_rate: int | None) -> Audio | None:
    """None if it must be resampled. Raises: DataError for a header that is not one of a sound audio file."""
    named = suffix_of(wav)
    form, suffix = sniff(data), sniff_codec(data) or (named if named.isalnum() else "wav")
    if form in CODED:
        check_coded(data, form)
        return Audio(data, suffix, -1) if sample_rate is None else None
    content = with_length(data)
    if form == "mp3":  # not by a seek to its end, of which libmpg123 prints errors
        check_frames(content)
    with soundfile.SoundFile(io.BytesIO(content)) as audio:
        check_claims(audio.samplerate, audio.channels)
        rate, samples = audio.samplerate, audio.frames
        if suffix == "flac" and 0 < samples < UNKNOWN:  # a file that was cut off fails only at its end
            audio.seek(samples - 1)
            if not len(audio.read(1)):
                raise DataError("truncated_audio", "the file ends before its header says; copy it again", url=wav)
    if sample_rate not in (None, rate):
        return None
    if form == "ogg":
        with _readable(data) as (read, size):
            check_ogg(read, size)
    if samples <= 0:
        raise DataError("empty_audio", "it has no samples", url=wav)
    known = samples < UNKNOWN
    return Audio(data, suffix, frames_of(samples, rate) if known else -1)


def _decoded(
    source: str | bytes, wav: str, utterances: list[Utterance], sample_rate: int | None, form: FileForm
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
                    return [_alone(source, audio, wav, one, sample_rate or rate, form) for one in utterances]
            samples = _decode(audio, 0, until)
    return [
        found if isinstance(found, Failure) else _encode(samples, *found, rate, sample_rate or rate, form, wav)
        for found in ranges
    ]


def _check_ogg(source: str | bytes, audio: soundfile.SoundFile, first: int, last: int) -> None:
    """Check the pages that hold these samples: libsndfile does not report damaged ones. Raises: DataError."""
    with _readable(source) as (read, size):
        check_ogg_segment(read, size, audio.samplerate, audio.frames, first, last)


def _alone(
    source: str | bytes, audio: soundfile.SoundFile, wav: str, utterance: Utterance, sample_rate: int, form: FileForm
) -> CutResult:
    """Cut one utterance of a damaged recording by itself: positions after damage cannot be counted from the start."""
    rate, total = audio.samplerate, audio.frames
    try:
        last = total if utterance.end is None else round(utterance.end * rate)
        _check_ogg(source, audio, round((utterance.start or 0) * rate), last)
        found = _range(utterance, rate, total)
        if isinstance(found, Failure):
            return found
        samples = _decode(audio, found[0], found[1] - found[0])
    except DataError as error:
        return _failure(error, wav)
    return _encode(samples, 0, found[1] - found[0], rate, sample_rate, form, wav)


def _range(utterance: Utterance, rate: int, total: int) -> tuple[int, int] | Failure:
    """Return the first sample and the one after the last."""
    if not 0 < total < UNKNOWN:
        return Failure("empty_audio", f"{utterance.wav} has no samples")
    low = 0.0 if utterance.start is None else utterance.start * rate
    high = float(total) if utterance.end is None else utterance.end * rate
    first, last = round(low), min(round(high), total)
    if not 0 <= low < high <= total + TOLERANCE * rate or first >= last:
        where = f"{utterance.start} to {utterance.end} s of {utterance.wav}, which has {total / rate:.2f} s"
        return Failure("bad_segment", where)
    return first, last


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
    samples: NDArray[np.int16], first: int, last: int, rate: int, sample_rate: int, form: FileForm, wav: str
) -> CutResult:
    if last > len(samples):
        return Failure("truncated_audio", f"{wav}: decoding ended after {len(samples) / rate:.2f} s")
    cut = samples[first:last]
    if rate != sample_rate:
        cut = resampled(cut, rate, sample_rate)
    return Audio(encode(cut, sample_rate, form), form, frames_of(len(cut), sample_rate))
