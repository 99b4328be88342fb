"""What ``uio start`` and ``uio inspect`` are given: data of a known form, those that a folder holds, or the utterances
that the search finds there."""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from uio_pipes.audio.containers import sniff
from uio_pipes.base.errors import ListError, UioError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.advice import shown
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tables.description import Table
from uio_pipes.io.access import PLAIN
from uio_pipes.io.files import write_lines
from uio_pipes.io.folders import entry_of
from uio_pipes.sources.corpora.card import largest
from uio_pipes.sources.corpora.finding import everything
from uio_pipes.sources.corpora.source import CORPORA, reading
from uio_pipes.sources.lists import SILENT, from_raw_list
from uio_pipes.sources.parquet.table import SUFFIXES
from uio_pipes.sources.seen import GivenNames
from uio_pipes.sources.table.source import from_table
from uio_pipes.sources.text import TEXT
from uio_pipes.tools.data.corpora import named_corpus
from uio_pipes.tools.data.finding.files import Files, named_in_utf8, split_of, wanted_of
from uio_pipes.tools.data.finding.search import ENOUGH, Search, Spoken
from uio_pipes.tools.data.recognize import LISTS, Recognized, begun, recognize
from uio_pipes.tools.reports.inspect import inspect

_LOOKED_AT = 20  # utterances
_TABLES = (".list", ".jsonl", ".json", ".tsv", ".csv")
HEADERLESS = {"encoding": "s16le", "sample_rate": 16_000}  # as which samples without a header are read


def find_data(
    data: str, listed: Path | None = None, allow_pipes: bool = False, fields: GivenNames = None, part: str = ""
) -> Recognized:
    """Return what :func:`recognize` does, also of a folder, with the names that fields seem to have there. Of
    utterances that the search finds the list ``listed`` is written.

    ``part``: the part of a corpus, or the split of a folder (train, dev, test), that is wanted; "": that for training.

    Raises: ListError for anything else, saying what was seen and what to do.
    """
    named_in_utf8(data)
    if data in CORPORA and not os.path.exists(data):
        raise ListError(
            f"{data} is a published corpus: name its folder, too, as in uio start {data}:FOLDER (uio corpora {data} "
            "says what to download)"
        )
    if (corpus := named_corpus(data)) is not None and part:
        data = data.replace(f":{corpus.folder}", f",part={part}:{corpus.folder}")
    if os.path.isdir(data):
        return _in_folder(data, listed, allow_pipes, fields, part)
    if part and corpus is None:
        raise ListError(
            f"{data} is neither a folder nor a published corpus, of which a part can be named: leave it out"
        )
    known, unknown = None, ListError("")
    try:
        known = recognize(data, allow_pipes, fields)
    except ListError as error:
        unknown = error
    texts = known is not None and known.kind != TEXT and SILENT not in known.kind
    if known is not None and texts and (not known.kind.startswith("table") or _works(known, 0.05)):
        return known
    if os.path.isfile(data) and not fields and not is_named(data, (*ARCHIVES, *SUFFIXES)):
        folder = Path(data).absolute().parent
        for place in (folder, folder.parent):  # a file of texts, whose recordings are beside or above it
            if place == folder or place not in (*Path.cwd().parents, Path.cwd(), Path.home()):
                name = str(place) if os.path.isabs(data) else os.path.relpath(place)
                if joined := _searched(Files(name), listed, split_of(os.path.basename(data)), os.path.realpath(data)):
                    return joined
    if known is None:
        raise unknown
    return known


# A folder


def _in_folder(folder: str, listed: Path | None, allow_pipes: bool, fields: GivenNames, part: str) -> Recognized:
    """Return the first that can be read and has texts: the folder as a whole, a list or Kaldi's tables in it, Parquet
    files or shards; or else a corpus that has a name, what the search finds, or a list of what is in other folders.

    Raises: ListError."""
    unknown: UioError = ListError(f"{folder} has nothing that can be read as the part {part}")
    silent: Recognized | None = None
    try:
        known = recognize(folder, allow_pipes, fields)
        if not part and (allow_pipes or _works(known)):
            return known
    except UioError as error:
        unknown = error
        if "save_to_disk" in str(error):
            raise
    files = Files(folder)
    if not files.names and not files.recordings:
        raise ListError(f"{folder} is empty")
    for inner in _known_in(folder, files.names, part):
        read = _read(folder, inner, files.names, allow_pipes, fields)
        if read is not None and SILENT not in read.kind:
            return read
        silent = read or silent
    if found := _corpus_in(folder, part) or _searched(files, listed, part, quiet=silent is not None) or silent:
        return found
    for name in wanted_of([name for name in files.names if is_named(name, _TABLES)], part):
        if read := _read(folder, os.path.join(folder, name), files.names, allow_pipes, fields):
            return read
    raise unknown


def _read(folder: str, inner: str, names: Sequence[str], allow_pipes: bool, fields: GivenNames) -> Recognized | None:
    """Return what is read of a folder, with the sentence on what else is in it; None if that cannot be read."""
    with suppress(UioError):
        known = recognize(inner, allow_pipes, fields)
        if _works(known):
            paths = [inner] if os.path.exists(inner) else expand(inner, PLAIN)
            taken = [os.path.relpath(path, folder) for path in paths]
            for depth in range(1, 1 + min(name.count("/") + 1 for name in taken)):
                above = {"/".join(name.split("/")[:depth]) for name in taken}
                if beside := {"/".join(name.split("/")[:depth]) for name in names} - above:
                    return replace(known, notes=[f"{inner} is read, and not {shown(sorted(beside))}"])
            return known
    return None


def _known_in(folder: str, names: Sequence[str], part: str) -> Iterator[str]:
    """Yield what is to be read of a folder, of those forms that say by names what they are: of the split that is
    wanted, and of several the one that is highest up."""

    def place(name: str) -> tuple[int, bool, list[bool]]:  # shards.list goes before feature_shards.list
        return name.count("/"), os.path.basename(name) not in LISTS, [not name.endswith(end) for end in LISTS]

    for ends in (LISTS, ("wav.scp", "feats.scp")):
        for name in wanted_of(sorted((name for name in names if name.endswith(ends)), key=place), part)[:1]:
            yield os.path.join(folder, name if ends == LISTS else os.path.dirname(name))
    for suffixes in (SUFFIXES, ARCHIVES):
        if some := wanted_of([name for name in names if is_named(name, suffixes)], part):
            yield _glob_of(folder, some)


def _glob_of(folder: str, names: Sequence[str]) -> str:
    """Return a glob of these files and no others, or else their names in braces; the path of the only one."""
    place, chosen = glob.escape(folder), {os.path.join(folder, name) for name in names}
    if len(chosen) == 1:
        return next(iter(chosen))
    above = os.path.normpath(f"{place}/{glob.escape(os.path.commonpath([f'./{os.path.dirname(n)}' for n in names]))}")
    begin, suffix = (re.search(how, os.path.basename(names[0]))[0] for how in ("^[a-z]*", r"(\.tar)?\.\w+$"))  # type: ignore[index]
    for one in (f"{above}/{deep}{own}*{suffix}" for own in ("", begin) for deep in ("", "**/")):
        if {*glob.glob(one, recursive=True)} == chosen:
            return one
    return f"{place}/{{{','.join(name.removesuffix(suffix) for name in names)}}}{suffix}"


def _corpus_in(folder: str, part: str) -> Recognized | None:
    """Return the published corpus that a folder is, if its files are there, and its first utterances can be read: the
    part that is wanted, or those for training, or else the first one that is there."""
    found = list[Recognized]()
    for name, card in CORPORA.items():
        with suppress(UioError):
            there = {one for layout in everything(card, folder, {}, PLAIN) for one in layout.choices}
            own = part or next((one for one in card.parts if one in there and not there & {*card.train}), "")
            if there and own in (*there, ""):
                known = recognize(f"{name},part={own}:{folder}" if own else f"{name}:{folder}")
                notes = [f"it is {name}, whose card says how it is read", *([f"its part {own} is read"] if own else [])]
                found += [replace(known, notes=notes)] if _works(known, 0.5) else []
    return found[0] if len(found) == 1 else None


def _works(known: Recognized, lost: float | None = None) -> bool:
    """Return whether some of the first utterances can be read. ``lost``: the share that may fail of what has audio."""
    try:
        seen = inspect(known.pipeline, limit=_LOOKED_AT)
    except UioError:
        return False
    has_audio = seen.fields["wav"] or seen.fields["feat"]
    return bool(seen.utterances) and (lost is None or (bool(has_audio) and seen.failures.total() <= lost * _LOOKED_AT))


# Utterances that the search finds


def _searched(files: Files, listed: Path | None, part: str, by: str = "", quiet: bool = False) -> Recognized | None:
    """Return the utterances of a folder: of the split ``part``, or else those for training, as the list that is
    written, or as rows in memory; None without recordings.

    ``by``: the path of one of the texts that are to be joined, whatever they cover; ``quiet``: only with texts.

    Raises: ListError, which names the two best, if no texts cover 95 % of the recordings, or for a list that is there.
    """
    if not files.recordings:
        files.look_into_archives()
    if not files.recordings:
        return None
    search = Search(files, part)
    found = search.run()
    if by:
        found = [one for one in found if by in (os.path.realpath(text.place) for text in one.of_split())]
        if found and len(found[0].of_split()) == 1:
            found[0].measure_rows()
    elif not found or found[0].cover < ENOUGH:
        search.ask(found)
    if not found and (quiet or by):
        return None
    chosen, notes = search.chosen(found[0] if found else None)
    lines = list(_lines(files, chosen))
    if not lines:
        raise ListError(f"{files.folder} has recordings, but none of the part that is wanted")
    headerless = any("encoding" in line for line in lines)
    notes += ["recordings without a header are read as samples of 16 bits at 16,000 Hz"] * headerless
    inner = sorted({files.recordings[said.recording].archive for said in chosen} - {""})
    archives = [_glob_of(files.folder, inner)] if inner else None
    kind = f"recordings with{'' if found else 'out'} texts"
    place = os.path.abspath(files.folder) if listed is None else entry_of(files.folder, str(listed))
    lines = lines if archives else [line | {"wav": os.path.join(place, line["wav"])} for line in lines]
    if listed is None:
        return Recognized(files.folder, kind, from_table(lines, archives=archives), notes=notes)
    if listed.exists():
        raise ListError(f"{listed} is there already, where the list of the utterances is written: remove it")
    write_lines(listed, (json.dumps(line, ensure_ascii=False) for line in lines))
    if archives or headerless:
        known = begun(str(listed), kind, from_table, Table(str(listed), format="jsonl"), archives=archives)
    else:
        known = begun(str(listed), kind, from_raw_list, str(listed), text="txt" if found else None)
    return replace(known, notes=notes, written=str(listed))


def _lines(files: Files, chosen: Sequence[Spoken]) -> Iterator[dict[str, Any]]:
    """Yield the fields of utterances; a key is the name of the recording, with folders if several are called so."""
    stems = Counter(files.recordings[number].stem for number in {said.recording for said in chosen})
    parts, keys = Counter(said.recording for said in chosen), Counter[str]()
    for said in sorted(chosen, key=lambda one: (one.recording, one.start or 0)):
        recording = files.recordings[said.recording]
        key = recording.stem if stems[recording.stem] == 1 else recording.path.rpartition(".")[0]
        if parts[said.recording] > 1 and said.start is not None:
            key = f"{key}-{round(said.start * 1000):08d}"
        keys[key] += 1
        line: dict[str, Any] = {"key": key if keys[key] == 1 else f"{key}-{keys[key]}", "wav": recording.path}
        times = {} if said.start is None else {"start": said.start, "end": said.end}
        line |= {name: own for name, own in (("txt", said.text), ("speaker", said.speaker)) if own} | times
        if recording.ending in ("pcm", "raw") and not recording.archive and not sniff(recording.place):
            line |= HEADERLESS
        yield line


def found_parts(path: str, allow_pipes: bool, fields: Mapping[str, str] | None) -> Iterator[Recognized]:
    """Yield what there is at a path; of a corpus each part that is there. Raises: ListError, PipelineError."""
    if (corpus := named_corpus(path)) is None:
        whole = None
        with suppress(ListError):
            whole = recognize(path, allow_pipes, fields) if os.path.isdir(path) else None
        yield whole or find_data(path, None, allow_pipes, fields)
        return
    parts = dict(corpus.parts())
    apart = largest(corpus.card, [*parts])
    for part, there in parts.items():
        kind, pipeline = corpus.kind(there, part), reading(corpus.card, there, fields)
        yield Recognized(path, kind, pipeline, held=part not in apart)
