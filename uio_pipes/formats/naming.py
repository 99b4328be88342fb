"""Names and forms of utterance fields in foreign data: field names, audio values, and messages about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.expressions import TABLE, Expression, compiled, lookup


def finding(reason: str, message: str, url: str, key: str = "", offset: int | None = None) -> DataError:
    """Return the error of one utterance."""
    error = DataError(reason, message, url=url, member=key, offset=offset)
    error.key = key
    return error


def undecoded(column: str = "audio") -> str:
    """Return the remedy for a data set that decodes its audio by itself."""
    return (
        f'leave the audio undecoded, dataset.cast_column("{column}", Audio(decode=False)): it is decoded with the batch'
    )


def audio_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``wav``, and ``sample_rate`` of decoded audio. Raises: DataError ``missing_audio``."""
    for name in ("bytes", "path"):
        if value.get(name):
            return {"wav": value[name]}
    if value.get("array") is not None:
        rate = value.get("sampling_rate")
        return {"wav": value["array"]} | ({} if rate is None else {"sample_rate": rate})
    message = f"the audio has neither bytes nor a path ({', '.join(map(str, value)) or 'nothing'}): remove it"
    raise DataError("missing_audio", message)


def check_rate(fields: Mapping[str, Any], place: str) -> None:
    """Check the rate of decoded audio. Raises: DataError ``missing_sample_rate``."""
    if not is_whole(fields.get("sample_rate")):
        message = "samples need their sample_rate, a whole number of Hz"
        raise DataError("missing_sample_rate", message, url=place, member=fields["key"])


TEXTLESS = "text=None (in commands --text '') accepts audio without transcripts"  # the remedy of missing_text
FieldNames = tuple[tuple[str, str], ...]  # (name of the field, its name in the data)
Renames = FieldNames | Mapping[str, str] | None


def names_of(stage: str, fields: Mapping[str, str] | None, members: bool = False) -> FieldNames:
    """Check ``fields``, names by the names or :mod:`expressions <uio_pipes.formats.expressions>` that they have in the
    data; ``members``: these are suffixes of members of shards. Raises: PipelineError."""
    ok = fields is None or (
        isinstance(fields, Mapping) and all(isinstance(n, str) and n for pair in fields.items() for n in pair)
    )
    remedy = 'as in {"wav": "audio", "txt": "text"}'
    if isinstance(fields, Mapping) and None in fields.values():
        remedy = 'give the field another name, as in fields={"embedding": "npy"} for arrays of a shard'
    require(ok, stage, "fields must map our field names to yours", fields, remedy)
    for theirs in () if members or fields is None else fields.values():
        rule, inside = "json:NAME is a field of KEY.json in a shard, and these data have no such members", theirs[5:]
        require(not theirs.startswith("json:"), stage, rule, theirs, f"name the field itself, {inside!r}")
    for theirs in () if fields is None else fields.values():
        reads(stage, theirs)
    return () if fields is None else tuple(fields.items())


def reads(stage: str, theirs: str) -> tuple[str, ...]:
    """Return the names of the fields that an expression reads. Raises: PipelineError if it is none."""
    try:
        return compiled(theirs).names
    except PipelineError as error:
        raise PipelineError(f"{stage}: {error}") from error


def check_given(stage: str, fields: Mapping[str, str] | None, there: Collection[str]) -> None:
    """Raises: PipelineError if ``fields`` names a field that these data, which have those of ``there``, cannot have."""
    for theirs in (fields or {}).values():
        rule = f"fields must name existing fields ({', '.join(there)})"
        for name in reads(stage, theirs):
            require(name in there, stage, rule, name, "our name comes first: {ours: yours}")


def transcript(stage: str, text: str | None, fields: Renames, usual: str = "txt") -> str:
    """Return the name of the transcript in the data, which ``text`` gives, or ``fields``, or else the ``usual`` one.

    Raises: PipelineError.
    """
    named = dict(pairs_of(fields)).get("txt")
    sentence = f'text={text!r} and fields["txt"]={named!r} both name the transcript'
    refuse(named is not None and text not in (usual, named, None), stage, sentence, "leave one out")
    return named or (usual if text is None else text)


def renamed(fields: Mapping[str, Any], names: Renames, record: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return ``fields`` under our names, or with what expressions make of them, or of all that a ``record`` has. One
    that is not there stays out, even if another has our name; others keep their names, and so do those that expressions
    read.

    Raises: DataError ``bad_value``.
    """
    if not names:
        return dict(fields)
    wanted = _wanted(pairs_of(names))
    found = {name: value for name, value in fields.items() if name not in wanted.taken}
    for ours, theirs in wanted.pairs:
        if theirs in fields:
            found[ours] = fields[theirs]
    for ours, made in wanted.made:
        if made.text not in fields and (value := made.value(fields if record is None else record)) is not None:
            found[ours] = value
    return found


class _Wanted(NamedTuple):
    """Names of fields: those ``taken`` from the others, all ``pairs``, and of these the expressions."""

    taken: frozenset[str]
    pairs: FieldNames
    made: tuple[tuple[str, Expression], ...]


def has_expressions(names: Renames) -> bool:
    """Return whether any of the names is an expression, or leads into nested fields."""
    return bool(names) and bool(_wanted(pairs_of(names)).made)


@lru_cache(maxsize=256)
def _wanted(pairs: FieldNames) -> _Wanted:
    expressions = [(ours, compiled(theirs)) for ours, theirs in pairs]
    made = tuple((ours, each) for ours, each in expressions if not each.plain or "." in each.text)
    return _Wanted(frozenset(name for pair in pairs for name in pair), pairs, made)


def pairs_of(names: Renames) -> FieldNames:
    """Return our names with those in the data."""
    return tuple(names.items()) if isinstance(names, Mapping) else names or ()


LOOKED_AT = 100  # records at the beginning: what all of them lack, the data do not have


class Asked(NamedTuple):
    """An expression with the words of the argument that asks for it, and the field of ours that it makes, if any."""

    what: str
    expression: Expression
    ours: str = ""


def asked(names: Renames, text: str | None = None) -> list[Asked]:
    """Return what ``fields`` asks for; ``text``: what the argument of that name gave for ``txt``, if it did."""
    return [
        Asked(f"text={text!r}" if ours == "txt" and text == theirs else f"fields[{ours!r}]", compiled(theirs), ours)
        for ours, theirs in pairs_of(names)
    ]


def check_asked(
    records: Iterable[Mapping[str, Any]],
    wanted: Iterable[Asked],
    place: str,
    advice: Callable[..., str] = named_otherwise,
) -> None:
    """Raises: ListError if none of the first ``records`` has what an expression asks for.

    Args:
        records: the first of them, of which no more are taken than it needs to find everything.
        wanted: the expressions.
        place: of the first record, for the message.
        advice: what is there, and what else may be meant, as :func:`named_otherwise
            <uio_pipes.formats.advice.named_otherwise>` says it.
    """
    wanted = list(wanted)
    unseen = {each: {*each.expression.names} for each in wanted if each.expression.names}
    seen = list[Mapping[str, Any]]()
    for record in islice(records, LOOKED_AT if unseen else 0):
        seen.append({name: value for name, value in record.items() if name != TABLE})
        for each, names in list(unseen.items()):
            names -= {name for name in names if not lacks(record, name)}
            if not names or each.expression.text in record or each.expression.tried(record) is not None:
                del unseen[each]
        if not unseen:
            return
    for each, names in unseen.items() if seen else ():
        name = next(one for one in each.expression.names if one in names)
        request, ours = f"{each.what} asks for {name!r}", each.ours
        if not each.expression.plain:
            request, ours = f"{request} in {each.expression.text!r}", ""
        given = {one.ours: one.expression.text for one in wanted if one.ours}
        by = "text" if each.what.startswith("text=") else "fields"
        have = advice(ours, seen[0], asked=name, given=given, others=seen[1:], by=by)
        none = f"none of the first {len(seen)} records has" if len(seen) > 1 else "the first record lacks"
        raise ListError(f"{place}: {request}, which {none}: {have}")


def lacks(record: Mapping[str, Any], name: str) -> bool:
    """Return whether a record lacks a name; not so where a null on the way might hide it."""
    return lookup(record, name, _NOTHING) is _NOTHING


_NOTHING = object()


def check_text(
    fields: Mapping[str, Any], names: Renames, place: str = "", record: Mapping[str, Any] | None = None
) -> None:
    """Raises: DataError ``missing_text`` if ``names`` asks for a transcript that is not among ``fields``, which were
    made from ``record``."""
    named = dict(pairs_of(names)).get("txt") if names else None
    if named is not None and fields.get("txt") is None:
        hint = named_otherwise("txt", fields if record is None else record, given=dict(pairs_of(names)))
        message = f"there is no {named}, which `fields` names for txt: {hint}"
        raise DataError("missing_text", message, url=place, member=str(fields.get("key", "")))
