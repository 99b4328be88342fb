"""What the search found as utterances: lines of a list, and the sentence with numbers on how they were joined."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from uio_pipes.audio.containers import sniff
from uio_pipes.audio.length import audio_info
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import counted
from uio_pipes.tools.data.finding.files import Files, files_below, look_into_archives
from uio_pipes.tools.data.finding.search import ENOUGH, Candidate, Search, Spoken

HEADERLESS = {"encoding": "s16le", "sample_rate": 16_000}  # as which samples without a header are read


@dataclass
class Utterances:
    """Utterances of a folder, each as the fields of a line of a list, with ``wav`` from ``folder``, or in ``archives``.

    ``told``: how they were found, in sentences.
    """

    folder: str
    lines: list[dict[str, Any]]
    archives: list[str]
    told: list[str] = field(default_factory=list)


def utterances_in(folder: str, part: str = "", by: str = "") -> Utterances | None:
    """Return the utterances of a folder: of the split ``part``, or else those for training; None without recordings.

    ``by``: the path of one of the texts that are to be joined, whatever they cover.

    Raises: ListError, which names the two best, if no texts cover 95 % of the recordings.
    """
    files = files_below(folder)
    if not files.recordings:
        look_into_archives(files)
    if not files.recordings:
        return None
    search = Search(files, part)
    found = search.run()
    if by:
        found = [one for one in found if any(os.path.abspath(os.path.join(folder, t.path)) == by for t in one.texts)][
            :1
        ]
        if not found:
            return None
        if len(found[0].texts) == 1:
            search.measure_rows(found[0])
    elif not found or found[0].cover < ENOUGH:
        _ask(folder, found, search)
    return _made(files, search, found[0] if found else None)


def _ask(folder: str, found: list[Candidate], search: Search) -> None:
    """Raises: ListError if there are texts, and none that are surely those of the recordings."""
    if found:
        best = [f"uio start {os.path.join(folder, one.texts[0].path)} ({_numbers(one)})" for one in found[:2]]
        least = f"{ENOUGH:.0%}".replace("%", " %")
        raise ListError(
            f"{folder}: no texts cover {least} of the recordings. Name the one to take: {', or '.join(best)}"
        )
    if others := sorted(split for split in search.there if split not in ("", search.wanted)):
        wanted = search.wanted or "what is in no split"
        raise ListError(
            f"{folder}: {wanted} has no texts that are known, and {' and '.join(others)} "
            f"{'have' if len(others) > 1 else 'has'}: uio start {folder} --part {others[0]} reads these"
        )
    if search.unread:
        text = search.unread[0]
        raise ListError(
            f"{folder}: {counted(len(search.unread), 'text')} like {text.path} name recordings, but in a form that "
            f"is not known ({text.text(200)[:60]!r}): write one file with KEY TEXT a line, or the text alone in each"
        )
    count = search.splits.count(search.wanted)
    for text in search.silent:
        lines = text.text(1 << 20).count("\n") if text.size < 1 << 30 else 0
        if count > 1 and count <= 2 * lines and text.archive == "":
            raise ListError(
                f"{folder} has {counted(count, 'recording')} and {text.path} with {lines:,} lines, but none of its "
                f"columns names the recordings ({text.text(200).splitlines()[0][:60]!r}): write the name of the "
                "recording before each text, as in KEY TEXT"
            )


def _made(files: Files, search: Search, best: Candidate | None) -> Utterances:
    recordings, wanted = files.recordings, search.wanted
    if best is None:
        chosen = [Spoken(number, "", split) for number, split in enumerate(search.splits) if split == wanted]
        told = [f"none of {counted(len(chosen), 'recording')} has a text that is known"]
        if words := _labels([recordings[said.recording].path for said in chosen]) if search.listed else []:
            chosen = [said._replace(text=word) for said, word in zip(chosen, words, strict=True) if word]
            told = ["the text of a recording is the name of its folder, as in Speech Commands"]
    else:
        chosen = list({(said.recording, said.start, said.speaker): said for said in reversed(best.spoken)
                       if said.split == wanted}.values())[::-1]  # fmt: skip
        told = [_numbers(best)]
    chosen = _in_seconds(files, chosen)
    archives = sorted({recordings[said.recording].archive for said in chosen} - {""})
    others = Counter(search.splits) + Counter(s.split for s in (best.spoken if best else ()) if s.split != wanted)
    there = [split for split in ("train", "dev", "test") if others[split] and split != wanted]
    if there:
        told.append(f"{wanted or 'what is in no split'} is read, and not {' or '.join(there)} (--part {there[0]})")
    if wanted in there or (not wanted and not there):
        told = told[:1]
    lines = list(_lines(files, chosen))
    if any("encoding" in line for line in lines):
        told.append("recordings without a header are read as samples of 16 bits at 16,000 Hz")
    return Utterances(files.folder, lines, archives, told)


def _in_seconds(files: Files, chosen: list[Spoken]) -> list[Spoken]:
    """Return utterances with times that were in milliseconds in seconds: the last end is far behind its recording's."""
    last = max((said for said in chosen if said.end), key=lambda said: said.end or 0, default=None)
    if last is None or last.end is None or last.end < 100 or files.recordings[last.recording].archive:
        return chosen
    info = None
    with suppress(DataError, OSError):
        info = audio_info(os.path.abspath(os.path.join(files.folder, files.recordings[last.recording].path)), {})
    if info is None or last.end < 20 * info.samples / info.sample_rate:
        return chosen
    return [said._replace(start=said.start / 1000, end=said.end / 1000) if said.start is not None and said.end else said
            for said in chosen]  # fmt: skip


def _labels(paths: list[str]) -> list[str]:
    """Return the names of the folders of recordings, if these are words, each of several recordings."""
    words = [path.split("/")[-2] if "/" in path else "" for path in paths]
    plain = [word for word in words if word and word[0] not in "_."]
    several = 1 < len({*plain}) < len(plain) or len({*plain}) > 1
    return [word if word[:1] not in "_." else "" for word in words] if several and all(map(str.isalpha, plain)) else []


def _lines(files: Files, chosen: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Yield the fields of utterances; a key is the name of the recording, with folders if several are called so."""
    stems = Counter(files.recordings[number].stem for number in {said.recording for said in chosen})
    parts = Counter(said.recording for said in chosen)
    keys = Counter[str]()
    for said in sorted(chosen, key=lambda one: (one.recording, one.start or 0)):
        recording = files.recordings[said.recording]
        key = recording.stem if stems[recording.stem] == 1 else recording.path.rpartition(".")[0]
        if parts[said.recording] > 1 and said.start is not None:
            key = f"{key}-{round(said.start * 1000):08d}"
        keys[key] += 1
        line: dict[str, Any] = {"key": key if keys[key] == 1 else f"{key}-{keys[key]}", "wav": recording.path}
        if said.text:
            line["txt"] = said.text
        if said.start is not None:
            line |= {"start": said.start, "end": said.end}
        if said.speaker:
            line["speaker"] = said.speaker
        if recording.path.lower().endswith((".pcm", ".raw")) and not recording.archive:
            line |= {} if sniff(os.path.join(files.folder, recording.path)) else HEADERLESS
        yield line


def _numbers(one: Candidate) -> str:
    """Return what texts cover, in a sentence."""
    lost = one.wanted - one.covered
    none = f"; {lost:,} {'has' if lost == 1 else 'have'} none" if lost > 0 else ""
    if one.of_rows:
        name = "names" if one.wanted == 1 else "name"
        return f"{one.covered:,} of {counted(one.wanted, 'row')} {name} a recording by {one}"
    return f"{one.covered:,} of {counted(one.wanted, 'recording')} have a text by {one}{none}"
