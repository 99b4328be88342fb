"""What to write where data lack the names that were asked for: what is there, and the line that reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from uio_pipes.base.checks import in_words, nearest
from uio_pipes.formats.expressions import compiled, lookup

USUAL = {  # what fields are called elsewhere, by ours
    "key": ("id", "utt", "utt_id", "utterance_id", "uttid", "utterance", "audio_id", "name", "__key__"),
    "wav": (
        "audio", "audio_filepath", "audio_path", "path", "file", "filename", "file_path", "speech", "recording", "flac",
        "file_name", "mp3", "source",
    ),
    "txt": (
        "text", "sentence", "transcript", "transcription", "normalized_text", "raw_text", "target", "trans", "words",
        "ref", "content",
    ),
}  # fmt: skip
OURS = frozenset(["key", "wav", "feat", "txt", "duration", "start", "end", "speaker", "sample_rate", "label"])
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
    """Return whether this is the path or the bytes of audio, or ``{bytes, path}`` or ``{array, sampling_rate}``."""
    if isinstance(value, Mapping):
        return "bytes" in value or {*value} == {"path"} or {"array", "sampling_rate"} <= {*value}
    return isinstance(value, bytes) or (isinstance(value, str) and names_file(value))


def shown(names: Collection[str]) -> str:
    """Return some names for a message."""
    return ", ".join(islice(map(str, names), SHOWN)) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def usual_of(ours: str, others: Collection[str]) -> str | None:
    """Return which of the ``others`` is a name that this field of ours usually has elsewhere."""
    lower = {name.lower(): name for name in others}
    return next((lower[name] for name in USUAL.get(ours, ()) if name in lower), None)


def named_otherwise(ours: str, there: Collection[str], *also: str, given: Mapping[str, str] | None = None) -> str:
    """Return the end of a message about a lacking field: what fields are there, and how to name the one that is meant.

    Args:
        ours: our name of the field that is lacking.
        there: the fields that are there, with their values, or the names alone.
        also: other fields of ours that are lacking.
        given: what ``fields`` says already, which the line repeats.
    """
    told = instead(there, dict.fromkeys((ours, *also), ""), given)
    return f"it has {shown(there) or 'no fields'}" + (told and f"; {told}")


def lacking_in_sample(ours: str, there: Mapping[str, Any]) -> str:
    """Return the same of a sample, whose source may have renamed some fields by its ``fields``."""
    told = instead(there, {ours: ""}, None, ("wav", "txt"))
    return f"it has {shown(there)}" + (told and f"; {told}, beside what fields says already")


def no_column(ours: str, theirs: str, there: Collection[str], given: Mapping[str, str] | None = None) -> str:
    """Return what to say of a column ``theirs`` that ``fields``, with all that is ``given``, names for ``ours``, and
    that is not ``there``."""
    what = f"no column {theirs!r}" if ours in there else f"no column {theirs!r} for {ours}"
    return f"{what}: it has {shown(there)}; {instead(there, {ours: theirs}, given, ('wav', 'txt'))}"


def instead(
    there: Collection[str],
    lacking: Mapping[str, str],
    given: Mapping[str, str] | None = None,
    needed: Collection[str] = (),
    closed: bool = False,
) -> str:
    """Return what to write for fields that are lacking: a whole line, which works as it is; "" if nothing can be said.

    Args:
        there: the fields that are there, with their values, or the names alone.
        lacking: our names of the lacking fields, each with the name that ``fields`` asks for, or "".
        given: all that ``fields`` says; what is not lacking is repeated.
        needed: fields of ours that the source needs: named, too, if they have another name.
        closed: whether fields that the line does not name are left out, even those that have our names.
    """
    values = there if isinstance(there, Mapping) else dict.fromkeys(there)
    line = {ours: theirs for ours, theirs in (given or {}).items() if ours not in lacking}
    found, unknown, own, swapped = list[str](), list[str](), list[str](), list[str]()
    for ours, asked in lacking.items():
        text = (given or {}).get(ours, asked)
        if asked in OURS and ours in values and ours not in OURS:  # as rename_columns of datasets, the old name first
            line[asked] = ours
            swapped.append(ours)
        elif asked and ours in values and text == asked != ours and not nearest(asked, {*values} - OURS, _MISSPELT):
            own.append(ours)
        elif (
            theirs := ours if ours in values and asked and text != asked else meant(ours, values, asked, line.values())
        ):
            line[ours] = _replaced(text, asked, theirs)
            found.append(theirs)
        else:
            unknown.append(ours)
    for ours in needed:
        if ours not in {*line, *values, *lacking} and (theirs := meant(ours, values, "", line.values())):
            line[ours] = theirs
    if closed:
        line = {**{ours: ours for ours in [*own, *needed] if ours in values}, **line} if line else {}
    return _told(line, found, unknown, own, swapped, values, given or {})


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
    if not asked or text == asked or compiled(text).plain:
        return theirs
    return re.sub(rf"(?<![\w.:]){re.escape(asked)}(?![\w])", lambda _: theirs, text)


def meant(ours: str, there: Mapping[str, Any], asked: str = "", taken: Collection[str] = ()) -> str | None:
    """Return which field is probably meant: the one whose name was only misspelt, else one with a usual name, else one
    with a name near the one that was asked for, else, for audio, the only one that looks like it; None if nothing shows
    it."""
    within = within_reach(there, asked)
    taken = taken if ours in USUAL else ()
    free = {tail: name for tail, name in within.items() if name not in {*taken, asked} and name not in OURS}
    names = {tail: name for tail, name in free.items() if not _is_blank(lookup(there, name))}
    audio = {}
    if ours == "wav":
        audio = {name: name for name in there if name not in {*taken, *OURS} and looks_like_audio(there[name])}
        names = audio or names
    elif ours in USUAL:
        names = {tail: name for tail, name in names.items() if not looks_like_audio(there.get(name))} or names
    last = re.split(r"[.:]", asked or ours)[-1]
    tail = (nearest(last, names, _MISSPELT) if asked else None) or usual_of(ours, names) or nearest(last, names)
    if tail is None and len(audio) == 1:
        tail = next(iter(audio))
    if tail is None and within.keys() != there.keys() and asked:
        return meant(ours, there, "", taken) if ours in USUAL else None
    return None if tail is None else names[tail]


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def within_reach(there: Mapping[str, Any], asked: str) -> dict[str, str]:
    """Return the fields among which the name that was asked for leads, by the last parts of their names: those of the
    same object or of the same member of a shard; else all, those within objects last."""
    parent = asked.rpartition(".")[0]
    if parent and isinstance(inner := lookup(there, parent), Mapping):
        return {name: f"{parent}.{name}" for name in inner}
    member = asked.partition(":")[0] + ":"
    near = [name for name in there if ":" in asked and name.startswith(member)] or [*there]
    found = {name: name for name in near if ":" not in name}
    for name in near:
        found.setdefault(re.split(r"[.:]", name)[-1] if ":" in name else name, name)
        if isinstance(value := there[name], Mapping) and not looks_like_audio(value):
            for last in value:
                found.setdefault(str(last), f"{name}.{last}")
    return found
