"""Audio details in a row of a table: audio without a header, the channel, or the intervals of a recording that are one
utterance."""

from __future__ import annotations

import io
import logging
from ast import literal_eval
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import soundfile

from uio_pipes.audio.containers import check_channel, check_claims, check_finite, check_longest
from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.length import ROUNDING, TICKS
from uio_pipes.audio.recording import Channels, InFile, decoded
from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact, suffix_of
from uio_pipes.io.references import AudioInfo, Payload, Ref

if TYPE_CHECKING:
    import torch


logger = logging.getLogger("uio_pipes")
PARTIAL_SAMPLE = (
    "%s has %d bytes, which is not a whole number of samples: it was cut off, or its encoding or number of channels is "
    "wrong. Only the first %d bytes are used. Further files of this kind are not reported"
)


class _Encoding(NamedTuple):
    """How samples are written: libsndfile's names, and bytes of a sample."""

    subtype: str
    size: int
    endian: str = "LITTLE"


ENCODINGS = {
    "s16le": _Encoding("PCM_16", 2), "s16be": _Encoding("PCM_16", 2, "BIG"), "s24le": _Encoding("PCM_24", 3),
    "s32le": _Encoding("PCM_32", 4), "f32le": _Encoding("FLOAT", 4), "s8": _Encoding("PCM_S8", 1),
    "u8": _Encoding("PCM_U8", 1), "mulaw": _Encoding("ULAW", 1), "alaw": _Encoding("ALAW", 1),
}  # fmt: skip


def with_form(fields: dict[str, Any], name: str = "") -> dict[str, Any]:
    """Return the fields of an utterance with its audio as these fields describe it; nothing is opened.

    - ``encoding``: samples without a header, by FFmpeg's names for them ("s16le", …), at ``sample_rate`` Hz and of
      ``channels`` channels, one without it. Other encodings are no matter here, unless the ``name`` of the audio says
      that it has no header.
    - ``intervals``: ``[[start, end], …]`` in seconds, as a list or written as one: they are one utterance, one after
      the other, in place of ``start`` and ``end``.
    - ``channel``: the number of a channel, from 0, or several in a list.

    Raises: DataError ``missing_sample_rate``, ``bad_segment`` or ``bad_value``.
    """
    wav = fields.get("wav")
    if wav is None or hasattr(wav, "shape"):
        return fields
    if (encoding := ENCODINGS.get(str(fields.get("encoding")))) is not None:
        del fields["encoding"]
        wav = Headerless(wav, encoding, _whole(fields, "sample_rate"), _whole(fields, "channels", 1))
    elif fields.get("encoding") is not None and suffix_of(name) in ("pcm", "raw"):
        message = f"encoding must be one of {', '.join(ENCODINGS)}, not {fields['encoding']!r:.40}: correct it"
        raise DataError("bad_value", message)
    if fields.get("channel") is not None:
        wav = Channels(wav, channel_numbers(fields["channel"]), None)
    if fields.get("intervals"):
        wav = JoinedIntervals(wav, _intervals(fields.pop("intervals")))
        for name in ("start", "end", "duration"):
            fields.pop(name, None)
    fields["wav"] = wav
    return fields


def whole_number(given: Any) -> int | None:
    """Return a whole number, which may also be a text, or have decimals as in a column with gaps; None if it is no
    whole number."""
    try:
        number = float("nan" if isinstance(given, bool) else given)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None


def _whole(fields: dict[str, Any], name: str, otherwise: int | None = None) -> int:
    value = whole_number(given := fields.get(name, otherwise))
    if value is None or value < 1:
        message = f"samples without a header need their {name}, a whole number, not {given!r:.40}: give it in fields="
        raise DataError("missing_sample_rate" if name == "sample_rate" else "bad_value", message)
    if name in fields:
        fields[name] = value
    return value


def channel_numbers(given: Any) -> list[int]:
    """Return the numbers of channels, from 0, that a field gives: one, or a list. Raises: DataError ``bad_value``."""
    numbers = [whole_number(one) for one in (given if isinstance(given, list) else [given])]
    found = sorted({number for number in numbers if number is not None})
    if not found or None in numbers or found[0] < 0:
        message = f"channel must be the number of a channel, from 0, or a list of them, not {given!r:.40}"
        raise DataError("bad_value", f"{message}: correct it, or list the fields that you need in fields=, without it")
    return found


def _intervals(given: Any) -> list[tuple[float, float]]:
    try:
        found = [tuple(one) for one in (literal_eval(given) if isinstance(given, str) else given)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = []
    spans = [(float(one[0]), float(one[1])) for one in found if len(one) == 2 and all(map(is_number, one))]
    if not spans or len(spans) < len(found) or not all(0 <= start < end for start, end in spans):
        message = f"intervals must be [[start, end], …] in seconds with 0 <= start < end, not {given!r:.80}"
        raise DataError("bad_segment", message)
    return spans


class _Described(InFile):
    """Audio that a row describes. Where it begins in its file is looked for when it is asked for."""

    __slots__ = ("stored",)
    stored: Payload | str

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.stored.offset if isinstance(self.stored, Ref) else 0


class Headerless(_Described):
    """Samples without a header: a path, bytes, or a reference. Only what is wanted of them is read.

    ``warned``: whether this process has said that the end of a file which is no whole sample is left out.
    """

    __slots__ = ("_encoding", "_info", "_rate", "_width")
    warned: ClassVar[bool] = False

    def __init__(self, stored: Payload | str, encoding: _Encoding, sample_rate: int, channels: int) -> None:
        check_claims(sample_rate, channels)
        self.stored, self._encoding, self._rate, self._width = stored, encoding, sample_rate, channels
        self.head, self.crc = b"", None
        self._info: AudioInfo | None = None

    @property
    def info(self) -> AudioInfo:  # type: ignore[override]
        """Its length, by the number of bytes. Raises: DataError if there is no such file."""
        if self._info is None:
            samples, rest = divmod(self.size, self._encoding.size * self._width)
            if rest and not Headerless.warned:
                Headerless.warned = True
                name = "audio in memory" if isinstance(self.stored, bytes) else redact(self.file.path)
                logger.warning(PARTIAL_SAMPLE, name, self.size, self.size - rest)
            self._info = AudioInfo(samples, self._rate, self._width)
        return self._info

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        import torch

        first, last = sample_range(self.info.samples, self._rate, start, end)
        check_longest(last - first, self._rate)
        check_channel(channel, self._width)
        frame = self._encoding.size * self._width
        data = self.read_at(first * frame, (last - first) * frame)
        if len(data) < (last - first) * frame:
            raise DataError("truncated_audio", "the file became shorter while it was read; read it again")
        how: Any = {"format": "RAW", "subtype": self._encoding.subtype, "endian": self._encoding.endian}
        samples, _ = soundfile.read(
            io.BytesIO(data), samplerate=self._rate, channels=self._width, dtype="float32", always_2d=True, **how
        )
        if self._encoding.subtype == "FLOAT":
            check_finite(samples)
        picked = samples.T if channel is None else samples.T[channel : channel + 1]
        return torch.from_numpy(picked.copy()), self._rate

    def reading(self, bytes_: Ref) -> Ref:
        return Headerless(bytes_, self._encoding, self._rate, self._width)


class JoinedIntervals(_Described):
    """Intervals of a recording, in seconds, joined in order."""

    __slots__ = ("intervals",)

    def __init__(self, stored: Payload | str, intervals: list[tuple[float, float]]) -> None:
        self.stored, self.intervals = stored, intervals
        ticks = ceil(sum(end - start for start, end in intervals) * TICKS) + ROUNDING * len(intervals)
        self.info = AudioInfo(ticks, TICKS, 1)
        self.head, self.crc = b"", None

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        import torch

        parts = [decoded(self.stored, channel, first, last) for first, last in self.intervals]
        waveform, rate = torch.cat([part for part, _ in parts], dim=1), parts[0][1]
        if start is None and end is None:
            return waveform, rate
        low, high = sample_range(waveform.shape[1], rate, start, end)
        return waveform[:, low:high].clone(), rate

    def reading(self, bytes_: Ref) -> Ref:
        return JoinedIntervals(bytes_, self.intervals)
