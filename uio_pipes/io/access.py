"""Options for fsspec's file systems and for the cache. They are kept out of messages and saved states."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, Literal, TypedDict, TypeVar

from typing_extensions import Unpack as Unpack

from uio_pipes.base.checks import require
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.urls import HIDDEN, AnyPath, redact

CACHE_SIZE = "100GB"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


class AccessOptions(TypedDict, total=False):
    """The options that all sources take, as in ``uio.from_table("train.tsv", cache="copies")``: how files are accessed,
    how the list is drawn, and what is done where it says wrong lengths.

    Attributes:
        storage_options: options of fsspec's file systems, with which lists, shards and audio are read: ``{"key": …,
            "secret": …}`` for all, or by protocol: ``{"s3": {…}, "https": {"headers": {…}}}``. They are neither printed
            nor saved in a state. Default: None, fsspec's own configuration (``FSSPEC_S3_ENDPOINT_URL`` and the like,
            ``~/.config/fsspec``).
        cache: local folder that keeps copies of remote files, shared by all processes of the machine. Default: None,
            no copies.
        cache_size: bytes that those copies may take, as a number or as text ("200GB"); the copies that were not used
            for the longest time go first. Default: "100GB".
        resampled: whether shards (row groups of Parquet files), or utterances if read in any order, are drawn with
            replacement, as many in each epoch as there are. Default: False, each comes once.
        tolerance: seconds by which audio may be longer than its list declares, or end before a declared segment ends.
            A ``duration`` is planned that much longer. Default: None, what is usual: 0.05; 0 for a ``duration``
            elsewhere than in tables, 0.025 in Lhotse's manifests.
        longer: what is done where they differ more: "fail", by ``length_mismatch`` or ``bad_segment``; or "trim": audio
            is cut to the planned length, and a segment at the end of the audio. The utterance is delivered, counted as
            ``trimmed``, and has a field ``trimmed``, the seconds of the difference. Default: "fail".
    """

    storage_options: Mapping[str, Any] | None
    cache: AnyPath | None
    cache_size: int | str
    resampled: bool
    tolerance: float | None
    longer: Literal["fail", "trim"]


@dataclass(frozen=True)
class Access:
    """How files are accessed: :class:`AccessOptions`, checked."""

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    cache: str | None = None
    cache_size: int = 10**11

    @classmethod
    def of(
        cls,
        stage: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        cache: AnyPath | None = None,
        cache_size: int | str = CACHE_SIZE,
        resampled: bool = False,
        tolerance: float | None = None,
        longer: Literal["fail", "trim"] = "fail",
    ) -> Access:
        """From a stage's arguments, of which the last three are not about access. Raises: PipelineError."""
        ok = storage_options is None or (
            isinstance(storage_options, Mapping) and all(isinstance(name, str) for name in storage_options)
        )
        rule = "storage_options must be a dict of options of fsspec's file system"  # its value may be a secret
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


T = TypeVar("T", bound=Callable[..., Any])


def reaches_files(made: T) -> T:
    """Decorate a function as :func:`takes_access` does; what is not about access goes to the pipeline it returns."""

    @wraps(made)
    def begun(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in ("resampled", "tolerance", "longer") if name in given}
        pipeline = made(*args, **given)
        return pipeline._begun(made.__name__, **own) if own else pipeline

    return takes_access(begun)  # type: ignore[return-value]


def takes_access(made: T) -> T:
    """Decorate a function with ``**access``: ``help`` and completion show its options by their names, and a wrong name
    is a TypeError with a hint, as :func:`keyword_hints` gives it."""
    shown, options = signature(made), list(signature(Access.of).parameters.values())[1:]
    own = [each for each in shown.parameters.values() if each.kind is not each.VAR_KEYWORD]
    made.__signature__ = shown.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return keyword_hints(made)


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
