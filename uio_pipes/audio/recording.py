"""Audio that is not decoded yet: a path, bytes, a reference to bytes, or a recording that decodes itself; and samples
in memory, as the waveforms that stages work on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.containers import check_channel, check_finite
from uio_pipes.audio.decode import HELD, MOST_HELD, decode, decode_at, decode_file
from uio_pipes.base.errors import DataError
from uio_pipes.io.command import Piped
from uio_pipes.io.opened_ahead import whole
from uio_pipes.io.opening import is_local, open_binary, open_file
from uio_pipes.io.references import AudioInfo, Payload, RandomFile, Ref
from uio_pipes.io.relative_paths import RelativeRef

if TYPE_CHECKING:
    import torch

Stored = TypeVar("Stored", bound=Payload | str)


class Recording(Ref):
    """Audio that decodes itself. Each kind has a subclass.

    ``info``: its length, known before anything is opened; None if only decoding shows it.
    """

    __slots__ = ()

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        """Return the seconds from ``start`` to ``end`` as float32, (1, S) of a channel or (C, S), and the rate in Hz.

        Raises: DataError.
        """
        raise NotImplementedError

    def of_channels(self, wanted: list[int]) -> Recording:
        """Return these channels of the recording. Raises: DataError ``no_such_channel``."""
        return _chosen(self, wanted, self.info)


class InFile(Recording):
    """A part of an audio file. ``file``, ``size`` and ``read_at`` are of the file as it is stored."""

    __slots__ = ()

    @property
    def stored(self) -> Payload | str:
        """The audio file: its path, a reference, or bytes."""
        raise NotImplementedError

    @property
    def file(self) -> RandomFile:  # type: ignore[override]
        stored = self.stored
        return stored.file if isinstance(stored, Ref) else open_file(stored if isinstance(stored, str) else "")

    @property
    def size(self) -> int:  # type: ignore[override]
        stored = self.stored
        return stored.size if isinstance(stored, Ref) else len(stored) if isinstance(stored, bytes) else self.file.size

    def read_at(self, start: int, size: int) -> bytes:
        stored = self.stored
        if isinstance(stored, bytes):
            return stored[start : start + size]
        return stored.read_at(start, size) if isinstance(stored, Ref) else self.file.read_upto(start, size)

    def read(self) -> bytes:
        """Return the bytes of an audio file of this part: a float wav."""
        import soundfile

        waveform, rate = self.decode(None, None, None)
        out = io.BytesIO()
        soundfile.write(out, waveform.numpy().T, rate, format="WAV", subtype="FLOAT")
        return out.getvalue()


class Channels(InFile):
    """Some ``channels`` of an audio file, in their order."""

    __slots__ = ("channels", "stored")
    stored: Payload | str

    def __init__(self, stored: Payload | str, channels: list[int], info: AudioInfo | None) -> None:
        self.stored, self.channels, self.info = stored, channels, info
        self.offset, self.head, self.crc = stored.offset if isinstance(stored, Ref) else 0, b"", None

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        check_channel(channel, len(self.channels))
        wanted = self.channels if channel is None else [self.channels[channel]]
        if len(wanted) == 1:
            return decoded(self.stored, wanted[0], start, end)
        waveform, rate = decoded(self.stored, None, start, end)
        check_channel(max(wanted), len(waveform))
        return waveform[wanted], rate

    def reading(self, bytes_: Ref) -> Ref:
        stored = self.stored.reading(bytes_) if isinstance(self.stored, Ref) else bytes_
        return Channels(stored, self.channels, self.info)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or being fetched."""
        return len(self.stored) if isinstance(self.stored, bytes) else int(getattr(self.stored, "nbytes", 0))


def of_channels(audio: Payload | str, wanted: int | list[int], info: AudioInfo | None) -> Payload | str:
    """Return one or several channels of a recording, of which the header says ``info``, counted from 0.

    Raises: DataError ``no_such_channel``.
    """
    channels = [wanted] if isinstance(wanted, int) else sorted(set(wanted))
    if isinstance(audio, Piped):  # of which a table may tell the length, but nothing the channels
        return Channels(audio, channels, audio.info)
    return audio.of_channels(channels) if isinstance(audio, Recording) else _chosen(audio, channels, info)


def _chosen(audio: Stored, channels: list[int], info: AudioInfo | None) -> Stored | Channels:
    if info is None:
        return Channels(audio, channels, None)
    for channel in channels:
        check_channel(channel, info.channels)
    if len(channels) == info.channels:
        return audio
    return Channels(audio, channels, info._replace(channels=len(channels)))


@runtime_checkable
class Timed(Protocol):
    """A field along the time of the recording, which is cut together with the utterance."""

    def between(self, start: float, end: float) -> Timed:
        """Return the part from ``start`` to ``end``, in seconds of the recording. Nothing is read."""


def decoded(
    audio: Payload | str, channel: int | None, start: float | None, end: float | None
) -> tuple[torch.Tensor, int]:
    """Decode a recording, or the segment from ``start`` to ``end``, of which no more than needed is read."""
    if isinstance(audio, Recording):
        return audio.decode(channel, start, end)
    if isinstance(audio, (Piped, RelativeRef)):
        audio = audio.read() if isinstance(audio, Piped) else audio.local
    if isinstance(audio, Ref):
        if start is None and end is None:
            return decode(audio.read(), channel)
        return _segment(audio, channel, start, end)
    if not isinstance(audio, str):
        return decode(bytes(audio), channel, start, end)
    if (data := whole(audio)) is not None:
        return decode(data, channel, start, end)
    if (path := is_local(audio)) is not None:
        return decode_file(path, channel, start, end)
    with open_binary(audio) as file:
        return decode(file.read(), channel, start, end)


def _segment(audio: Ref, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
    """Decode a segment. ``early`` tells whether parts can be read: what is compressed in its archive is read whole."""
    size, key = audio.size, (audio.file.path, audio.offset, audio.size)
    in_parts = audio.early or size > MOST_HELD

    def read(offset: int, count: int) -> bytes:
        return audio.read_at(offset, count) if in_parts else HELD.get(key, audio.read, len)[offset : offset + count]

    return decode_at(read, size, key, channel, start, end)


def as_waveform(wav: torch.Tensor | npt.NDArray[Any], channel: int | None) -> torch.Tensor:
    """Samples in memory as float32 (C, S), or (1, S) of one ``channel``.

    Raises: DataError ``empty_audio``, ``bad_audio``, ``no_such_channel`` or ``nan_audio``.
    """
    import torch

    if isinstance(wav, np.ndarray):
        wav = np.require(wav, requirements="W")  # a copy of what is read-only, which a tensor must not be
    waveform = torch.as_tensor(wav)
    waveform = waveform if waveform.ndim == 2 else waveform.reshape(1, -1)
    if not waveform.numel():
        raise DataError("empty_audio", "the audio has 0 samples; remove it")
    if len(waveform) > waveform.shape[1]:
        raise DataError("bad_audio", f"samples must be (S,) or (C, S), not {tuple(waveform.shape)}: transpose them")
    if channel is not None:
        check_channel(channel, len(waveform))
        waveform = waveform[channel : channel + 1]
    if not waveform.is_floating_point():
        return waveform.float() / (torch.iinfo(waveform.dtype).max + 1)
    waveform = waveform.float()
    check_finite(waveform.detach().cpu().numpy())
    return waveform


def in_floats(wav: torch.Tensor | npt.NDArray[Any]) -> torch.Tensor:
    """All channels as float32 (C, S). What is that already stays as it is."""
    import torch

    waveform = torch.as_tensor(wav)
    ready = waveform.ndim == 2 and waveform.dtype == torch.float32
    return waveform if ready else as_waveform(wav, None)
