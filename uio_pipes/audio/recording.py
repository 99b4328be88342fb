"""Audio that is not decoded yet: a path, bytes, a reference to bytes, or a recording that decodes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from uio_pipes.audio.decode import decode, decode_at, decode_file
from uio_pipes.io.audio_info import AudioInfo
from uio_pipes.io.local import LocalFile, Payload, Ref
from uio_pipes.io.opening import is_local, open_binary

if TYPE_CHECKING:
    import torch


class Recording(Ref):
    """Audio whose length is known before anything is opened, and that decodes itself. Each kind has a subclass."""

    __slots__ = ()
    info: AudioInfo

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        """Return the seconds from ``start`` to ``end`` as float32, (1, S) of a channel or (C, S), and the rate in Hz.

        Raises: DataError.
        """
        raise NotImplementedError


@runtime_checkable
class Timed(Protocol):
    """A field that runs along with the recording, and is cut when the utterance is."""

    def between(self, start: float, end: float) -> Timed:
        """Return the part from ``start`` to ``end``, in seconds of the recording. Nothing is read."""


def decoded(
    audio: Payload | str, channel: int | None, start: float | None, end: float | None
) -> tuple[torch.Tensor, int]:
    """Decode an audio file, or the segment from ``start`` to ``end``, of which no more than needed is read."""
    path = is_local(audio) if isinstance(audio, str) else None
    if path is not None:
        LocalFile(path).size  # noqa: B018  a missing file has its own error
        return decode_file(path, channel, start, end)
    if isinstance(audio, Ref) and (start is not None or end is not None):
        return decode_at(audio.read_at, audio.size, channel, start, end)
    if isinstance(audio, str):
        with open_binary(audio) as file:
            return decode(file.read(), channel, start, end)
    return decode(audio.read() if isinstance(audio, Ref) else bytes(audio), channel, start, end)
