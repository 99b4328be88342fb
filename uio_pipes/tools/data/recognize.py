"""Data at a path as a pipeline: each format is asked whether the data are its own; or what they are instead."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import fields as table_fields
from inspect import signature
from itertools import islice
from typing import Any

import uio_pipes as uio
from uio_pipes.audio.containers import sniff
from uio_pipes.base.errors import ListError, UioError
from uio_pipes.base.urls import folder_of, is_named, name_of, suffix_of
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.tar.checks import SUFFIX
from uio_pipes.formats.tar.index import MAGIC
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, seen_in
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT
from uio_pipes.sources.config import MixFile
from uio_pipes.sources.conversations import ListConversations
from uio_pipes.sources.kaldi.source import ListKaldi
from uio_pipes.sources.lhotse.shar import ListShar
from uio_pipes.sources.lhotse.source import ListCuts
from uio_pipes.sources.lists import SILENT, RawList, ShardList
from uio_pipes.sources.nemo.source import ListNemo
from uio_pipes.sources.parquet.source import ListParquet
from uio_pipes.sources.parquet.table import SUFFIXES
from uio_pipes.sources.seen import Found, GivenNames, Recognizing, Seen, names_in
from uio_pipes.sources.table.source import MoshiList
from uio_pipes.sources.tar_index import ListTarIndex
from uio_pipes.sources.text import ListJsonl, ListText
from uio_pipes.sources.touchdataset.source import ListIndexed
from uio_pipes.tools.data.corpora import Named
from uio_pipes.tools.data.finding.columns import guessed, table_of
from uio_pipes.tools.data.finding.names import segment_in

_LOOKED_AT = 4  # utterances
_PATH = re.compile(r"\S+://\S+|[!-~]*/[!-~]*|\S*/[^/\s]*\.\w{1,5}")  # and no text, which may have a slash
LISTS = ("shards.list", "data.list", "cuts.jsonl.gz", "cuts.jsonl")  # as they are called
_OF_AUDIO = "of audio files, name their folder: uio start {folder}"
_REFUSED: Sequence[tuple[Callable[[Seen], Any], str]] = (  # what is no data, and what to do with it
    (lambda seen: name_of(seen.path) in ("segments", "utt2spk", "text"),
     "is one of Kaldi's tables: name its folder (uio inspect {folder})"),
    (lambda seen: sniff(seen.head), f"is an audio file: name what lists it, or a shard of such files; {_OF_AUDIO}"),
    (lambda seen: seen.head[:4] == b"PK\x03\x04", "is a zip, or of torch.save: uio state prints a state"),
    (lambda seen: seen.head[:4] == b"PAR1", "is a Parquet file without the suffix: its name must end in .parquet"),
    (lambda seen: seen.head[257:262] == b"ustar",
     f"is a tar without the suffix: it must be one of {' '.join(ARCHIVES)}"),
    (lambda seen: is_named(seen.path, ".py"), "is Python: uio simulate and uio bench run the pipeline in it"),
    (lambda seen: seen.head[:7] == b'{"meta"', "is a loader's state: uio state prints what is in it"),
    (lambda seen: seen.head.startswith(MAGIC) and not is_named(seen.path, SUFFIX),
     f"is a tar index under another name; rename it to SHARD{SUFFIX} beside its shard"),
    (lambda seen: b"\0" in seen.head and not seen.head.startswith(MAGIC),
     "is neither text nor any of the kinds of data that uio_pipes reads"),
    (lambda seen: not seen.lines, "is empty: a list has a path or a JSON object a line"),
)  # fmt: skip


@dataclass(frozen=True)
class Recognized:
    """A path, its kind in words, the pipeline of its utterances, and the Python that begins it (to be shuffled).

    ``lacks``: what an utterance lacks to be worked on as one recording or its features, "" if nothing; ``held``:
    whether it is a part of a corpus that another part, which is there, holds; ``imports``: the lines that the Python
    needs before; ``notes``: how the data were found, in sentences; ``written``: the list that was made of them.
    """

    path: str
    kind: str
    pipeline: Pipeline
    call: str = ""
    lacks: str = ""
    held: bool = False
    imports: str = ""
    notes: Sequence[str] = ()
    written: str = ""


def begun(path: str, kind: str, start: Callable[..., Any], *given: Any, lacks: str = "", **options: Any) -> Recognized:
    """Return data of a kind, whose pipeline begins by ``start(*given, **options)``, a function of ``uio_pipes`` or a
    format."""
    known = signature(start).parameters
    shown = {name: value for name, value in options.items() if name not in known or value != known[name].default}
    if "shuffle" in known:
        shown["shuffle"] = True
    arguments = [*map(_literal, given), *(f"{name}={_literal(value)}" for name, value in shown.items())]
    call, made = f"{start.__name__}({', '.join(arguments)})", start(*given, **options)
    if isinstance(made, Pipeline):
        return Recognized(path, kind, made, f"uio.{call}", lacks)
    folder = os.path.dirname(os.path.relpath(str(sys.modules[start.__module__].__file__)))
    where = f"import sys\n\nsys.path.insert(0, {_literal(folder)})\n" if folder else ""
    imports = f"{where}from {start.__module__} import {start.__name__}\n"
    return Recognized(path, kind, made.pipeline, f"{call}.pipeline", lacks, imports=imports)


def _literal(value: Any) -> str:
    """Return a value as Python, in double quotes as the formatters have it."""
    if isinstance(value, uio.Table):  # whose own text hides what is secret in a URL
        path = _literal(value.paths[0])  # type: ignore[index]  # a tuple by now
        given = ((f, getattr(value, f.name)) for f in table_fields(value)[1:])
        more = "".join(f", {f.name}={_literal(own)}" for f, own in given if own != f.default)
        return f"uio.Table({path}{more})" if more else path
    text = repr(value)
    return text if '"' in text or "\\'" in text else text.replace("'", '"')


def recognize(path: str, allow_pipes: bool = False, fields: GivenNames = None) -> Recognized:
    """Return the kind of data at ``path``: a path, URL or glob, a line of a TouchDataset's list, files that are read
    side by side (``{"txt": "train.zh", "target": "train.en"}``), or a published corpus (``librispeech:FOLDER``).

    ``allow_pipes``: run the commands of a Kaldi folder; ``fields``: names that fields have in the data, by ours, where
    those that they seem to have are not meant.

    Raises: ListError for a path without utterances, saying what it is and the command for it.
    """
    known = _recognized(path, allow_pipes, fields)
    seen = [] if "txt" in (fields or ()) else _first(known.pipeline)
    if not seen or any("txt" in one or "messages" in one for one in seen):
        return known
    if not (text := guessed([seen_in(one) for one in seen], ("txt",))):
        return known
    known = _recognized(path, allow_pipes, {**(fields or {}), **text})
    return replace(known, kind=f"{known.kind}, {text['txt']} taken as txt")


def _first(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the first utterances, as far as they can be read."""
    with suppress(UioError):
        items = items_of(pipeline.build(Lane(Ledger(LENIENT))))
        return [dict(sample.fields) for sample in islice(items, _LOOKED_AT)]
    return []


FORMATS: Sequence[Recognizing] = (  # in the order in which they are asked
    Named, MixFile, ListTarIndex, ListIndexed, ListShar, ListKaldi, ListParquet, ShardList,  # told by names
    ListCuts, ListNemo, MoshiList, ListConversations, ListJsonl,  # by fields of JSON lines
    RawList,  # which takes what is left
)  # fmt: skip


def look(seen: Seen) -> Found | None:
    """Return what the first format says that knows the data: by names alone or, if none does, by what is in them; None
    if they may be rows of a table, or lines of text. Raises: ListError for what is no data."""
    by_name = Seen(seen.path, seen.fields, head=b"")
    if (found := _asked(FORMATS, by_name)) is not None or seen.is_inline:
        return found
    if seen.is_folder:
        raise ListError(f"{seen.path} is a folder{_in_folder(seen)}")
    if no := [no for fits, no in _REFUSED if fits(seen)]:
        raise ListError(f"{seen.path} {no[0].format(folder=folder_of(seen.path) or '.')}")
    return _asked(FORMATS, seen)


def _asked(formats: Sequence[Recognizing], seen: Seen) -> Found | None:
    return next((found for one in formats if (found := one.recognize(seen)) is not None), None)


def _recognized(path: str, allow_pipes: bool, fields: GivenNames) -> Recognized:
    seen, guessed_note, names = Seen(path, fields), "", fields
    found = look(seen)
    if found is not None:
        records = found.records() if found.records and not seen.is_inline else None
    else:
        records = seen.objects if seen.is_json and not (seen.is_inline or seen.is_rows) else None
    guesses = guessed(records) if records else {}
    if records and guesses and (found is None or not found.lacks or "wav" in guesses):
        names, guessed_note = _with_guesses(guesses, records[0], fields)
        found = look(seen := Seen(path, names, vars(seen).get("head")))
    found = found or _rows_or_text(seen)
    known, options, kind = signature(found.start).parameters, dict(found.options), found.kind
    if "fields" in known:
        options.setdefault("fields", names)
    elif fields:
        raise ListError(f"{path} is a {kind}, where fields have no names: leave --fields out")
    if "text" in known and known["text"].default == "txt" and "text" not in options:
        first = _first(found.start(*found.arguments, **options, text=None))
        options["text"] = "txt" if not first or any("txt" in one for one in first) else None
        kind += "" if options["text"] else SILENT
    if "allow_pipes" in known:
        options["allow_pipes"] = allow_pipes
    return begun(path, kind + guessed_note, found.start, *found.arguments, lacks=found.lacks, **options)


def _rows_or_text(seen: Seen) -> Found:
    """Return how the rows of a table are read that name audio files, or else lines of text.

    Raises: ListError if the names in JSON lines are not ours, or lines name files that are not read so.
    """
    if seen.is_inline:
        return ListText.recognize(seen)
    path, first = seen.path, seen.lines[0]
    if seen.is_json and not seen.is_rows:
        if {"reason", "member"} <= names_in(first, None):
            raise ListError(f"{path} is a quarantine file (failures with their origin): .exclude(…) takes it")
        shown = ", ".join(sorted(names_in(first, seen.fields))[:12])
        raise ListError(
            f"{path} has JSON objects with other names than ours ({shown}): say which is which, as in "
            "--fields txt=content for texts, or --fields key=id,wav=path,txt=words for audio"
        )
    if not seen.is_rows and any(line.startswith('{"') for line in seen.lines):
        raise ListError(f"{path} has lines of several kinds: {first[:60]!r} is no JSON object, as others are")
    if (table := table_of(seen)) is not None:
        shown = ", ".join(f"{ours}={theirs}" for ours, theirs in table[1].items())
        return Found(f"table ({shown})", uio.from_table, (table[0],), {"fields": table[1]})
    if _PATH.fullmatch(first):
        how = f"name the files themselves, as by a glob in quotes; names of shards end in one of {' '.join(ARCHIVES)}"
        if suffix_of(first) in AUDIO_SUFFIXES:
            near = os.path.join(folder_of(path), folder_of(first))
            how = _OF_AUDIO.format(folder=near if os.path.isdir(near) else folder_of(first) or ".")
        raise ListError(f"{path} lists files that are no shards ({first[:60]}): {how}")
    return ListText.recognize(seen)


def _with_guesses(
    found: Mapping[str, str], there: Collection[str], fields: GivenNames
) -> tuple[dict[str, str] | None, str]:
    """Return the names of fields that are given or seem to be meant, and the words on the latter; start and end, too,
    if audio has these by other names."""
    times = segment_in(there) if {"wav", "audio"} & {*found, *there} else {}
    given, found = dict(fields or {}), {**found, **{ours: own for ours, own in times.items() if ours != "speaker"}}
    names = {ours: name for ours, name in found.items() if ours not in {name, *given} and name not in given.values()}
    return names | given or None, "".join(f", {name} taken as {ours}" for ours, name in names.items())


def _in_folder(seen: Seen) -> str:
    """Return what is in a folder that is not read as a whole, and what to name instead."""
    if "dataset_dict.json" in seen.names or {"state.json", "dataset_info.json"} <= seen.names:
        split = '["train"]' if "dataset_dict.json" in seen.names else ""
        line = f'datasets.load_from_disk("{seen.path}"){split}'
        return f" of datasets' save_to_disk: uio.from_iterable({line}).sharding_filter() reads it in Python"
    for ends, what in ((LISTS, "that, {0}"), ((*ARCHIVES, *SUFFIXES), "them by a glob in quotes ('{1}')")):
        if some := sorted(name for name in seen.names if name.endswith(ends)):
            places = [os.path.join(seen.path, name) for name in (some[0], f"*.{suffix_of(some[0])}")]
            return f" with {some[0]}: name {what.format(*places)}"
    return (
        ", but neither a TouchDataset (metainfo.idx, …), a Kaldi folder (wav.scp, …) nor a Shar: name a list, a shard "
        "or one of those; of a folder of audio files, uio start makes a list"
    )
