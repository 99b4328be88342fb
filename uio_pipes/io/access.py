"""How files are reached: options for fsspec's file systems, in one place, and never in a message or a saved state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Access"]


@dataclass(frozen=True)
class Access:
    """``storage_options``: what fsspec's file system of a URL's protocol takes (``key``, ``secret``, …).

    Without any, fsspec's own configuration holds: ``FSSPEC_S3_ENDPOINT_URL`` and the like, ``~/.config/fsspec``.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __repr__(self) -> str:
        return f"Access({', '.join(sorted(self.storage_options))})"
