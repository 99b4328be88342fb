"""Options for fsspec's file systems and for the cache. They are kept out of messages and saved states."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from uio_pipes.base.urls import HIDDEN, redact

CACHE_SIZE = "100GB"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


@dataclass(frozen=True)
class Access:
    """Options for reading files, all of which have defaults.

    ``storage_options``: options of fsspec's file system for a URL's protocol (``key``, ``secret``, …), or such options
    by protocol (``{"s3": {…}, "https": {…}}``). Without them fsspec's own configuration holds
    (``FSSPEC_S3_ENDPOINT_URL`` and the like, ``~/.config/fsspec``). ``cache``: a folder for copies of remote files, of
    at most ``cache_size`` bytes in all.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    cache: str | None = None
    cache_size: int = 10**11

    @classmethod
    def of(
        cls,
        stage: str,
        storage_options: Mapping[str, Any] | None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str = CACHE_SIZE,
    ) -> Access:
        """From a stage's arguments. Raises: PipelineError."""
        from uio_pipes.base.checks import require

        ok = storage_options is None or (
            isinstance(storage_options, Mapping) and all(isinstance(name, str) for name in storage_options)
        )
        rule = "storage_options must be a dict of what fsspec's file system takes"  # its value may be a secret
        require(ok, stage, rule, type(storage_options).__name__, "see docs/remote.md")
        remedy = 'name a folder on a local disk (cache="/scratch/uio")'
        local = cache is None or (isinstance(cache, (str, os.PathLike)) and bool(os.fspath(cache)))
        require(local and "://" not in str(cache), stage, "cache must be a local folder", cache, remedy)
        size = as_bytes(cache_size)
        require(size > 0, stage, "cache_size must be bytes, or a size like '200GB'", cache_size, "give a number")
        return cls(dict(storage_options or {}), None if cache is None else os.fspath(cache), size)

    def options(self, url: str) -> dict[str, Any]:
        """Return the options for this URL's protocol."""
        protocol = url.partition("://")[0].rpartition("::")[2]
        own = self.storage_options.get(protocol)
        return dict(own if isinstance(own, Mapping) else self.storage_options)

    def redact(self, text: str) -> str:
        """Remove credentials from ``text``: those in URLs, and the values of the options."""
        for value in _leaves(self.storage_options):
            text = text.replace(value, HIDDEN)
        return redact(text)

    def __repr__(self) -> str:
        return f"Access({', '.join(sorted(self.storage_options))})"


PLAIN = Access()  # without options


def _leaves(options: object) -> Iterator[str]:
    if isinstance(options, Mapping):
        for value in options.values():
            yield from _leaves(value)
    elif isinstance(options, str) and len(options) > 3 and "://" not in options:
        yield options


def as_bytes(size: int | str) -> int:
    """Return a size as a number: ``"200GB"`` → 200_000_000_000; 0 if it is none."""
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if found:
        return int(float(found[1]) * _UNITS[found[2].upper()])
    return size if isinstance(size, int) and not isinstance(size, bool) else 0
