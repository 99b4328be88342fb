"""The columns of Parquet files that become fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.expressions import TABLE, compiled
from uio_pipes.formats.naming import asked, check_asked

USUAL = {"wav": "audio", "txt": "text", "key": "id"}  # Hugging Face's names for ours
_KEPT = ("wav", "feat", "txt", "key", "duration", "start", "end", "sample_rate")  # columns= is about all others
_INTERNAL = "__index_level_"  # pandas' row numbers
PAYLOADS = ("wav", "feat")
LAZY = ("bytes", "file")  # kinds of columns that are read when they are touched


class ParquetColumn(NamedTuple):
    """A column that becomes the field ``field``.

    ``kind``: "bytes", "file" (``{bytes, path}``), "files" (a list of these), "path", "decoded" (``{array,
    sampling_rate}``), "list", or "value".
    ``reads``: what is read of it; ``needed``: whether it is a text that was asked for, so that each row needs one.
    """

    field: str
    name: str
    kind: str
    reads: tuple[str, ...]
    needed: bool = False

    @property
    def heavy(self) -> bool:
        """True if it is read by itself."""
        return self.kind in (*LAZY, "files", "decoded", "list")


def columns_of(schema: Any, url: str, fields: Mapping[str, str], wanted: tuple[str, ...] | None) -> list[ParquetColumn]:
    """Return the columns to read. ``fields``: our names with theirs, or with expressions over them; ``wanted``: other
    columns, None for all.

    Raises: ListError if a column is not there, or cannot be audio.
    """
    names: list[str] = schema.names
    given, made = by_kind(fields, names)
    there = within(schema)
    check_asked([{TABLE: url, **there}], asked(fields), url)
    columns = (name if name in names else name.partition(".")[0] for t in made.values() for name in compiled(t).names)
    read = [column for column in columns if column in names]
    for name in wanted or ():
        if name not in names:
            raise ListError(f"{url} has no column {name!r}, only {', '.join(names)}: correct columns=")
    usual = USUAL["wav"]  # which is a stream of its own if it has several recordings in each row
    several = usual in names and _kind(schema.field(usual).type) in ("files", "paths")
    ours = _with_usual(given, [name for name in names if not several or name != usual], made)
    taken = set(ours.values())
    gone = {*taken, *ours, *(own for own in made if own not in read)}
    others = [n for n in names if n not in gone and not n.startswith(_INTERNAL)]
    rest = {name: name for name in others if wanted is None or name in wanted or name in _KEPT or name in read}
    found = [_column(field, name, schema.field(name).type, url) for field, name in {**ours, **rest}.items()]
    texts = {fields.get("txt"), *(wanted or ())}
    found = [column._replace(needed=column.field == "txt" and column.name in texts) for column in found]
    if not several and not {"wav", "feat", "txt", "messages"} & {*made, *(column.field for column in found)}:
        raise ListError(f"{url} has no column of audio or text: {named_otherwise('wav', there, 'txt', given=fields)}")
    return found


def by_kind(fields: Mapping[str, str], names: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return those of ``fields`` that name columns, and those that are expressions over some, or lead into one.

    ``names``: of all columns.
    """
    plain = {
        own: theirs
        for own, theirs in fields.items()
        if theirs in names or (compiled(theirs).plain and "." not in theirs)
    }
    return plain, {own: theirs for own, theirs in fields.items() if own not in plain}


def within(fields: Any) -> dict[str, Any]:
    """Return what a row of these fields may have: structs as objects, bytes as b"", lists with one item, numbers with
    a point as 0.0, and anything else as a null."""
    return {one.name: _instance(one.type) for one in fields}


def _instance(type_: Any) -> Any:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        return [_instance(type_.value_type)]
    if is_.is_struct(type_):
        return within(type_)
    return b"" if _kind(type_) == "bytes" else 0.0 if is_.is_floating(type_) else None


def _with_usual(given: dict[str, str], names: list[str], made: Collection[str]) -> dict[str, str]:
    """Return our names with theirs, also those of the columns that have Hugging Face's usual names."""
    given = dict(given)
    for ours, usual in USUAL.items():
        if ours in made:
            continue
        if ours not in given and ours not in names and usual in names and usual not in given.values():
            given[ours] = usual
    return given


def check_same(first: list[ParquetColumn], now: list[ParquetColumn], url: str, first_url: str) -> None:
    """Raises: ListError if a file has other columns than the first one, or of another kind."""
    for a in first:
        b = next((column for column in now if column.field == a.field), None)
        if b is None or (a.kind, a.name) != (b.kind, b.name):
            is_ = "no such column" if b is None else f"{b.name} ({b.kind})"
            raise ListError(
                f"{url}: the column for {a.field} is {a.name} ({a.kind}) in {first_url}, and {is_} here: read these "
                "files with a separate pipeline, or name the columns that all of them have (fields=, columns=)"
            )
    if extra := sorted({column.field for column in now} - {column.field for column in first}):
        raise ListError(
            f"{url} has columns that {first_url} lacks ({', '.join(extra)}): name those that all files have, columns="
        )


def _column(field: str, name: str, type_: Any, url: str) -> ParquetColumn:
    kind = _kind(type_)
    parts = {"file": ("bytes", "path"), "decoded": ("array", "sampling_rate")}.get(kind)
    reads = tuple(f"{name}.{part}" for part in parts if type_.get_field_index(part) >= 0) if parts else (name,)
    if field == "wav" and kind == "text":
        return ParquetColumn(field, name, "path", reads)
    if field in PAYLOADS and kind in ("value", "text", "files", "paths"):
        raise ListError(
            f"{url}: the column {name} for {field} is {type_}, but must be bytes of audio files, their paths, "
            "{bytes, path}, or lists of samples: name another one by fields="
        )
    if field in ("txt", "key") and kind not in ("text", "value"):
        raise ListError(
            f"{url}: the column {name} for {field} is {type_}, but must be text or numbers: name another one by fields="
        )
    if kind not in (*LAZY, "files") and field not in PAYLOADS:
        kind, reads = "value", (name,)
    return ParquetColumn(field, name, kind, reads)


def _kind(type_: Any) -> str:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    if is_.is_struct(type_):
        has = {type_.field(i).name for i in range(type_.num_fields)}
        if "array" in has and "sampling_rate" in has:
            return "decoded"
        return "file" if "bytes" in has or has == {"path"} else "value"
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        of = _kind(type_.value_type)
        return {"file": "files", "text": "paths"}.get(of, "list")
    if str(type_) in ("string", "large_string", "string_view"):
        return "text"
    return "bytes" if str(type_) in ("binary", "large_binary", "binary_view") else "value"
