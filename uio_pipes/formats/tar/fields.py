"""The fields of a sample, made from the members of an utterance, the same for streamed and for indexed shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.lists.table import check_segment, numbers_as_text
from uio_pipes.formats.naming import Renames, nested, pairs_of, renamed
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, TarUtterance
from uio_pipes.io.local import Payload, TextRef

# Members that are text wherever they are used. The bytes of all others are left as they are: json, cls, pyd, …
TEXT_SUFFIXES = frozenset([
    "txt", "text", "transcript", "speaker", "spk", "gender", "age", "lang", "language", "locale", "dialect", "accent",
    "task", "domain", "emotion", "style",
])  # fmt: skip


def payloads_under(names: Mapping[str, str] | None) -> frozenset[str]:
    """Return the suffixes of audio and features; an utterance has at least one of them."""
    named = names or {}
    audio = frozenset([named["wav"]]) if "wav" in named else AUDIO_SUFFIXES
    return audio | {named.get("feat", "npy")}


def under_our_names(members: dict[str, Payload], names: Renames) -> dict[str, Payload]:
    """Return members under our names for their suffixes; if ``wav`` is named, no other member is the audio."""
    if not names:
        return members
    found = renamed(members, names)
    if "wav" in found:
        return {"wav": found["wav"], **found}
    return {n: v for n, v in found.items() if n not in AUDIO_SUFFIXES} if "wav" in dict(names) else found


def check_members(stage: str, names: Mapping[str, str] | None, grouping: str = "") -> None:
    """Raises: PipelineError if ``names`` has a member, or a field ``SUFFIX:NAME`` of its JSON, that cannot be there."""
    for ours, theirs in (names or {}).items():
        suffix, within, name = theirs.partition(":")
        ok = bool(suffix) and bool(name) == bool(within) and suffix == suffix.lower()
        rule = "fields must name suffixes (far.flac), or fields of a member's JSON (json:speaker)"
        require(ok, stage, rule, theirs, "suffixes are in lower case")
        rule, remedy = "no suffix has a dot if names are cut at the last one", 'try grouping="webdataset"'
        require(grouping != "wenet" or "." not in suffix, stage, rule, theirs, remedy)
        rule, remedy = f"{ours} must be a member itself", "audio and features are not in a member's JSON"
        require(not within or ours not in ("wav", "feat"), stage, rule, theirs, remedy)
        rule, remedy = "a key is the name of its members", 'a field of their JSON can be one: {"key": "json:id"}'
        require(bool(within) or ours != "key", stage, rule, theirs, remedy)


def as_fields(utterance: TarUtterance, url: str, txt: str | None, names: Renames = None) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``wav`` (the first audio member), ``feat`` (npy) and other members under their suffix,
    or under our ``names`` for these and for fields of JSON members. ``txt``: the transcript, if it has been read.

    Other members of ``TEXT_SUFFIXES`` are decoded when touched; of webdataset's ``en.txt`` the last part counts.

    Raises: DataError ``bad_text`` or ``bad_segment``.
    """
    key = utterance.key
    if txt is None and (suffix := dict(pairs_of(names)).get("txt", "txt")) in utterance.fields:
        txt = _decoded(utterance, suffix, url).strip()
    fields: dict[str, Any] = {"key": key} if txt is None else {"key": key, "txt": txt}
    for suffix, payload in under_our_names(utterance.fields, names).items():
        if suffix in AUDIO_SUFFIXES:
            fields.setdefault("wav", payload)
        elif suffix == "npy":
            fields["feat"] = payload
        elif suffix != "txt":
            is_text = suffix.rpartition(".")[2] in TEXT_SUFFIXES
            fields[suffix] = TextRef(payload, f"{key}.{suffix}") if is_text else payload
    inside = [(ours, theirs) for ours, theirs in pairs_of(names) if ":" in theirs and (ours != "txt" or txt is None)]
    return fields | _from_json(utterance, url, inside) if inside else fields


def _from_json(utterance: TarUtterance, url: str, names: list[tuple[str, str]]) -> dict[str, Any]:
    """Return fields of the members' JSON objects; those that are not there, or null, stay out."""
    objects, found = dict[str, Any](), dict[str, Any]()
    for ours, theirs in names:
        suffix, _, name = theirs.partition(":")
        if suffix not in objects:
            objects[suffix] = _object(utterance, suffix, url) if suffix in utterance.fields else {}
        if (value := nested(objects[suffix], name)) is not None:
            found[ours] = value.strip() if ours == "txt" and isinstance(value, str) else value
    numbers_as_text(found, "key", "txt")
    if not isinstance(found.get("txt", ""), str):
        del found["txt"]
    if not found.keys().isdisjoint(["start", "end"]):
        check_segment(found, url, utterance.key)
    return found


def text_of(utterance: TarUtterance, url: str, text: str = "txt") -> str:
    """Return the transcript, stripped: the member ``text``, or for ``SUFFIX:NAME`` a field of the member's JSON; "" if
    there is no such member.

    Raises: DataError ``bad_text`` or ``missing_text``.
    """
    suffix, _, name = text.partition(":")
    if suffix not in utterance.fields:  # the reader refuses an utterance that needs one
        return ""
    if not name:
        return _decoded(utterance, suffix, url).strip()
    found = nested(_object(utterance, suffix, url), name)
    if not isinstance(found, str):
        raise _bad(utterance, suffix, url, "missing_text", f"the JSON has no text {name!r}")
    return found.strip()


def _decoded(utterance: TarUtterance, suffix: str, url: str) -> str:
    payload = utterance.fields[suffix]
    data = payload if isinstance(payload, bytes) else payload.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"the text is not UTF-8 ({error.reason} at byte {error.start})"
        raise _bad(utterance, suffix, url, "bad_text", message) from error


def _object(utterance: TarUtterance, suffix: str, url: str) -> dict[str, Any]:
    """Return the JSON object in a member. Raises: DataError ``bad_text``."""
    try:
        found = parse_json(_decoded(utterance, suffix, url))
        if not isinstance(found, dict):
            raise ValueError(f"it is {type(found).__name__}")
    except ValueError as error:
        message = f"the text is not in a JSON object: {error}"
        raise _bad(utterance, suffix, url, "bad_text", message) from error
    return found


def _bad(utterance: TarUtterance, suffix: str, url: str, reason: str, message: str) -> DataError:
    error = DataError(reason, message, url=url, member=f"{utterance.key}.{suffix}", offset=utterance.offset)
    error.key = utterance.key
    return error
