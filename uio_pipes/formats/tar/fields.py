"""The fields of a sample, made from the members of an utterance, the same for streamed and for indexed shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.naming import Renames, renamed
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, TarUtterance
from uio_pipes.io.local import Payload
from uio_pipes.io.text_ref import TextRef

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


def as_fields(key: str, txt: str, members: Mapping[str, Payload]) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``wav`` (the first audio member), ``feat`` (npy) and other members under their suffix.

    Members of ``TEXT_SUFFIXES`` are decoded when they are touched; of webdataset's ``en.txt`` the last part counts.
    """
    fields: dict[str, Any] = {"key": key, "txt": txt}
    for suffix, payload in members.items():
        if suffix in AUDIO_SUFFIXES:
            fields.setdefault("wav", payload)
        elif suffix == "npy":
            fields["feat"] = payload
        elif suffix != "txt":
            is_text = suffix.rpartition(".")[2] in TEXT_SUFFIXES
            fields[suffix] = TextRef(payload, f"{key}.{suffix}") if is_text else payload
    return fields


def text_of(utterance: TarUtterance, url: str, text: str = "txt") -> str:
    """Return the transcript, stripped: the member ``text``, or for ``SUFFIX:NAME`` a field of the member's JSON; for ""
    no transcript is looked for.

    Raises: DataError ``bad_text`` or ``missing_text``.
    """
    if not text:
        return ""
    suffix, _, name = text.partition(":")
    payload = utterance.fields[suffix]
    data = payload if isinstance(payload, bytes) else payload.read()
    try:
        return _named(data, name) if name else data.decode().strip()
    except KeyError:
        reason, message = "missing_text", f"the JSON has no text {name!r}"
    except UnicodeDecodeError as error:
        reason, message = "bad_text", f"the text is not UTF-8 ({error.reason} at byte {error.start})"
    except ValueError as error:
        reason, message = "bad_text", f"the text is not in a JSON object: {error}"
    bad = DataError(reason, message, url=url, member=f"{utterance.key}.{suffix}", offset=utterance.offset)
    bad.key = utterance.key
    raise bad


def _named(data: bytes, name: str) -> str:
    found = parse_json(data)
    if not isinstance(found, dict):
        raise ValueError(f"it is {type(found).__name__}")
    if not isinstance(found.get(name), str):
        raise KeyError(name)
    return str(found[name]).strip()
