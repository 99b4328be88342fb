"""The tars of tarred manifests: the member of each row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.redact import redact
from uio_pipes.formats.nemo.paths import DataSet, shard_number
from uio_pipes.formats.tar.directory import MemberRef, TarDirectory, same_name
from uio_pipes.io.access import Access

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
