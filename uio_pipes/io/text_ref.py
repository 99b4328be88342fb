"""A short text in an archive, read and decoded on first use."""

from __future__ import annotations

from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.io.local import Payload, Ref


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
