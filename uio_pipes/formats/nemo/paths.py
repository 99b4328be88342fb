"""Names of manifests and tars as NeMo's configurations write them, and the tars of each manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.base.redact import redact
from uio_pipes.base.urls import name_of
from uio_pipes.formats.lists.table import expand
from uio_pipes.io.access import Access

ManifestGroup = tuple[str, ...]  # names of one data set
# NeMo writes {0..7} as _OP_0..7_CL_, (0..7), [0..7] or <0..7>, since braces mean something to a shell and to Hydra.
_RANGE = re.compile(r"[(\[<](\w+\.\.\w+(?:\.\.\w+)?|[^()\[\]<>{}/]*,[^()\[\]<>{}/]*)[)\]>]")
_COMMA = re.compile(r",(?![^{]*\})")
_NUMBER = re.compile(r".*_(\d+)")  # the last one of a name, as NeMo takes it


class DataSet(NamedTuple):
    """Manifests and their tars: by number of the shard; None if the manifests name files."""

    manifests: ManifestGroup
    tars: dict[int | None, str] | None


def data_sets(
    manifests: tuple[ManifestGroup, ...], tars: tuple[ManifestGroup, ...] | None, access: Access
) -> list[DataSet]:
    """Return the data sets, their names expanded. Groups of manifests and of tars are paired in their order; of one
    group each, also their entries if the shards' numbers in their names are not unique; of one entry each, its files.

    Raises: ListError if no file matches, or manifests and tars do not pair.
    """
    if tars is None:
        return [DataSet(tuple(expanded(group, access)), None) for group in manifests]
    pairs = list(zip(manifests, tars, strict=True))
    if len(pairs) == 1:
        (one, other), files = pairs[0], [tuple(expanded(group, access)) for group in pairs[0]]
        twice = any(len(set(map(shard_number, names))) < len(names) for names in files)
        if twice and len(one) == len(other) == 1 and len(files[0]) == len(files[1]):
            one, other = files
        if twice and len(one) == len(other):
            pairs = [((name,), (tar,)) for name, tar in zip(one, other, strict=True)]
    return [_paired(tuple(expanded(one, access)), tuple(expanded(other, access))) for one, other in pairs]


def expanded(names: Sequence[str], access: Access) -> Iterator[str]:
    """Yield the files: NeMo's brackets are braces, and commas separate names. Raises: ListError."""
    for name in names:
        braces = _RANGE.sub(r"{\1}", name.replace("_OP_", "{").replace("_CL_", "}"))
        for part in _COMMA.split(braces):
            yield from expand(part.strip(), access)


def shard_number(name: str) -> int | None:
    """Return the number of a shard: ``audio_12.tar`` has 12; None without one."""
    found = _NUMBER.match(name_of(name))
    return int(found[1]) if found else None


def _paired(manifests: ManifestGroup, tars: ManifestGroup) -> DataSet:
    by_number = {shard_number(tar): tar for tar in tars}
    if len(tars) > 1 and (None in by_number or len(by_number) < len(tars)):
        raise ListError(
            f"{redact(tars[0])} and {len(tars) - 1} more: each tar needs a shard number of its own in its name, as in "
            "audio_0.tar: rename them"
        )
    if len(manifests) > 1 and (numbers := {shard_number(name) for name in manifests}) != set(by_number):
        odd = sorted(map(str, numbers ^ set(by_number)))
        raise ListError(
            f"{len(manifests)} manifests and {len(tars)} tars do not pair: shard {', '.join(odd[:5])} is only in one "
            f"of them ({redact(manifests[0])}, {redact(tars[0])}, …): name both for the same shards"
        )
    return DataSet(manifests, by_number)
