"""The utterances of NeMo manifests with their audio in files or tars, in one table for all lanes of a process. The
names of manifests and tars are written as in NeMo's configurations."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import name_of, redact, unsigned
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.archives.directory import MemberRef, TarDirectory, same_name
from uio_pipes.formats.lists.json_lines import JsonRows, as_seconds, check_segment
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.tar.checks import AT_ONCE
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
        """Return the member of a row, without looking it up. Raises: DataError ``wrong_shard``."""
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
    """Yield damage of the tars that contain ``wanted`` members, and notes on unwanted members."""
    names: dict[TarDirectory, Counter[str]] = {}
    for ref in wanted:
        names.setdefault(ref.directory, Counter()).update(map(same_name, ref.names))
    for directory, known in names.items():
        try:
            members = [place.name for place in directory.members()]
        except DataError:
            continue  # each of its rows fails
        yield from directory.damage
        for name in members:
            if same_name(name) not in known:
                message = "no row of the manifest names this member, so it is not read: add a row if it was left out"
                yield DataError("unlisted_member", f"{message} by mistake", url=redact(directory.url), member=name)


class Manifests(JsonRows):
    """The rows of all manifests, in their order. ``tars``: None if the rows name files.

    Raises: ListError if a manifest is missing, empty or of another kind, or manifests and tars do not pair.
    """

    def __init__(
        self,
        manifests: tuple[ManifestGroup, ...],
        tars: tuple[ManifestGroup, ...] | None,
        access: Access,
        names: FieldNames,
        wanted: str,
    ) -> None:
        sets = data_sets(manifests, tars, access)
        super().__init__(tuple(chain.from_iterable(each.manifests for each in sets)), access, names, wanted)
        self._tars: dict[str, Tars] = {}  # by manifest
        for each in sets if tars is not None else ():
            self._tars |= dict.fromkeys(each.manifests, Tars(each, access))

    @cached_property
    def digest(self) -> str:
        """A hash of all rows, and of the tars' names and sizes."""
        directories = list(chain.from_iterable(each.directories for each in dict.fromkeys(self._tars.values())))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            sizes = list(pool.map(TarDirectory.known_size, directories))
        names = [os.path.basename(unsigned(each.url)) for each in directories]
        return blake2b(repr((self.lines.digest, names, sizes)).encode(), digest_size=16).hexdigest()

    @cached_property
    def skips(self) -> bool:
        """True if rows may be marked to be left out."""
        return any("_skipme" in text for file in self.lines.files for text in file.texts())

    def member(self, row: dict[str, Any], path: str, manifest: str) -> MemberRef:
        """Return the member of a tar that a row names, which is not looked for yet. Raises: DataError."""
        return self._tars[manifest].member(row, path, manifest)


_AUDIO = ("wav", "audio_filepath", "audio_filename", "audio_file")  # ours, and those that NeMo takes
OTHER = "_audio_filepath"  # how names of files beside the audio end, as context_audio_filepath


def take_path(row: dict[str, Any], names: FieldNames) -> str:
    """Remove and return the name of the audio. Raises: DataError ``missing_audio``."""
    path = None
    for name in _AUDIO:
        if path is None:
            path = row.get(name)
    if isinstance(path, str) and path:
        for name in _AUDIO:
            row.pop(name, None)
        return path
    if isinstance(path, list):
        raise DataError("missing_audio", "the row has several audio files, which cannot be joined: give one")
    message = f"the row has no audio_filepath: {named_otherwise('wav', row, given=dict(names))}"
    raise DataError("missing_audio", message)


def key_of_row(row: dict[str, Any], path: str) -> str:
    """Return ``key`` or ``id``; or the file's name without its suffix and, as in NeMo, offset and duration."""
    key = row.get("key", row.get("id"))
    if key is not None:
        return str(key)
    name = name_of(path)
    stem = name.rpartition(".")[0]
    stem = stem if stem.strip(".") else name
    start, end = row.get("start"), row.get("end")
    if start is None:
        return stem
    return "-".join(
        [stem, f"{round(start * 100):06d}", *([] if end is None else [f"{round((end - start) * 100):06d}"])]
    )


def cut(row: dict[str, Any]) -> None:
    """Replace ``offset`` by ``start`` and ``end``. Raises: DataError ``bad_segment``."""
    offset, duration = as_seconds(row.pop("offset", None)), as_seconds(row.pop("duration", None))
    if duration is not None:
        row["duration"] = duration
    if offset is not None:
        row["start"] = offset
    if offset is not None and duration is not None:
        if not (is_number(offset) and is_number(duration)):
            message = f"offset and duration must be seconds, not {offset!r} and {duration!r}: correct the row"
            raise DataError("bad_segment", message)
        row["end"] = offset + duration
    if "start" in row or "end" in row:
        check_segment(row, "", "")
