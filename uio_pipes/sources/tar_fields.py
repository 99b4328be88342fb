"""What the members of an utterance are to a sample: the same for shards read through and for indexed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.errors import DataError
from uio_pipes.io.local import Payload
from uio_pipes.sources.tar_reader import AUDIO_SUFFIXES, Utterance

__all__ = ["as_fields", "text_of"]


def as_fields(key: str, txt: str, members: Mapping[str, Payload]) -> dict[str, Any]:
    """``key``, ``txt``, ``wav`` (the first audio member), ``feat`` (npy) and other members under their suffix."""
    fields: dict[str, Any] = {"key": key}
    for suffix, payload in members.items():
        if suffix in AUDIO_SUFFIXES:
            fields.setdefault("wav", payload)
        elif suffix == "npy":
            fields["feat"] = payload
        elif suffix == "txt":
            fields["txt"] = txt
        else:
            fields[suffix] = payload
    return fields


def text_of(utterance: Utterance, url: str) -> str:
    """The transcript, without blanks around it. Raises: DataError ``bad_text``."""
    payload = utterance.fields["txt"]
    data = payload if isinstance(payload, bytes) else payload.read()
    try:
        return data.decode().strip()
    except UnicodeDecodeError as error:
        message = f"the text is no UTF-8 ({error.reason} at byte {error.start})"
        bad = DataError("bad_text", message, url=url, member=f"{utterance.key}.txt", offset=utterance.offset)
        bad.key = utterance.key
        raise bad from error
