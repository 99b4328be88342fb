"""``fields={"wav": "audio"}``: the names that utterances' fields have in the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError

Names = tuple[tuple[str, str], ...]  # (name of the field, its name in the data)
Renames = Names | Mapping[str, str] | None


def names_of(stage: str, fields: Mapping[str, str] | None) -> Names:
    """Check ``fields``, names by the names that they have in the data. Raises: PipelineError."""
    ok = fields is None or (
        isinstance(fields, Mapping) and all(isinstance(n, str) and n for pair in fields.items() for n in pair)
    )
    remedy = 'as in {"wav": "audio", "txt": "text"}'
    if isinstance(fields, Mapping) and None in fields.values():
        remedy = 'what must not have our name gets another, as in fields={"embedding": "npy"} for the arrays of a shard'
    require(ok, stage, "fields must be names of fields by ours", fields, remedy)
    return () if fields is None else tuple(fields.items())


def renamed(fields: Mapping[str, Any], names: Renames) -> dict[str, Any]:
    """Return ``fields`` under our names. One that is not there stays out, even if another has our name; others keep
    their names."""
    if not names:
        return dict(fields)
    pairs = names.items() if isinstance(names, Mapping) else names
    taken = {name for pair in pairs for name in pair}
    return {**{n: v for n, v in fields.items() if n not in taken}, **{o: fields[t] for o, t in pairs if t in fields}}


def check_text(fields: Mapping[str, Any], names: Renames, place: str = "") -> None:
    """Raises: DataError ``missing_text`` if ``names`` asks for a transcript that is not among ``fields``."""
    asked = dict(names or ()).get("txt")
    if asked is not None and fields.get("txt") is None:
        message = f"there is no {asked}, which `fields` names for txt, only {', '.join(fields)}"
        raise DataError("missing_text", message, url=place, member=str(fields.get("key", "")))


def nested(fields: Mapping[str, Any], name: str) -> Any:
    """Return the field ``name``, or else what its dots lead to, as in "info.texts.whisper"; None if it is not there."""
    if (value := fields.get(name)) is not None or "." not in name:
        return value
    value = fields
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
