"""``from_lhotse_cuts``: the cuts of Lhotse's manifests, in any order, read without Lhotse."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.urls import AnyPath
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY, added, verbatim
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.lhotse.cuts import CutTable, Pairs, pairs_of


@dataclass(frozen=True)
class ListCuts(Source):
    """Cuts of Lhotse's manifests. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_cuts"

    paths: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    fields: Pairs = field(default=(), metadata=verbatim("fields"))
    allow_pipes: bool = added(False)
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> CutTable:
        """Read the manifests. Raises: ListError."""
        return CutTable(self.paths, self.access, self.fields, self.allow_pipes)


def from_lhotse_cuts(
    paths: AnyPath | Iterable[AnyPath],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    allow_pipes: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from the cuts of Lhotse's manifests, which are read without Lhotse and in any order.

    Utterances have the fields ``key`` (the cut's id), ``txt``, ``speaker``, ``language``, ``gender`` and custom fields
    of its supervisions as far as they agree, ``wav`` or ``feat``, ``start`` and ``end`` in seconds if the cut is a
    part of its recording, the cut's custom fields, and ``supervisions`` as they are. The texts of several supervisions
    are joined by a blank; ``.segments(field="supervisions")`` cuts an utterance for each. Custom recordings and arrays
    are read when touched, and are cut along. Manifests give all lengths: nothing else is opened to plan.

    Args:
        paths: manifest(s) of cuts (``cuts.jsonl``, ``cuts.jsonl.gz``, …), globs, braces, URLs. Relative paths in them
            start at the working directory, as in Lhotse.
        shuffle: whether to deal the cuts in another order in each epoch. Default: False.
        fields: names that the fields have in the cuts, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and it is not read: ``{"feat": None}``. Default: None, all of them under their own names.
        allow_pipes: whether to run the commands that recordings may have in place of paths; they run without a shell.
            Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing or damaged, or does not hold cuts.
    """
    name = "from_lhotse_cuts"
    given = paths_of(paths) if isinstance(paths, (str, os.PathLike, Iterable)) else ()
    require(bool(given) and all(given), name, "paths must be manifests of cuts", paths, "try 'cuts.jsonl.gz'")
    access = Access.of(name, storage_options)
    listed = ListCuts(given, shuffle, pairs_of(name, fields), allow_pipes, access)
    return Pipeline((listed,)).sharding_filter().load_records()


def paths_of(paths: Any) -> tuple[str, ...]:
    one = isinstance(paths, (str, os.PathLike))
    return tuple(str(os.fspath(path)) for path in ([paths] if one else paths))
