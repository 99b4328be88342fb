"""Which file it is that a server has under a URL, and whether it still is."""

from __future__ import annotations

from typing import NamedTuple

from uio_pipes.io.retry import Fault

__all__ = ["Identity", "check_same"]


class Identity(NamedTuple):
    """Which file it is. ``size``: bytes; ``tag``: ETag, or ``time:`` and when it was changed; ``ranges``: whether parts
    can be asked for."""

    size: int | None
    tag: str
    ranges: bool = True

    @property
    def stamp(self) -> str:
        """What a saved state remembers of the file."""
        if self.tag and not self.tag.startswith("time:"):
            return f"etag:{self.tag}"
        return "" if self.size is None else f"size:{self.size}"


def check_same(known: Identity | None, now: Identity) -> None:
    """Raises: Fault if the file is not what it was at the first opening. What an answer does not tell is no change."""
    if known is None or (known.size, known.tag) == (now.size, now.tag):
        return
    pairs = zip(("size", "ETag"), known, now, strict=False)
    changes = [f"{n} {a} -> {b}" for n, a, b in pairs if a != b and None not in (a, b) and b != ""]
    if not changes:
        return
    raise Fault(f"the file changed while in use ({', '.join(changes)})", reason="changed_file")
