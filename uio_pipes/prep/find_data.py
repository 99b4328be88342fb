"""What ``uio start`` is given: a folder by the files in it, fields by the names that they usually have elsewhere."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.base.urls import is_named
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.formats.advice import guessed, named_otherwise, segment_in, shown
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, seen_in
from uio_pipes.io.access import PLAIN
from uio_pipes.io.files import write_lines
from uio_pipes.io.folders import entry_of
from uio_pipes.io.opening import is_local
from uio_pipes.pipeline import Pipeline
from uio_pipes.prep.reading.data_list import JSONL, RAW, GivenNames, head_of, kind_of, lines_of, objects_of
from uio_pipes.prep.recognize import Recognized, recognize
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT
from uio_pipes.sources.corpora.card import Corpus
from uio_pipes.sources.corpora.finding import find
from uio_pipes.sources.corpora.source import CORPORA, reading
from uio_pipes.sources.parquet.table import SUFFIXES, columns_within

LISTS = ("shards.list", "data.list", "cuts.jsonl.gz", "cuts.jsonl")
TABLES = ("metadata.jsonl", "metadata.csv", "metadata.tsv")  # of datasets' folders of audio
ROWS = (".list", ".jsonl", ".json", ".tsv", ".csv")  # of other lists and tables, which need not be of audio
TEXTS = (".txt", ".lab")  # beside audio files
_BESIDE = ("dev", "test", "val", "eval")  # how the folders of other parts begin, beside that of train
_LOOKED_AT = 4  # utterances
_OF_HUB = re.compile(r"(?:hf://datasets/)?([\w.-]+/[\w-][\w.-]*)/?")


def find_data(data: str, listed: Path, allow_pipes: bool = False, fields: GivenNames = None) -> Recognized:
    """Return what :func:`recognize` does, also of a folder of shards, Parquet or audio files, and with the names that
    fields seem to have there. Of a folder of audio files the raw list ``listed`` is written.

    Raises: ListError for anything else, saying what to do.
    """
    _refuse_names(data)
    path = _within(data, listed, allow_pipes) if os.path.isdir(data) else data
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


def _within(folder: str, listed: Path, allow_pipes: bool) -> str:
    """Return what is to be read of a folder: itself, a list in it, or a glob of its files. Raises: ListError."""
    try:
        recognize(folder, allow_pipes)
    except ListError as error:
        return _files_in(folder, listed, allow_pipes, error)
    return folder


def _files_in(folder: str, listed: Path, allow_pipes: bool, error: ListError) -> str:
    """Return the list in a folder, a glob of its files, or the corpus that it is. Raises: ListError, or ``error``."""
    names = sorted(os.listdir(folder))
    inside = glob.escape(folder.rstrip("/") or "/")
    if listing := _listing(folder):
        return os.path.join(folder, listing)
    if shards := [name for name in names if name.endswith(ARCHIVES)]:
        suffix = next(suffix for suffix in sorted(ARCHIVES, key=len) if shards[0].endswith(suffix))
        return f"{inside}/*{suffix}"
    if parquet := [path.relative_to(folder) for suffix in SUFFIXES for path in Path(folder).rglob(f"*{suffix}")]:
        return f"{inside}/**/{_of_train(parquet)}*{parquet[0].suffix}"
    if parts := [name for name in names if os.path.exists(os.path.join(folder, name, "wav.scp"))]:
        part = "train" if "train" in parts else parts[0]
        one = os.path.join(folder, part)
        raise ListError(f"{folder} has folders of Kaldi's ({', '.join(parts)}): name one, as in uio start {one}")
    if len(corpora := [name for name, card in CORPORA.items() if _has(folder, card)]) == 1:
        return f"{corpora[0]}:{folder}"
    if table := next((name for name in TABLES if name in names), None):
        return os.path.join(folder, table)
    others = [name for name in names if name.endswith(ROWS) and _names_audio(os.path.join(folder, name))]
    if not others and (part := part_of(folder)) != folder:
        return _within(part, listed, allow_pipes)
    if lists := [os.path.join(folder, name) for name in names if _listing(os.path.join(folder, name))]:
        if len(lists) > 1:
            one = os.path.join(lists[0], _listing(lists[0]))
            raise ListError(f"{folder} has folders with lists ({shown(lists)}): name one, as in uio start {one}")
        return os.path.join(lists[0], _listing(lists[0]))
    if others:
        return os.path.join(folder, next((name for name in others if name.startswith("train")), others[0]))
    if lines := [json.dumps(line, ensure_ascii=False) for line in _audio_files(folder, listed)]:
        if listed.exists():
            raise ListError(f"{listed} is there already, where the list of the audio files is written: remove it")
        write_lines(listed, lines)
        return str(listed)
    raise error


def _listing(folder: str) -> str:
    """Return the name of the list in a folder, "" without one."""
    return next((name for name in LISTS if os.path.isfile(os.path.join(folder, name))), "")


def _of_train(paths: list[Path]) -> str:
    """Return how a glob of the training part of these goes on, whose files or folders are named so; "" without one."""
    if any(path.name.startswith("train") for path in paths):
        return "train"
    return "train*/**/" if any(part.startswith("train") for path in paths for part in path.parts) else ""


def part_of(folder: str) -> str:
    """Return the folder of the training part, if this has one beside those of other parts; else this."""
    inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    train = next((name for name in inside if name.lower().startswith("train")), None)
    others = any(name.lower().startswith(_BESIDE) for name in inside)
    return part_of(os.path.join(folder, train)) if train and others else folder


def left_out(folder: str, read: str, listed: Path) -> list[str]:
    """Return what else is in a folder, of which the path or glob ``read`` is read, or the audio files that are in the
    raw list ``listed``; audio apart. [] of anything but a folder, and of a corpus."""
    if not os.path.isdir(folder):
        return []
    root = Path(folder)
    if read == str(listed):
        taken = {path.with_suffix(end) for path in _audio_in(Path(part_of(folder))) for end in TEXTS}
    elif read.startswith((os.path.join(folder, ""), os.path.join(glob.escape(folder), ""))):
        taken = {*map(Path, glob.glob(read, recursive=True) or [read])}
    else:
        return []
    within = {parent for path in taken for parent in path.parents}
    return sorted(str(path.relative_to(root)) for path in _others(root, taken, within))


def _others(folder: Path, taken: set[Path], within: set[Path]) -> Iterator[Path]:
    """Yield what is not ``taken``: a folder as a whole, unless it is one ``within`` which something is."""
    for path in folder.iterdir():
        if path in within:
            yield from _others(path, taken, within)
        elif not (path in taken or path.name.startswith(".") or path.suffix[1:].lower() in AUDIO_SUFFIXES):
            yield path


def _has(folder: str, card: Corpus) -> bool:
    """Return whether a corpus is in a folder: its files are there, and its first rows can be read."""
    try:
        _first(reading(card, find(card, folder, {}, PLAIN), None))
    except (ListError, PipelineError):
        return False
    return True


def _names_audio(path: str) -> bool:
    """Return whether a file is a list or a table whose first utterance has audio."""
    try:
        seen = _first(recognize(path, False, _names_in_file(path) or None).pipeline)
    except (ListError, PipelineError):
        return False
    return any("wav" in sample.fields for sample in seen)


def _first(pipeline: Pipeline, count: int = 1) -> list[Sample]:
    """Return the first utterances that can be read."""
    return list(islice(items_of(pipeline.build(Lane(Ledger(LENIENT)))), count))


def _audio_files(folder: str, listed: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a raw list of all audio files below a folder, each with the text beside it, if any."""
    root = Path(folder)
    place = entry_of(folder, str(listed))
    for path in _audio_in(root):
        name = path.relative_to(root)
        texts = (path.with_suffix(suffix) for suffix in TEXTS)
        said = next((text.read_text("utf-8-sig", "replace").strip() for text in texts if text.is_file()), None)
        line = {"key": str(name.with_suffix("")), "wav": os.path.join(place, name)}
        yield line if said is None else {**line, "txt": said}


def _audio_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix[1:].lower() in AUDIO_SUFFIXES)


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
    first = [sample.fields for sample in _first(pipeline, _LOOKED_AT)]
    told = any("txt" in fields or "messages" in fields for fields in first)
    return [] if told else [seen_in(fields) for fields in first]
