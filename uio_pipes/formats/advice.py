"""Advice for fields that data lack: the existing fields, and the line to write if exactly one fits."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
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
SHOWN = 12  # names in a message
_NUMBERS = re.compile(r"(\.\d+)+$")  # of items of lists
_MISSPELT = 0.85  # how near a name is to the one that was asked for if that is only misspelt
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
    """Return the fields by the names that ``fields`` takes, with nested ones in place of objects and lists. Of a list
    that is the first item, and of audio the path if that is all it has."""
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
    """Return which of the ``others`` is a usual name for this field elsewhere."""
    lower = {name.lower(): name for name in others}
    return next((lower[name] for name in USUAL.get(ours, ()) if name in lower), None)


def named_otherwise(
    ours: str,
    there: Collection[str],
    *also: str,
    asked: str = "",
    given: Mapping[str, str] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
    by: str = "fields",
) -> str:
    """Return the end of a message about a missing field: the existing fields, and what to write if exactly one fits.

    Args:
        ours: our name of the field that is lacking; "" if it has none, so that nothing is written for it.
        there: the fields that are there, with their values, or the names alone.
        also: other fields of ours that are lacking.
        asked: the name that is not there; "" if it is what ``given`` says, or none was asked for.
        given: what ``fields`` says; what it names for other fields is not meant again.
        others: more records, for where this one has nothing that fits.
        by: the argument to write: ``fields``, or ``text`` if that named the transcript.
    """
    values = there if isinstance(there, Mapping) else dict.fromkeys(there)
    inner = lookup(values, parent := asked.rpartition(".")[0])
    found = f"{parent} has {shown(inner)}" if isinstance(inner, Mapping) else f"it has {shown(there) or 'no fields'}"
    if asked in OURS and ours in values and ours not in OURS:  # as rename_columns of datasets, the old name first
        return f"{found}; our name comes first, write {_line(asked, ours)}"
    named = dict(given or {})
    asked = asked or named.pop(ours, "")
    taken = {theirs for own, theirs in named.items() if own != ours}
    fits = next(filter(None, (fitting(ours, record, asked, taken) for record in (values, *others))), [])
    if not ours or (asked and not compiled(asked).plain):
        return found + (f"; did you mean {fits[0]!r}?" if fits else "")
    likewise = f"; name {in_words(also)} likewise" if also else ""
    if len(fits) == 1:
        line = _line(ours, fits[0]) if by == "fields" else f"{by}={json.dumps(fits[0], ensure_ascii=False)}"
        beside = ", beside what fields says already" if taken and by == "fields" else ""
        return f"{found}; if {fits[0]} is meant, write {line}{beside}{likewise}"
    if not {*values} - OURS:
        return found
    return f"{found}; say by fields which of {shown(fits) if fits else 'them'} is {ours}{likewise}"


def _line(ours: str, theirs: str) -> str:
    return f"fields={json.dumps({ours: theirs}, ensure_ascii=False)}"


def fitting(ours: str, there: Mapping[str, Any], asked: str = "", taken: Collection[str] = ()) -> list[str]:
    """Return the fields that may be meant, the likeliest first. These are: a misspelt name, our name, the usual names,
    the nearest name, and fields that look like audio or can name it."""
    values, out = leaves(there), {*OURS, asked, *(taken if ours in USUAL else ())}
    if ours not in USUAL:  # which may be lists
        values = {_NUMBERS.sub("", name): value for name, value in values.items()}
    names = [name for name, value in values.items() if name not in out and _can_be(ours, name, value)]
    if inside := asked.removesuffix(re.split("[.:]", asked)[-1]):
        names = [name for name in names if name.startswith(inside)] or names
    if asked and (misspelt := nearest(asked, names if inside else {*names, *there} - out, _MISSPELT)):
        return [misspelt]
    if asked and ours in there and ours != asked:
        return [ours]
    audio = [name for name in names if looks_like_audio(values[name])]
    if ours == "wav":
        names = audio or names
    elif ours in USUAL:
        names = [name for name in names if name not in audio]
    last = {_last(name): name for name in reversed(names)}
    usual = [last[name] for name in USUAL.get(ours, ()) if name in last]
    near = nearest(asked, names) or last.get(nearest(_last(asked or ours), last) or "")
    if found := usual or ([near] if near else []):
        return found
    return audio if ours == "wav" else stems(values, audio) if ours == "key" else []


def _last(name: str) -> str:
    """Return the last part of a name that is no number, in lower case: ``texts`` of ``info.texts.0``."""
    return re.split(r"[.:]", _NUMBERS.sub("", name))[-1].lower()


def _can_be(ours: str, name: str, value: Any) -> bool:
    """Return whether a field can be ours, and be named."""
    try:
        compiled(name)
    except PipelineError:
        return False
    return ours not in ("wav", "txt") or not isinstance(value, (int, float))


def stems(values: Mapping[str, Any], audio: Sequence[str]) -> list[str]:
    """Return the names of audio files without their suffix, as keys."""
    files = ["wav"] if "wav" in values else audio
    return [f"{name} | stem" for name in files if isinstance(values[name], str)]
