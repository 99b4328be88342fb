"""Names of manifests and tars as NeMo's configurations write them, and the member of each row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import name_of, redact
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tar.directory import MemberRef, TarDirectory, same_name
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


# The second utterance of a recording is named `x-sub1.wav` in the manifest; the tar holds `x.wav` once.
_REPEATED = re.compile(r"(.+)-sub\d+(\.\w+)?")


class Tars:
    """The tars of one data set, by the numbers of its shards."""

    def __init__(self, data_set: DataSet, access: Access) -> None:
        self.manifests = data_set.manifests
        self._shards = {number: TarDirectory(url, access) for number, url in (data_set.tars or {}).items()}
        self._numbers = {m: shard_number(m) for m in self.manifests} if len(self.manifests) > 1 else {}

    @property
    def directories(self) -> list[TarDirectory]:
        return list(self._shards.values())

    def member(self, row: dict[str, Any], path: str, manifest: str) -> MemberRef:
        """Return the member of a row, which is not looked for yet. Raises: DataError ``wrong_shard``."""
        names = (path, found[1] + (found[2] or "")) if (found := _REPEATED.fullmatch(path)) else (path,)
        return MemberRef(self._directory(row.get("shard_id"), manifest), names)

    def _directory(self, shard: Any, manifest: str) -> TarDirectory:
        own = self._numbers.get(manifest)
        number = own if shard is None else int(shard) if isinstance(shard, str) and shard.isdecimal() else shard
        if own is not None and number != own:
            message = f"the row is of shard {shard!r}, but in the manifest of shard {own}: move it, or correct it"
            raise DataError("wrong_shard", message)
        if number in self._shards:
            return self._shards[number]
        if len(self._shards) == 1 and (shard is None or None in self._shards):
            return next(iter(self._shards.values()))
        known = ", ".join(map(str, list(self._shards)[:5])) + (", …" if len(self._shards) > 5 else "")
        what = "the row has no shard_id" if shard is None else f"the row is of shard {shard!r}"
        message = f"{what}, and the tars are of the shards {known}: name the tars of all shards, or correct the row"
        raise DataError("wrong_shard", message)


def findings(wanted: Iterable[MemberRef]) -> Iterator[DataError]:
    """Yield the damage of the tars that ``wanted`` members are in, and notes on members that nobody wants."""
    names: dict[TarDirectory, Counter[str]] = {}
    for ref in wanted:
        names.setdefault(ref.directory, Counter()).update(map(same_name, ref.names))
    for directory, known in names.items():
        try:
            members = [name for name, _, _ in directory.members()]
        except DataError:
            continue  # each of its rows fails
        yield from directory.damage
        for name in members:
            if same_name(name) not in known:
                message = "no row of the manifest names this member, so it is not read: add a row if it was left out"
                yield DataError("unlisted_member", f"{message} by mistake", url=redact(directory.url), member=name)
