"""The planned length of an utterance, found without decoding it."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.containers import DECLARED, HEAD, Declared, check_claims
from uio_pipes.audio.decode import TOLERANCE, probe, probe_file
from uio_pipes.audio.recording import Channels, Recording
from uio_pipes.base.clock import HEADERS, timed
from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ
from uio_pipes.io.command import Piped
from uio_pipes.io.local import opened_raw, pread
from uio_pipes.io.opened_ahead import begun, whole
from uio_pipes.io.opening import is_local, open_binary, open_file
from uio_pipes.io.references import AudioInfo, Ref
from uio_pipes.io.relative_paths import RelativeRef

TICKS = 1_000_000  # a length known only as seconds is planned at this rate
_SAME = 1e-3  # seconds
ROUNDING = 125  # ticks: one sample at 8 kHz, by which rounding may lengthen what is planned so


OTHERWISE = 'an array other than features needs another name: in shards fields={"embedding": "npy"}, for numpy.load'


class DeclaredSeconds(float):
    """A duration that a table declares for a whole recording. It is rounded up by its last digit, and may still be up
    to 50 ms too short, which the plan allows for."""


class Plan(NamedTuple):
    """A planned length: ``samples`` at ``sample_rate`` Hz, and ``frames`` after a feature stage."""

    samples: int
    sample_rate: int
    frames: int | None = None

    @property
    def length(self) -> int:
        """The length by which batches are made: feature frames, or without features 10 ms of audio, rounded up."""
        return self.frames if self.frames is not None else -(-self.samples * 100 // self.sample_rate)

    def with_frames(self, frames: int) -> Plan:
        """Return the plan with another number of frames; ``_replace`` takes six times as long."""
        return Plan(self.samples, self.sample_rate, frames)

    @property
    def duration_frames(self) -> float:
        """WeNet's length for filters: feature frames, or seconds × 100."""
        return float(self.frames) if self.frames is not None else self.samples / self.sample_rate * 100


def sum_of(plans: Sequence[Plan | None]) -> Plan | None:
    """Return the total length of recordings; None if that of any is unknown."""
    known = [plan for plan in plans if plan is not None]
    if len(known) < len(plans):
        return None
    rates = {plan.sample_rate for plan in known}
    rate = rates.pop() if len(rates) == 1 else TICKS
    samples = sum(-(-plan.samples * rate // plan.sample_rate) for plan in known)
    frames = [plan.frames for plan in known if plan.frames is not None]
    return Plan(samples, rate, sum(frames) if len(frames) == len(known) else None)


def settled(planned: Plan | None, actual: Plan | None) -> Plan | None:
    """Return the actual plan; of features, whose audio is gone, with the planned samples."""
    if planned is None or actual is None or actual.frames is None:
        return actual
    return planned._replace(frames=actual.frames)


class StoredFeatures:
    """Features that have not been read yet; each source of features has its own subclass."""

    __slots__ = ()

    @property
    def frames(self) -> int:
        """The number of frames. Raises: DataError."""
        raise NotImplementedError

    def load(self) -> npt.NDArray[Any]:
        """Return the array (T, F). Raises: DataError."""
        raise NotImplementedError


def measure(fields: dict[str, Any]) -> Plan | None:
    """Return the length by features, waveform, `duration` or a header, whichever there is; None if only decoding
    shows it.

    Raises: DataError if a header is bad or a file cannot be read.
    """
    feat = fields.get("feat")
    if feat is not None:
        return Plan(0, 100, _feature_frames(feat))
    wav = fields.get("wav")
    if wav is None:
        return None
    if not isinstance(wav, (Ref, str)) and _is_array(wav):
        check_claims(fields["sample_rate"])
        return tuple.__new__(Plan, (int(wav.shape[-1]), int(fields["sample_rate"]), None))  # quicker than ``Plan(…)``
    if (plan := planned_by_duration(fields)) is not None:
        return plan
    if isinstance(wav, dict):  # a map of the user's has put it there
        remedy = 'give wav its bytes, or leave the map out: uio.from_iterable(dataset, fields={"wav": "audio"})'
        raise DataError("bad_audio", f"wav is a dict of {', '.join(map(str, wav))}, as datasets have it: {remedy}")
    info = audio_info(wav, fields)
    if info is None:
        return None
    samples = segment_samples(info, fields.get("start"), fields.get("end"))
    return tuple.__new__(Plan, (samples, info.sample_rate, None))


def planned_by_duration(fields: dict[str, Any]) -> Plan | None:
    """Return the length that `duration` gives; None without one, or if it is not that of the segment.

    Raises: DataError ``bad_duration``.
    """
    duration = fields.get("duration")
    if duration is None:
        return None
    start, end = fields.get("start"), fields.get("end")
    if start is None and end is None:
        ticks, usual = _ticks(duration), TOLERANCE if isinstance(duration, DeclaredSeconds) else 0.0
        if usual or DECLARED in fields:
            ticks += ceil(Declared.of(fields).seconds(usual) * TICKS)
        return Plan(ticks, TICKS)
    known = isinstance(duration, (int, float))  # of the segment, or of the recording that it is cut from
    if end is not None and known and abs(end - (start or 0) - duration) < _SAME:
        return Plan(ceil((end - (start or 0)) * TICKS) + ROUNDING, TICKS)
    return None


def check_no_features(fields: dict[str, Any], stage: str) -> None:
    """Raise DataError if an utterance already has features, but ``stage`` computes them from audio."""
    if "feat" in fields:
        of_cuts = ' (fields={"feat": None} leaves them out)'
        raise DataError(
            "has_features",
            f"the utterance already has features, but {stage} computes them from audio: remove .{stage}() to use the "
            "precomputed ones, or remove `feat` from the data to compute them"
            + (of_cuts if "supervisions" in fields else f"; {OTHERWISE}"),
        )


def segment_samples(info: AudioInfo, start: float | None, end: float | None) -> int:
    """Return the samples between ``start`` and ``end`` in seconds; None stands for the recording's own."""
    first = 0 if start is None else round(start * info.sample_rate)
    last = info.samples if end is None else min(info.samples, round(end * info.sample_rate))
    return max(0, last - first + (ROUNDING if info.sample_rate == TICKS else 0))


@timed(HEADERS, of_utterance=True)
def audio_info(wav: bytes | Ref | str, fields: dict[str, Any]) -> AudioInfo | None:
    """Read the header; None if only decoding shows the length. ``fields`` takes the bytes of remote files and pipes."""
    if isinstance(wav, Ref):
        if wav.info is not None:
            return wav.info
        if not isinstance(wav, (RelativeRef, Recording, Piped)):
            return _probed(wav)
    if isinstance(wav, RelativeRef):
        wav = wav.local
    if isinstance(wav, str):
        path = is_local(wav)
        if path is not None:
            data, known = begun(wav)
            if data and ((info := probe(data[:HEAD], known)) is not None or len(data) == known):
                return info or probe_file(data)
            with opened_raw(path) as file:
                head, size = pread(file.fileno(), HEAD, 0), os.fstat(file.fileno()).st_size
                READ[0] += len(head)
                if not size:
                    raise _empty()
                return probe(head, size) or probe_file(file)
        with open_binary(wav) as remote:
            wav = fields["wav"] = remote.read()
    if isinstance(wav, Channels) and wav.info is None and not isinstance(wav.stored, Piped):
        info = audio_info(wav.stored, {})
        wav.info = None if info is None else info._replace(channels=len(wav.channels))
    if isinstance(wav, Recording):
        return wav.info
    if isinstance(wav, Piped):
        wav = fields["wav"] = wav.read()
    return _probed(wav)


def _probed(wav: bytes | Ref) -> AudioInfo | None:
    """Read the header of an audio file in memory, or within another file."""
    if not isinstance(wav, Ref):
        if not len(wav):
            raise _empty()
        return probe(wav[:HEAD], len(wav)) or probe_file(wav)
    if not (size := wav.size):
        raise _empty()
    if len(wav.head) >= 64 and (info := probe(wav.head, size)) is not None:
        return info
    return probe(wav.read_at(0, min(HEAD, size)), size) or probe_file(wav.read())


def _empty() -> DataError:
    return DataError("empty_audio", "the audio is empty (0 bytes): create it again, or remove it from the list")


def _ticks(duration: Any) -> int:
    """Convert seconds to ticks, rounded up by the last digit: 4.92 may stand for anything up to 4.93."""
    if isinstance(duration, float) and 0 <= duration < 10**7:
        whole, _, digits = repr(duration).partition(".")
        if digits.isdecimal():  # without an exponent
            scale: int = 10 ** len(digits)
            return -((-int(whole + digits) - 1) * TICKS // scale) + ROUNDING
    try:
        value = Decimal(str(duration))
        if not 0 <= value < 10**7:
            raise DataError("bad_duration", f"duration must be a number of seconds, not {duration!r}")
        exponent = int(value.as_tuple().exponent)
    except (InvalidOperation, ValueError) as error:
        raise DataError("bad_duration", f"duration must be a number of seconds, not {duration!r}") from error
    return ceil((value + Decimal(1).scaleb(min(0, exponent))) * TICKS) + ROUNDING


def _is_array(value: Any) -> bool:
    """Return whether this is an array or a tensor, without torch: packing reads lengths too."""
    return isinstance(value, np.ndarray) or hasattr(value, "requires_grad")


def _feature_frames(feat: Any) -> int:
    if _is_array(feat):
        return int(feat.shape[0])
    if isinstance(feat, Ref) and feat.info is not None:
        return feat.info.samples
    if isinstance(feat, StoredFeatures):
        return feat.frames
    if isinstance(feat, str):
        if (data := whole(feat)) is not None:
            return npy_shape(data[:HEAD], len(data))[0]
        file = open_file(feat)
        return npy_shape(file.read_upto(0, HEAD), file.size)[0]
    if isinstance(feat, Ref):
        return npy_shape(feat.read_at(0, min(HEAD, feat.size)), feat.size)[0]
    if not isinstance(feat, (bytes, bytearray, memoryview)):
        raise DataError("bad_features", f"features must be an array or the path of a .npy file, not {feat!r:.40}")
    return npy_shape(bytes(feat[:HEAD]), len(feat))[0]


def npy_shape(head: bytes, size: int) -> tuple[int, int]:
    """Read the shape (T, F) from the beginning of a .npy file of ``size`` bytes.

    Raises: DataError if it is not a 2-dimensional array of numbers, or if the file does not hold all of them.
    """
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    except (ValueError, OSError) as error:
        raise DataError("bad_features", f"not a .npy array: {error}") from error
    if len(shape) != 2 or min(shape) < 0 or dtype.kind not in "fiu":
        message = f"features must be a (frames, bins) array of numbers, not {shape} of {dtype}; {OTHERWISE}"
        raise DataError("bad_features", message)
    declared = stream.tell() + shape[0] * shape[1] * dtype.itemsize
    if declared > size:
        message = (
            f"the header declares an array {shape} of {dtype}, {declared} bytes, the file has {size}; copy it again"
        )
        raise DataError("bad_features", message)
    return int(shape[0]), int(shape[1])
