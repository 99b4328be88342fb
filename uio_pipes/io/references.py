"""References to bytes in files that are read by position, local ones or remote: what has not been read yet."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol
from zlib import crc32

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact


class AudioInfo(NamedTuple):
    """Length, rate and channels of a recording; ``samples`` are counted per channel."""

    samples: int
    sample_rate: int
    channels: int


class RandomFile(Protocol):
    """A local or remote file that is read by position. Every method raises ``DataError``."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def stamp(self) -> str: ...
    def read(self, offset: int, size: int) -> bytes: ...
    def read_upto(self, offset: int, size: int) -> bytes: ...


def read_exactly(file: RandomFile, offset: int, size: int) -> bytes:
    """Implement ``file.read``."""
    data = file.read_upto(offset, size)
    if len(data) < size:
        message = f"the file ends after {len(data)} of {size} bytes: copy it again"
        raise DataError("truncated", message, url=file.path, offset=offset)
    return data


class Ref:
    """A reference to ``size`` bytes at ``offset`` of a file, which have not been read yet.

    ``head``: up to 256 of the first bytes, or ``b""``. An index may know more: ``info``, the length of the audio, and
    ``crc``, the CRC32 of the bytes, which is then checked.
    """

    __slots__ = ("crc", "file", "head", "info", "offset", "size")
    early: ClassVar[bool] = True  # whether every batch needs it, so that it is fetched from afar ahead of time

    def __init__(
        self,
        file: RandomFile,
        offset: int,
        size: int,
        head: bytes = b"",
        info: AudioInfo | None = None,
        crc: int | None = None,
    ) -> None:
        self.file, self.offset, self.size, self.head, self.info, self.crc = file, offset, size, head, info, crc

    def read(self) -> bytes:
        """Return all ``size`` bytes. Raises: DataError as ``LocalFile.read``, and ``bad_crc``."""
        data = self.file.read(self.offset, self.size)
        if self.crc is not None and crc32(data) != self.crc:
            message = "the bytes differ from the indexed ones (their CRC32 differs): fetch or pack the file again"
            raise DataError("bad_crc", message, url=self.file.path, offset=self.offset)
        return data

    def read_at(self, start: int, size: int) -> bytes:
        """Return ``self.read()[start : start + size]`` without reading the rest."""
        size = max(0, min(size, self.size - start))
        if start + size <= len(self.head):
            return self.head[start : start + size]
        return self.file.read(self.offset + start, size)

    def reading(self, bytes_: Ref) -> Ref:
        """Return this reference, but reading ``bytes_``: the same bytes, which are being fetched."""
        return bytes_

    def __getstate__(self) -> Any:
        """Return what is in the slots, also in those that a subclass has a property for."""
        slots = [(owner, name) for owner in type(self).__mro__ for name in vars(owner).get("__slots__", ())]
        return [(owner, name, vars(owner)[name].__get__(self)) for owner, name in slots if _is_set(owner, name, self)]

    def __setstate__(self, state: Any) -> None:
        for owner, name, value in state:
            vars(owner)[name].__set__(self, value)

    def __repr__(self) -> str:
        return f"Ref({redact(self.file.path)!r}, offset={self.offset}, size={self.size})"


def _is_set(owner: type, name: str, ref: Ref) -> bool:
    try:
        vars(owner)[name].__get__(ref)
    except AttributeError:
        return False
    return True


Payload = bytes | Ref


class TextRef(Ref):
    """A reference to the UTF-8 text of ``member``, without the blanks around it."""

    __slots__ = ("member", "payload")

    def __init__(self, payload: Payload, member: str) -> None:
        if isinstance(payload, Ref):
            super().__init__(payload.file, payload.offset, payload.size, payload.head, crc=payload.crc)
        else:
            super().__init__(None, 0, len(payload), payload[:256])  # type: ignore[arg-type]
        self.payload, self.member = payload, member

    def read(self) -> Any:
        """Return the text. Raises: DataError ``bad_text``, or another reason if the bytes cannot be read."""
        data = self.payload.read() if isinstance(self.payload, Ref) else self.payload
        try:
            return data.decode().strip()
        except UnicodeDecodeError as error:
            message = f"the text is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
            raise DataError("bad_text", message, member=self.member) from error

    def read_at(self, start: int, size: int) -> bytes:
        """Return ``size`` of the bytes."""
        return self.payload.read_at(start, size) if isinstance(self.payload, Ref) else self.payload[start:][:size]

    def reading(self, bytes_: Ref) -> TextRef:
        return TextRef(bytes_, self.member)

    @property
    def nbytes(self) -> int:
        """The number of bytes in memory, or being fetched."""
        return self.size if isinstance(self.payload, bytes) else int(getattr(self.payload, "nbytes", 0))
