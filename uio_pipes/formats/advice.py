"""What to write where data lack the names that were asked for: what is there, and the line that reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from uio_pipes.base.checks import in_words, nearest
from uio_pipes.base.errors import PipelineError
from uio_pipes.formats.expressions import compiled, lookup

USUAL = {  # what fields are called elsewhere, by ours
    "key": ("id", "utt", "utt_id", "utterance_id", "uttid", "utterance", "audio_id", "name", "__key__"),
    "wav": (
        "audio", "audio_filepath", "audio_path", "path", "file", "filename", "file_path", "speech", "recording", "flac",
        "file_name", "mp3", "source", "snd", "sound",
    ),
    "txt": (
        "text", "sentence", "transcript", "transcription", "normalized_text", "raw_text", "target", "trans", "words",
        "ref", "content", "lab", "trn",
    ),
    "sample_rate": ("sampling_rate", "rate", "sr"),
}  # fmt: skip
OURS = frozenset(["key", "wav", "feat", "txt", "duration", "start", "end", "speaker", "sample_rate", "label"])
_SEGMENT = (  # what places an utterance in a recording, by ours; a later one goes before
    ("start", "start_time"), ("start", "begin_time"), ("start", "start"), ("end", "end_time"), ("end", "end"),
    ("duration", "duration"), ("speaker", "speaker"),
)  # fmt: skip
SHOWN = 12  # names in a message
_MISSPELT = 0.85  # how near a name is to the one that was asked for if that is only misspelt
_OPTIONAL = frozenset(["speaker", "label"])  # of ours: '' can stand for one that is not there
_AUDIO_FILE = re.compile(
    r".*\.(?:wav|flac|mp3|m4a|ogg|opus|wma|aac|sph|aiff|amr|pcm|raw|webm|mp4)(?:\?.*)?|/\S*/\S+|\w+://\S+", re.I
)


def names_file(text: str) -> bool:
    """Return whether a text is the path of an audio file, or an absolute path or a URL."""
    return _AUDIO_FILE.fullmatch(text.strip().strip('"')) is not None


def looks_like_audio(value: Any) -> bool:
    """Return whether this is the path or the bytes of audio, ``{bytes, path}``, ``{array, sampling_rate}``, or a list
    of samples."""
    if isinstance(value, Mapping):
        return "bytes" in value or {*value} == {"path"} or {"array", "sampling_rate"} <= {*value}
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], float)
    return isinstance(value, bytes) or (isinstance(value, str) and names_file(value))


def leaves(there: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Return the fields, and in the place of objects and lists what is in them, by the names that ``fields`` takes: of
    a list its first item, and of audio the path if that is all it has."""
    found = dict[str, Any]()
    for name, value in there.items():
        if isinstance(value, list) and value and isinstance(value[0], str | Mapping | None):
            found |= leaves({"0": value[0]}, f"{parent}{name}.")
        elif isinstance(value, Mapping) and value and (_only_path(value) or not looks_like_audio(value)):
            found |= leaves(value, f"{parent}{name}.")
        else:
            found[f"{parent}{name}"] = value
    return found


def _only_path(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("path"), str) and value.get("bytes") is None and value.get("array") is None


def shown(names: Collection[str]) -> str:
    """Return some names for a message."""
    return ", ".join(islice(map(str, names), SHOWN)) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def usual_of(ours: str, others: Collection[str]) -> str | None:
    """Return which of the ``others`` is a name that this field of ours usually has elsewhere."""
    lower = {name.lower(): name for name in others}
    return next((lower[name] for name in USUAL.get(ours, ()) if name in lower), None)


def segment_in(names: Collection[str], given: Collection[str] = ()) -> dict[str, str]:
    """Return our names of speaker, start and end with those that they have among ``names``; no start without an end, or
    a duration in its place, and none of these without a start: it would be another segment.

    ``given``: our names of what is known already, which stays out.
    """
    found = {ours: theirs for ours, theirs in _SEGMENT if theirs in names and ours not in given}
    known = {*found, *given}
    whole = {"start", "end"} if "end" in known else {"start", "duration"}
    return {ours: theirs for ours, theirs in found.items() if ours == "speaker" or (ours in whole and whole <= known)}


def named_otherwise(
    ours: str,
    there: Collection[str],
    *also: str,
    given: Mapping[str, str] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the end of a message about a lacking field: what fields are there, and how to name the one that is meant.

    Args:
        ours: our name of the field that is lacking.
        there: the fields that are there, with their values, or the names alone.
        also: other fields of ours that are lacking.
        given: what ``fields`` says already, which the line repeats.
        others: as for :func:`instead`.
    """
    told = instead(there, dict.fromkeys((ours, *also), ""), given, others=others)
    return f"it has {shown(there) or 'no fields'}" + (told and f"; {told}")


def lacking_in_sample(ours: str, there: Mapping[str, Any]) -> str:
    """Return the same of a sample, whose source may have renamed some fields by its ``fields``."""
    told = instead(there, {ours: ""}, None, ("wav", "txt"))
    return f"it has {shown(there)}" + (told and f"; {told}, beside what fields says already")


def no_column(ours: str, theirs: str, there: Collection[str], given: Mapping[str, str]) -> str:
    """Return what to say of a column ``theirs`` that ``fields``, with all that is ``given``, names for ``ours``, and
    that is not ``there``."""
    column = theirs.partition(".")[0]
    what = f"no column {column!r}" if ours in there else f"no column {column!r} for {ours}"
    lacking = {own: name for own, text in given.items() if (name := absent(text, there))}
    return f"{what}: it has {shown(there)}; {instead(there, lacking | {ours: theirs}, given, ('wav', 'txt'))}"


def absent(text: str, there: Collection[str]) -> str:
    """Return the first name in an expression that leads to none of the columns that are there; "" if all do, or if it
    can do without: ``spk or ''``."""
    names = compiled(text).names
    read = {name: "0" for name in names if name in there or name.partition(".")[0] in there}
    return "" if compiled(text).tried(read) is not None else next((name for name in names if name not in read), "")


def instead(
    there: Collection[str],
    lacking: Mapping[str, str],
    given: Mapping[str, str] | None = None,
    needed: Collection[str] = (),
    closed: bool = False,
    others: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return what to write for fields that are lacking: a whole line, which works as it is; "" if nothing can be said.

    Args:
        there: the fields that are there, with their values, or the names alone.
        lacking: our names of the lacking fields, each with the name that ``fields`` asks for, or "" if only this
            utterance lacks what is ``given``.
        given: all that ``fields`` says; what is not lacking is repeated.
        needed: fields of ours that the source needs: named, too, if they have another name.
        closed: whether fields that the line does not name are left out, even those that have our names.
        others: more records, of which some may have other names.
    """
    values = there if isinstance(there, Mapping) else dict.fromkeys(there)
    records, given = [values, *others], given or {}
    line = {ours: theirs for ours, theirs in given.items() if ours not in lacking}
    found, unknown, own, swapped = list[str](), list[str](), list[str](), list[str]()
    for ours, asked in lacking.items():
        text = given.get(ours, asked)
        if asked in OURS and ours in values and ours not in OURS:  # as rename_columns of datasets, the old name first
            line[asked] = ours
            swapped.append(ours)
        elif asked and ours in values and text == asked != ours and not nearest(asked, {*values} - OURS, _MISSPELT):
            own.append(ours)
        elif theirs := (
            ours if ours in values and text != asked else meant_in(records, ours, asked, line.values())
        ):  # fmt: skip
            rarely = text and not asked and compiled(text).tried(values) is None  # others have it
            line[ours] = f"{text} or {theirs}" if rarely else _replaced(text, asked, theirs)
            found.append(theirs + _others_like(ours, theirs, values))
        else:
            unknown.append(ours)
    for ours in needed:
        if ours not in {*line, *values, *lacking} and (theirs := meant_in(records, ours, "", line.values())):
            line[ours] = theirs
    line |= _rate(line, values)
    if closed:
        line = {**{ours: ours for ours in [*own, *needed] if ours in values}, **line} if line else {}
        line |= segment_in(values, {*line, *lacking}) if line else {}
    return _told(line, found, unknown, own, swapped, values, given)


def _others_like(ours: str, theirs: str, there: Mapping[str, Any]) -> str:
    """Return which other fields may be the audio."""
    names = [name for name in there if name not in {theirs, *OURS}] if ours == "wav" and theirs in there else []
    others = [name for name in names if _is_audio(there, name)]
    return f" (or {shown(others)})" if others else ""


def _told(
    line: dict[str, str], found: list[str], unknown: list[str], own: list[str], swapped: list[str],
    values: Mapping[str, Any], given: Mapping[str, str],
) -> str:  # fmt: skip
    if absent := [ours for ours in unknown if ours in OURS - _OPTIONAL or ours not in given]:
        if not {*values} - OURS:
            return ""
        beside = f", beside {_line(line)}" if line else ""
        return f"say by fields which of them is {in_words(absent)}{beside}"
    line |= {ours: f"{given[ours]} or ''" for ours in unknown}
    if own:
        what = f"{in_words(own)} {'is' if len(own) == 1 else 'are'} there under our name"
        return f"{what}: write {_line(line)}" if line else f"{what}: leave fields out"
    if swapped:
        return f"our name comes first, write {_line(line)}"
    if unknown:
        return f"if others have it, write {_line(line)}"
    return f"if {in_words(found)} {'is' if len(found) == 1 else 'are'} meant, write {_line(line)}"


def _line(fields: Mapping[str, str]) -> str:
    return f"fields={json.dumps(fields, ensure_ascii=False)}"


def _replaced(text: str, asked: str, theirs: str) -> str:
    """Return an expression with a name in it replaced."""
    if not asked or text == asked or compiled(text).plain or "{" in theirs:
        return theirs
    return re.sub(rf"(?<![\w.:]){re.escape(asked)}(?![\w])", lambda _: theirs, text)


def guessed(records: Sequence[Mapping[str, Any]], wanted: Collection[str] = ("key", "wav", "txt")) -> dict[str, str]:
    """Return our names of the fields ``wanted`` that the first records have by other names, with these; audio must look
    like it."""
    line, values = dict[str, str](), leaves(records[0])
    for ours in wanted:
        theirs = meant_in(records, ours, "", line.values(), ours in records[0])
        heard = values.get(theirs.partition(" or ")[0])
        if theirs not in ("", ours) and (ours != "wav" or heard is None or looks_like_audio(heard)):
            line[ours] = theirs
    return line | _rate(line, records[0])


def _rate(line: Mapping[str, str], there: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the sample rate, if the audio is samples, which need one."""
    samples = isinstance(lookup(there, line.get("wav", "")), list) and "sample_rate" not in {*there, *line}
    return {"sample_rate": rate} if samples and (rate := meant("sample_rate", there)) else {}


def meant_in(
    records: Sequence[Mapping[str, Any]], ours: str, asked: str = "", taken: Collection[str] = (), own: bool = False
) -> str:
    """Return what :func:`meant` does, for records of which some have other names: ``sentence or text``; "" if nothing.

    ``own``: whether the first of them has it under our name; others may in any case.
    """
    found = list[str]()
    for number, record in enumerate(records):
        if not any(compiled(one).tried(record) is not None for one in found):
            first = own if not number else ours in record
            one = ours if first else meant(ours, record, asked, taken, records)
            found += [one] if one and one not in found else []
    return " or ".join(found)


def meant(
    ours: str,
    there: Mapping[str, Any],
    asked: str = "",
    taken: Collection[str] = (),
    records: Sequence[Mapping[str, Any]] = (),
) -> str | None:
    """Return which field is probably meant: the one whose name was only misspelt, else one with a usual name, else one
    with a name near the one that was asked for, else, for audio, the first that looks like it; None if nothing shows
    it. A key differs from one of the ``records`` to the next: it can be the name of the audio file."""
    within, values = within_reach(there, asked), leaves(there)
    others = {*OURS, asked, *(taken if ours in USUAL else ())}
    names = {tail: name for tail, name in within.items() if name not in others and _fits(ours, name, values)}
    audio = {tail: name for tail, name in names.items() if _is_audio(values, name)}
    if ours == "wav":
        objects = {name: name for name, value in there.items() if isinstance(value, Mapping) and not _only_path(value)}
        if whole := nearest(asked, {**objects, **names}, _MISSPELT):  # as one of Lhotse's recordings
            return (objects | names)[whole]
        names = audio or names
    elif ours in USUAL:
        names = {tail: name for tail, name in names.items() if tail not in audio} or names
    if ours == "key":
        return _key(there, asked, names, audio, records)
    if theirs := _nearest(ours, asked, names):
        return theirs if ours in USUAL else re.sub(r"(\.\d+)+$", "", theirs)
    if audio and ours == "wav":
        return next(iter(audio.values()))
    return meant(ours, there, "", taken) if asked and ours in USUAL and within.keys() != there.keys() else None


def _nearest(ours: str, asked: str, names: Mapping[str, str]) -> str | None:
    last = re.split(r"[.:]", asked or ours)[-1]
    tail = (nearest(last, names, _MISSPELT) if asked else None) or usual_of(ours, names) or nearest(last, names)
    return None if tail is None else names[tail]


def _key(
    there: Mapping[str, Any],
    asked: str,
    names: Mapping[str, str],
    audio: Mapping[str, str],
    records: Sequence[Mapping[str, Any]],
) -> str | None:
    """Return what can be the key: a field that differs, else the name of the audio file without its suffix, or all of
    it."""
    named = {tail: name for tail, name in names.items() if tail not in audio}
    path = _nearest("key", asked, audio) or ("wav" if "wav" in there else meant("wav", there) or "")
    of_path = [f"{path} | stem", path] if isinstance(leaves(there).get(path), str) else []
    different = _nearest("key", asked, {tail: name for tail, name in named.items() if _distinct(name, records)})
    ways = [way for way in (different, *of_path) if way and _distinct(way, records)]
    return next(iter([*ways, _nearest("key", asked, named), *of_path]), None)


def _fits(ours: str, name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a field can be ours, and be named."""
    value = values.get(name)
    try:
        compiled(name)
    except PipelineError:
        return False
    if isinstance(value, str):
        return bool(value.strip())
    return ours not in ("wav", "txt") or not isinstance(value, (int, float))


def _is_audio(values: Mapping[str, Any], name: str) -> bool:
    """Return whether a field looks like audio; one of samples needs a rate beside it."""
    rated = not isinstance(values.get(name), list) or "sample_rate" in values or usual_of("sample_rate", values)
    return bool(rated) and looks_like_audio(values.get(name))


def _distinct(theirs: str, records: Sequence[Mapping[str, Any]]) -> bool:
    values = [value for record in records if (value := compiled(theirs).tried(record)) is not None]
    return len(values) == len({*map(str, values)})


def within_reach(there: Mapping[str, Any], asked: str) -> dict[str, str]:
    """Return the fields among which the name that was asked for leads, by the last parts of their names: those of the
    same object or of the same member of a shard; else all, those within objects last."""
    parent = asked.rpartition(".")[0]
    if parent and isinstance(inner := lookup(there, parent), Mapping):
        return dict(_by_last_part(leaves(inner, f"{parent}.")))
    member = asked.partition(":")[0] + ":"
    near = {name: there[name] for name in there if ":" in asked and name.startswith(member)} or there
    found = {name: name for name in near if ":" not in name and not _has_leaves(near[name])}
    for last, name in _by_last_part(leaves(near)):
        found.setdefault(last, name)
    return found


def _has_leaves(value: Any) -> bool:
    return {""} != {*leaves({"": value})}


def _by_last_part(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the last part of each name, which is no number: ``texts`` of ``info.texts.0``."""
    return ((re.split(r"[.:]", re.sub(r"(\.\d+)+$", "", name))[-1], name) for name in names)
