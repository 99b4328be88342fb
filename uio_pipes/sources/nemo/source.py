"""``from_nemo``: the utterances of NeMo's manifests, in any order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from uio_pipes.base.checks import require, require_paths, require_root
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.urls import AnyPath, folder_of
from uio_pipes.core.stage import NO_IDENTITY
from uio_pipes.formats.archives.directory import MemberRef
from uio_pipes.formats.lists.json_lines import numbers_as_text
from uio_pipes.formats.naming import FieldNames, check_text, names_of
from uio_pipes.io.access import Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.format import Format, NamedByRow, RowPlace, Utterances
from uio_pipes.sources.nemo.table import OTHER, ManifestGroup, Manifests, cut, findings, key_of_row, take_path
from uio_pipes.sources.seen import Found, Seen

_RTTM = "rttm_filepath"  # who speaks when


class NamedInManifest(NamedByRow):
    """A file that a manifest's row names."""

    __slots__ = ()
    remedy: ClassVar[str] = (
        "correct the row, fetch the file, say by root= where paths start or, if it is in a tar, give tarred_audio=…"
    )


@dataclass(frozen=True)
class ListNemo(Format):
    """Rows of NeMo's manifests: ``paths`` and ``tars`` of each data set."""

    name: ClassVar[str] = "list_nemo"
    sentence: ClassVar[str] = "NeMo manifest"
    reasons = ("skipme",)
    named: ClassVar[type[NamedByRow]] = NamedInManifest
    wanted: ClassVar[str] = 'a manifest has {"audio_filepath": …, "duration": …, "text": …} a line'

    tars: tuple[ManifestGroup, ...] | None = field(default=None, metadata=NO_IDENTITY)
    names: FieldNames = ()

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not seen.has("audio_filepath", "audio_filename", "audio_file"):
            return None
        tars = _tars_beside(seen.path, seen.local) if '"shard_id"' in seen.lines[0] else None
        return Found("NeMo manifest", from_nemo, (seen.path, *([tars] if tars else [])))

    def rows(self) -> Manifests:
        return Manifests(self.paths, self.tars, self.access, self.names, self.wanted)

    def utterance(self, row: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        """Return the fields of an utterance. Raises: LeftOut ``skipme``, DataError."""
        if row.pop("_skipme", False):
            raise LeftOut("skipme", "the row is marked with _skipme")
        path = take_path(row, self.names)
        cut(row)
        row["key"] = key_of_row(row, path)
        check_text(row, self.names)
        row["wav"] = path if self.tars is None else at.rows.member(row, path, at.file)
        numbers_as_text(row, "text")
        if "txt" not in row and isinstance(row.get("text"), str):
            row["txt"] = row.pop("text")
        for name in [name for name in row if name.endswith(OTHER) or name in self._others or name == _RTTM]:
            if isinstance(row[name], str) and row[name]:
                row[name] = self.audio(row[name], at)
        return row

    def findings(self, table: Utterances, part: int, crc: bool, indexes: str | None) -> Iterator[DataError]:
        """Yield damage of the tars, and notes on members that no row names. All rows and headers are read."""
        return iter(()) if part else findings(_members(table))

    @cached_property
    def _others(self) -> frozenset[str]:
        return frozenset(ours for ours, theirs in self.names if theirs.endswith(OTHER))

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.rows().skips else super().count(counts, path)


def _members(table: Utterances) -> Iterator[MemberRef]:
    for number in range(len(table)):
        with suppress(DataError):
            if isinstance(wav := table.fields(number).get("wav"), MemberRef):
                yield wav


ManifestPaths = AnyPath | Iterable[AnyPath | Iterable[AnyPath]]


@reaches_files
def from_nemo(
    manifest: ManifestPaths,
    tarred_audio: ManifestPaths | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    root: AnyPath | None = None,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from NeMo's manifests, with or without tars; their utterances are read in any order.

    A row ``{"audio_filepath": …, "duration": …, "text": …}`` gives the fields ``wav``, ``duration`` and ``txt``; with
    ``offset``, also ``start`` and ``end``, and the utterance is that part of the audio. All other names are kept as
    fields; those that end in ``_audio_filepath`` name files, too, which are found in the same way. The ``key`` is the
    row's ``key`` or ``id``, or else the file's name without its suffix, to which NeMo's ``-OFFSET-DURATION`` (in
    hundredths of a second) is added if the row has an ``offset``. A row with ``_skipme`` is left out and counted as
    ``skipme``.

    Nothing but the manifests is read for planning, since they give the durations. A tar's headers are read when its
    first member is needed, once in each process; ``uio index --text ''`` spares that.

    Args:
        manifest: manifest(s), plain or compressed: a path, URL or glob, with NeMo's braces for the shards
            (``manifest__OP_0..127_CL_.json``, ``{0..127}``, ``(0..127)``, …) and commas between several; or several in
            a list; or a list of such lists, one for each data set (NeMo's ``[[…], […]]``).
        tarred_audio: the tars (``audio__OP_0..127_CL_.tar``), given like the manifests. Sharded manifests pair with
            tars by the numbers in their names; rows of a single manifest by ``shard_id``; data sets by their order.
            Default: None, rows name audio files. A relative path starts at ``root``.
        fields: the names that fields have in the rows, by ours: ``{"txt": "text_pc"}``. Default: None, NeMo's names.
        root: folder or URL at which relative paths of audio start. Default: None, the manifest's folder or, if there is
            no such file, the working directory.
        shuffle: whether to deal all utterances in another order in each epoch: a random order of all, without a
            buffer. Default: False, the order of the manifests.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing, empty or not one, or manifests and tars do not
            pair.
    """
    manifests, tars = data_sets("from_nemo", manifest, tarred_audio)
    reached, start = Access.of("from_nemo", **access), require_root("from_nemo", root)
    return ListNemo(manifests, shuffle, reached, start, tars, names_of("from_nemo", fields)).pipeline


def _tars_beside(path: str, local: str | None) -> list[str]:
    """Return the tars of a manifest whose rows are in tars. Raises: ListError if there are none."""
    folder = folder_of(local or path)
    for near in (folder, os.path.dirname(folder)):  # sharded manifests are in a folder of their own
        if tars := sorted(glob.glob(os.path.join(glob.escape(near), "audio*_*.tar"))):
            return tars
    raise ListError(
        f"{path} is a NeMo manifest whose rows are in tars, but there is no audio_0.tar, … beside it or above: "
        "give both to uio.from_nemo in a Python file (uio simulate and uio bench take that)"
    )


ManifestGroups = tuple[tuple[str, ...], ...]


def data_sets(start: str, manifest: Any, tarred_audio: Any) -> tuple[ManifestGroups, ManifestGroups | None]:
    """Return the names of the manifests and tars of each data set. Raises: PipelineError."""
    manifests = _groups(start, "manifest", manifest)
    tars = None if tarred_audio is None else _groups(start, "tarred_audio", tarred_audio)
    pairs = tars is None or len(tars) == len(manifests)
    counts = (len(manifests), len(tars or ()))
    require(pairs, start, "there must be as many data sets of tars as of manifests", counts, "pair the lists")
    return manifests, tars


def _groups(start: str, name: str, given: Any) -> ManifestGroups:
    nested = isinstance(given, (list, tuple)) and any(isinstance(each, (list, tuple)) for each in given)
    rule = f"{name} must be a path, or several in a list"
    return tuple(require_paths(start, rule, each) for each in (given if nested else [given]))
