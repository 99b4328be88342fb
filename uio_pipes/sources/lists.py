"""Pipelines that begin with data lists: of shards, or of utterances."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from uio_pipes.base.checks import require
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.io.access import Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.stages.reading.loading import ListFiles


class RawList:
    """WeNet's raw lists."""

    sentence = 'WeNet raw list: one `{"key", "wav", "txt"}` per line'

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        """Return how JSON lines are read that no other format knows: with our names, or damaged beyond recognition."""
        ours = {"key", "wav", "feat"} if seen.is_inline else {"key", "wav", "feat", "txt"}
        if not seen.is_json or (seen.columns and not ours & seen.columns):
            return None
        has_text = "txt" in seen.columns or not seen.columns
        options = {"text": "txt" if has_text else None}
        kind = "raw list" + ("" if has_text else SILENT)
        return Found(kind, from_raw_list, (seen.path,), options, listed=True, records=lambda: seen.objects)


class ShardList:
    """Tar shards, and lists of them."""

    sentence = "WeNet shards: `KEY.wav`, `KEY.txt` in tars"

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if is_named(seen.path, ARCHIVES):
            return Found("tar shard", from_shard_list, (seen.path,), listed=True)
        named = (one for line in seen.entries for one in (line, line.split(None, 1)[0]))
        listed = any(is_named(one, ARCHIVES) for one in named)
        return Found("shard list", from_shard_list, (seen.path,), listed=True) if listed else None


SILENT = " without transcripts"
ListEntry = str | os.PathLike[str] | Mapping[str, object]


@reaches_files
def list_files(
    paths: str | os.PathLike[str] | Iterable[ListEntry],
    *,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from data lists.

    Args:
        paths: list file(s) with a path, URL or JSON object per line; globs; ``{a,b}`` and ``{00..99}`` braces;
            URLs; names of tar shards themselves (``data/*.tar``); JSON objects as dicts. Give one, or several in a
            Python list. In list files, blank lines and lines that start with ``#`` are ignored.
        shuffle: whether to deal the lines in another order in each epoch. Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: nothing was given, or something that is not a path.
        ListError: when the pipeline runs, if a list is missing, empty or not a list.
    """
    one = isinstance(paths, (str, os.PathLike, Mapping))
    ok = one or isinstance(paths, Iterable)
    require(ok, "list_files", "paths must be a path or a list of paths", paths, "name one")
    given = [paths] if one else list(paths)  # type: ignore[arg-type]
    require(bool(given), "list_files", "at least one list or shard must be given", paths, "name a list file")
    return Pipeline((ListFiles(tuple(map(_entry, given)), shuffle, Access.of("list_files", **access)),))


def _entry(entry: object) -> str:
    if isinstance(entry, Mapping):
        return json.dumps(dict(entry), ensure_ascii=False)
    path = os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else ""
    rule = "each entry must be a path, a URL or a dict of one utterance"
    require(bool(path.strip()), "list_files", rule, entry, "name a list file")
    return str(path)


@reaches_files
def from_raw_list(
    paths: Any,
    *,
    shuffle: bool = False,
    text: str | None = "txt",
    fields: Mapping[str, str] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from raw lists (JSON lines): ``list_files(…).sharding_filter().load_from_raw()``.

    Args:
        paths: raw lists, or their lines as dicts, as for :func:`list_files`.
        shuffle: whether to deal the lines, and so the utterances, in another order in each epoch. Default: False.
        text: name that holds the transcript; None if utterances need none, as for pre-training: ``txt`` is then there
            where a line has it. Default: "txt".
        fields: our names of fields whose names in the lines are others, as in ``{"wav": "audio", "txt": "text"}``.
            Default: None, all have ours.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a list is missing, empty or no raw list, or none of its first 100 lines
            has what ``fields`` asks for.
    """
    listed = list_files(paths, shuffle=shuffle, **access)
    return listed.sharding_filter().load_from_raw(fields=fields, text=text)


@reaches_files
def from_shard_list(
    paths: Any,
    *,
    shuffle: bool = False,
    grouping: Literal["wenet", "webdataset"] = "wenet",
    text: str | None = "txt",
    verify: Literal["crc"] | None = None,
    fields: Mapping[str, str] | None = None,
    interleave: int = 1,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from lists of tar shards: ``list_files(…).sharding_filter().open_files().load_from_tar()``.

    Args:
        paths: lists of shards, or the shards themselves, as for :func:`list_files`.
        shuffle: whether to deal the shards in another order in each epoch; utterances stay in the order of their
            shard, so add ``.shuffle()``. Default: False.
        grouping: where a member's name is cut into key and suffix: "wenet" cuts at the last dot of the whole path,
            "webdataset" at the first dot of the base name. Default: "wenet".
        text: suffix of the member that holds the transcript, or "json:NAME" if it is the field NAME of the member
            ``KEY.json``; None if utterances need none, as for pre-training: ``txt`` is then there where a shard has it.
            Default: "txt".
        verify: "crc" compares the bytes of every member with the CRC32 in the shard's index, which the command
            ``uio index`` makes. Default: None, no comparison.
        fields: our names of fields, with the suffixes of their members, or ``SUFFIX:NAME`` for a field of a member's
            JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``; dots lead into nested fields. Default: None,
            ours are the suffixes.
        interleave: shards that each lane reads at once, an utterance of each in turn, for shards of one speaker or one
            book each. Default: 1.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a list is missing, empty or not a list, or none of the first 100
            utterances of its first shard has what ``fields`` asks for.
    """
    listed = list_files(paths, shuffle=shuffle, **access)
    files = listed.sharding_filter().open_files(interleave=interleave)
    return files.load_from_tar(grouping=grouping, text=text, verify=verify, fields=fields)
