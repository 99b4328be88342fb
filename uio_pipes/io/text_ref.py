"""A small text in an archive, read and decoded when it is touched."""

from __future__ import annotations

from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.io.local import Payload, Ref

__all__ = ["TextRef"]


class TextRef(Ref):
    """The text of ``member``, which is UTF-8: blanks around it are left out."""

    __slots__ = ("member", "payload")

    def __init__(self, payload: Payload, member: str) -> None:
        if isinstance(payload, Ref):
            super().__init__(payload.file, payload.offset, payload.size, payload.head, crc=payload.crc)
        else:
            super().__init__(None, 0, len(payload), payload[:256])  # type: ignore[arg-type]
        self.payload, self.member = payload, member

    def read(self) -> Any:
        """A str. Raises: DataError ``bad_text``, or as the member's bytes cannot be read."""
        data = self.payload.read() if isinstance(self.payload, Ref) else self.payload
        try:
            return data.decode().strip()
        except UnicodeDecodeError as error:
            message = f"the text is no UTF-8 ({error.reason} at byte {error.start}): write it anew"
            raise DataError("bad_text", message, member=self.member) from error

    def read_at(self, start: int, size: int) -> bytes:
        """Of the bytes."""
        return self.payload.read_at(start, size) if isinstance(self.payload, Ref) else self.payload[start:][:size]

    def behind(self, bytes_: Ref) -> TextRef:
        return TextRef(bytes_, self.member)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or on their way there."""
        return self.size if isinstance(self.payload, bytes) else int(getattr(self.payload, "nbytes", 0))
