"""What ``uio start`` and ``uio inspect`` are given: data of a known form, those that a folder holds, or the utterances
that the search finds there."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import ListError, UioError
from uio_pipes.base.urls import is_named
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.formats.advice import guessed, named_otherwise, segment_in, shown
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tables.description import Table
from uio_pipes.formats.tar.reader import seen_in
from uio_pipes.io.access import PLAIN
from uio_pipes.io.files import write_lines
from uio_pipes.io.folders import entry_of
from uio_pipes.io.opening import is_local
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT
from uio_pipes.sources.corpora.finding import everything
from uio_pipes.sources.corpora.source import CORPORA
from uio_pipes.sources.lists import from_raw_list
from uio_pipes.sources.parquet.table import SUFFIXES, columns_within
from uio_pipes.sources.table.source import from_table
from uio_pipes.tools.data.corpora import named_corpus
from uio_pipes.tools.data.finding.files import named_in_utf8, split_of
from uio_pipes.tools.data.finding.utterances import Utterances, utterances_in
from uio_pipes.tools.data.reading.data_list import JSONL, RAW, TEXT, GivenNames, head_of, kind_of, lines_of, objects_of
from uio_pipes.tools.data.recognize import SILENT, Recognized, begun, recognize, recognize_parts
from uio_pipes.tools.reports.inspect import inspect

LISTS = ("shards.list", "data.list", "cuts.jsonl.gz", "cuts.jsonl")
_LOOKED_AT = 4  # utterances
_OF_HUB = re.compile(r"(?:hf://datasets/)?([\w.-]+/[\w-][\w.-]*)/?")


@dataclass(frozen=True)
class Found:
    """Data with the pipeline that begins them. ``told``: how they were found, in sentences; ``written``: the list that
    was made of them."""

    known: Recognized
    told: list[str] = field(default_factory=list)
    written: str = ""


def find_data(
    data: str, listed: Path | None = None, allow_pipes: bool = False, fields: GivenNames = None, part: str = ""
) -> Found:
    """Return what :func:`recognize` does, also of a folder, with the names that fields seem to have there. Of
    utterances that the search finds the list ``listed`` is written.

    ``part``: the part of a corpus, or the split of a folder (train, dev, test), that is wanted; "": that for training.

    Raises: ListError for anything else, saying what was seen and what to do.
    """
    named_in_utf8(data)
    _refuse_names(data)
    if (corpus := named_corpus(data)) is not None and part:
        data = data.replace(f":{corpus.folder}", f",part={part}:{corpus.folder}")
    if os.path.isdir(data):
        return _in_folder(data, listed, allow_pipes, fields, part)
    if corpus is not None or fields or not os.path.isfile(data) or is_named(data, (*ARCHIVES, *SUFFIXES)):
        return Found(_named(data, allow_pipes, fields))
    try:
        known = _named(data, allow_pipes, fields)
        lacking = known.kind == TEXT or SILENT[False] in known.kind
        if not lacking and (not known.kind.startswith("table") or _works(known, 0.05)):
            return Found(known)
    except ListError:
        known = None
    joined = _joined_to(data)
    if joined is not None:
        return _listed(joined, listed)
    return Found(_named(data, allow_pipes, fields) if known is None else known)


def _joined_to(text: str) -> Utterances | None:
    """Return the utterances whose texts are in a file, of its folder or the one above; None if it names none."""
    folder, part = Path(text).absolute().parent, split_of(os.path.basename(text))
    for place in (folder, folder.parent):
        if place == folder or (place not in Path.cwd().parents and place not in (Path.cwd(), Path.home())):
            name = str(place) if os.path.isabs(text) else os.path.relpath(place)
            if (found := utterances_in(name, part, str(Path(text).absolute()))) is not None:
                return found
    return None


def _refuse_names(data: str) -> None:
    """Raises: ListError if it is the name of a corpus or a data set, which is not here."""
    if os.path.exists(data):
        return
    if data in CORPORA:
        raise ListError(
            f"{data} is a published corpus: name its folder, too, as in uio start {data}:FOLDER (uio corpora {data} "
            "says what to download)"
        )
    named = _OF_HUB.fullmatch(data)
    if named and not os.path.exists(data.partition("/")[0]) and "." not in os.path.basename(named[1]):
        raise ListError(
            f"there is no {data} here. A data set of the Hugging Face Hub is named by its Parquet files, as in "
            f"uio start 'hf://datasets/{named[1]}/data/train-*.parquet' (pip install huggingface_hub); they are listed "
            f"at https://huggingface.co/datasets/{named[1]}/tree/main"
        )


# A folder


def _in_folder(folder: str, listed: Path | None, allow_pipes: bool, fields: GivenNames, part: str) -> Found:
    """Return the first that can be read: the folder as a whole, a list or Kaldi's tables in it, shards, Parquet files,
    a corpus that has a name, or what the search finds. Raises: ListError."""
    unknown: UioError | None = None
    try:
        known = _named(folder, allow_pipes, fields)
        if not part and (allow_pipes or _works(known)):
            return Found(known)
    except UioError as error:
        unknown = error
        if "save_to_disk" in str(error):
            raise
    names = [str(path.relative_to(folder)) for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    silent: Found | None = None
    for inner in _known_in(folder, names, part):
        if isinstance(inner, ListError):
            unknown = inner
            continue
        try:
            known = _named(inner, allow_pipes, fields)
        except UioError:
            continue
        if _works(known):
            read = Found(known, _not_read(folder, inner, names))
            if known.lacks or SILENT[False] not in known.kind:
                return read
            silent = read
    if corpus := _corpus_in(folder, part):
        return corpus
    found = utterances_in(folder, part)
    if found is not None and (silent is None or any("txt" in line for line in found.lines)):
        return _listed(found, listed)
    if silent is not None:
        return silent
    for name in names:  # lists of what is elsewhere
        if is_named(name, (".list", ".jsonl", ".json", ".tsv", ".csv")) and split_of(name) in ("", part or "train"):
            try:
                known = _named(os.path.join(folder, name), allow_pipes, fields)
            except UioError:
                continue
            if _works(known):
                return Found(known, _not_read(folder, known.path, names))
    if not names:
        raise ListError(f"{folder} is empty")
    raise unknown or ListError(f"{folder} has nothing that can be read as the part {part}")


def _known_in(folder: str, names: Sequence[str], part: str) -> Iterator[str | ListError]:
    """Yield what is to be read of a folder, of those forms that say by names what they are: of the split that is
    wanted; an error of several folders of Kaldi's. Raises: ListError if there are several lists, and nothing else."""
    lists = [name for name in names if os.path.basename(name) in LISTS]
    kaldi = [os.path.dirname(name) for name in names if os.path.basename(name) in ("wav.scp", "feats.scp")]
    several_lists: ListError | None = None
    for several, what in ((lists, "lists"), (list(dict.fromkeys(kaldi)), "Kaldi's tables")):
        some = _of_split(several, part)
        top = min((name.count("/") for name in some), default=0)
        some = [name for name in some if name.count("/") == top]
        folders = {os.path.dirname(name) if what == "lists" else name for name in some}
        if len(folders) > 1:
            one = os.path.join(folder, some[0])
            where = shown(sorted(folders))
            error = ListError(f"{folder} has folders with {what} ({where}): name one, as in uio start {one}")
            if what == "lists":
                several_lists = error
            else:
                yield error
            continue
        some.sort(key=lambda name: LISTS.index(os.path.basename(name)) if what == "lists" else 0)
        yield from (os.path.join(folder, name) for name in some[:1])
    for suffixes in (SUFFIXES, ARCHIVES):
        if some := _of_split([name for name in names if is_named(name, suffixes)], part):
            suffix = next(one for one in sorted(suffixes, key=len, reverse=True) if is_named(some[0], (one,)))
            stems = ",".join(name.removesuffix(suffix) for name in some if name.endswith(suffix))
            yield _glob_of(folder, some) or os.path.join(glob.escape(folder), f"{{{stems}}}{suffix}")
    if several_lists is not None:
        raise several_lists


def _glob_of(folder: str, names: Sequence[str]) -> str:
    """Return a glob of these files and no others, or the path of the only one; "" if there is no plain one."""
    if len(names) == 1:
        return os.path.join(glob.escape(folder), glob.escape(names[0]))
    suffix = next(
        one for one in (*sorted(ARCHIVES, key=len, reverse=True), ".zip", *SUFFIXES, "") if is_named(names[0], one)
    )
    above = os.path.commonpath([os.path.dirname(name) or "." for name in names]).removeprefix(".")
    place = os.path.join(glob.escape(folder), glob.escape(above), "")
    start = _common([os.path.basename(name) for name in names]).removesuffix(suffix)
    begins = ("", *(glob.escape(found[0]) for found in [re.match(r"[a-z]+", start)] if found), glob.escape(start))
    globs = [f"{place}{deep}{begin}*{suffix}" for begin in begins for deep in ("", "**/")]
    globs += [f"{place}**/{split}*/**/*{suffix}" for split in ("train", "dev", "test")]
    chosen = {os.path.join(folder, name) for name in names}
    return next((one for one in globs if {*glob.glob(one, recursive=True)} == chosen), "")


def _common(names: Sequence[str]) -> str:
    """Return how all names begin."""
    first, last = min(names), max(names)
    return first[: next((at for at, one in enumerate(first) if one != last[at : at + 1]), len(first))]


def _of_split(names: Sequence[str], part: str) -> list[str]:
    """Return the paths of the split that is wanted: the named one, or that of training, or else what is in none."""
    splits = [split_of(*reversed(name.split("/"))) for name in names]
    wanted = part or next((split for split in ("train", "", "dev", "test") if split in splits), "")
    return [name for name, split in zip(names, splits, strict=True) if split == wanted]


def _not_read(folder: str, read: str, names: Sequence[str]) -> list[str]:
    """Return the sentence on what else is in a folder, recordings apart; [] if nothing is."""
    taken = [os.path.relpath(path, folder) for path in ([read] if os.path.exists(read) else expand(read, PLAIN))]
    others = [name for name in names if name.rpartition(".")[2].lower() not in AUDIO]
    for depth in range(1, 1 + min(name.count("/") + 1 for name in taken)):
        above = {"/".join(name.split("/")[:depth]) for name in taken}
        if beside := {"/".join(name.split("/")[:depth]) for name in others} - above:
            return [f"{read} is read, and not {shown(sorted(beside))}"]
    return []


def _corpus_in(folder: str, part: str) -> Found | None:
    """Return the published corpus that a folder is, if its files are there, and its first utterances can be read: the
    part that is wanted, or those for training, or else the first one that is there."""
    found = list[Found]()
    for name, card in CORPORA.items():
        try:
            there = {one for layout in everything(card, folder, {}, PLAIN) for one in layout.choices}
            if not there or (part and part not in there):
                continue
            own = part or ("" if there & {*card.train} else next(one for one in card.parts if one in there))
            known = recognize(f"{name},part={own}:{folder}" if own else f"{name}:{folder}")
            told = [f"it is {name}, whose card says how it is read", *([f"its part {own} is read"] if own else [])]
            found += [Found(known, told)] if _works(known, 0.5) else []
        except UioError:
            continue
    return found[0] if len(found) == 1 else None


def _works(known: Recognized, lost: float | None = None) -> bool:
    """Return whether some of the first utterances can be read. ``lost``: the share that may fail of what has audio."""
    try:
        seen = inspect(known.pipeline, limit=_LOOKED_AT if lost is None else 20)
    except UioError:
        return False
    heard = seen.fields["wav"] or seen.fields["feat"]
    return bool(seen.utterances) and (lost is None or (bool(heard) and seen.failures.total() <= lost * 20))


def _listed(found: Utterances, listed: Path | None) -> Found:
    """Return utterances as a pipeline: of the list that is written, or of rows in memory.

    Raises: ListError if there is such a list already.
    """
    if not found.lines:
        raise ListError(f"{found.folder} has recordings, but none of the part that is wanted")
    archives = [os.path.join(found.folder, name) for name in found.archives]
    if len(archives) > 1 and (every := _glob_of(found.folder, found.archives)):
        archives = [every]
    kind = "recordings with their texts" if any("txt" in line for line in found.lines) else "recordings without texts"
    if listed is None:
        rows = [{**line, "wav": line["wav"] if archives else os.path.join(os.path.abspath(found.folder), line["wav"])}
                for line in found.lines]  # fmt: skip
        known = Recognized(found.folder, kind, from_table(rows, archives=archives or None))
        return Found(known, found.told)
    if listed.exists():
        raise ListError(f"{listed} is there already, where the list of the utterances is written: remove it")
    place = entry_of(found.folder, str(listed))
    lines = ({**line, "wav": line["wav"] if archives else os.path.join(place, line["wav"])} for line in found.lines)
    write_lines(listed, (json.dumps(line, ensure_ascii=False) for line in lines))
    if archives or any("encoding" in line for line in found.lines):
        known = begun(str(listed), kind, from_table, Table(str(listed), format="jsonl"), archives=archives or None)
    else:
        known = begun(str(listed), kind, from_raw_list, str(listed), text="txt" if "with t" in kind else None)
    return Found(replace(known, path=str(listed)), found.told, str(listed))


# The names of fields


def _named(path: str, allow_pipes: bool, fields: GivenNames) -> Recognized:
    """Return data with the names that their fields seem to have. Raises: ListError."""
    given = dict(fields or {})
    free = ((ours, theirs) for ours, theirs in _names_in_file(path).items() if theirs not in given.values())
    names = {ours: theirs for ours, theirs in free if ours not in given}
    known = recognize(path, allow_pipes, names | given or None)
    seen = [] if "txt" in names | given else _without_text(known.pipeline)
    if seen and (text := guessed(seen, ("txt",))):
        names |= text
        known = recognize(path, allow_pipes, names | given)
    told = "".join(f", {theirs} taken as {ours}" for ours, theirs in names.items())
    return replace(known, kind=known.kind + told)


def _names_in_file(path: str) -> dict[str, str]:
    """Return our names of fields with those that they seem to have in Parquet files or in lines of JSON."""
    if is_named(path, SUFFIXES):
        there = columns_within((path,), PLAIN)
        lacking = [ours for ours, usual in (("wav", "audio"), ("txt", "text")) if not {ours, usual, "feat"} & {*there}]
        return _with_segment(guessed([there], lacking), there)
    local = is_local(path)
    if local is None or not os.path.isfile(local) or is_named(path, ARCHIVES):
        return {}
    lines = lines_of(head_of(path))
    if not lines or not lines[0].startswith("{") or kind_of(lines, None) not in ("", JSONL, RAW):
        return {}
    return _with_segment(guessed(objects := objects_of(lines)), objects[0])


def _with_segment(found: dict[str, str], there: Collection[str]) -> dict[str, str]:
    """Return names of fields with those of start and end, if audio has these by other names."""
    segment = segment_in(there) if {"wav", "audio"} & {*found, *there} else {}
    return found | {ours: theirs for ours, theirs in segment.items() if ours != theirs and "end" in segment}


def text_elsewhere(pipeline: Pipeline) -> str:
    """Return the sentence that the first utterances have no text, and what seems to be it: a field, or one of their
    JSON; "" if nothing does, or one of them has a text."""
    seen = _without_text(pipeline)
    found = bool(seen) and guessed(seen, ("txt",))
    return f"the utterances have no txt: {named_otherwise('txt', seen[0], others=seen[1:])}" if found else ""


def _without_text(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return what advice can name of the first utterances, [] if one of them has a text."""
    first = [dict(sample.fields) for sample in islice(items_of(pipeline.build(Lane(Ledger(LENIENT)))), _LOOKED_AT)]
    told = any("txt" in fields or "messages" in fields for fields in first)
    return [] if told else [seen_in(fields) for fields in first]


def found_parts(path: str, allow_pipes: bool, fields: Mapping[str, str] | None) -> Iterator[Found]:
    """Yield what there is at a path; of a corpus each part that is there, of a folder of recordings its utterances.

    Raises: ListError, PipelineError.
    """
    try:
        yield from [Found(one) for one in recognize_parts(path, allow_pipes, fields)]
    except ListError:
        if not os.path.isdir(path):
            raise
        yield find_data(path, None, allow_pipes, fields)
