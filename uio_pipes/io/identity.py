"""The identity of a remote file, by which we notice that it was changed."""

from __future__ import annotations

from typing import NamedTuple

from uio_pipes.io.retry import Fault


class Identity(NamedTuple):
    """A remote file as the server describes it.

    ``size``: bytes; ``tag``: its ETag, or ``time:`` and the time of its last change; ``ranges``: whether the server
    sends parts of it.
    """

    size: int | None
    tag: str
    ranges: bool = True

    @property
    def stamp(self) -> str:
        """A short text by which a saved state recognizes the file."""
        if self.tag and not self.tag.startswith("time:"):
            return f"etag:{self.tag}"
        return "" if self.size is None else f"size:{self.size}"


def check_same(known: Identity | None, now: Identity) -> None:
    """Raise Fault if the file has changed since the first opening. Missing details do not count as a change."""
    if known is None or (known.size, known.tag) == (now.size, now.tag):
        return
    pairs = zip(("size", "ETag"), known, now, strict=False)
    changes = [f"{n} {a} -> {b}" for n, a, b in pairs if a != b and None not in (a, b) and b != ""]
    if not changes:
        return
    raise Fault(f"the file changed while in use ({', '.join(changes)})", reason="changed_file")
