"""The fields of a sample, made from the members of an utterance, the same for streamed and for indexed shards."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.advice import leaves, named_otherwise
from uio_pipes.formats.expressions import compiled, lookup
from uio_pipes.formats.lists.json_lines import check_segment, numbers_as_text
from uio_pipes.formats.naming import FieldNames, Renames, pairs_of, renamed
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, TarUtterance
from uio_pipes.io.references import Payload, TextRef

# Members that are text wherever they are used. The bytes of all others are left as they are: json, cls, pyd, …
TEXT_SUFFIXES = frozenset([
    "txt", "text", "transcript", "speaker", "spk", "gender", "age", "lang", "language", "locale", "dialect", "accent",
    "task", "domain", "emotion", "style",
])  # fmt: skip
_LONGEST = 16 << 20  # bytes of a text that is compressed


def payloads_under(names: Mapping[str, str] | None) -> frozenset[str]:
    """Return the suffixes of audio and features; an utterance has at least one of them."""
    named = names or {}
    audio = frozenset([named["wav"]]) if "wav" in named else AUDIO_SUFFIXES
    return audio | {named.get("feat", "npy")}


def under_our_names(members: dict[str, Payload], names: Renames) -> dict[str, Payload]:
    """Return members under our names for their suffixes; if ``wav`` is named, no other member is the audio."""
    if not names:
        return members
    suffixes, made = _by_kind(pairs_of(names))
    found = renamed(members, suffixes)
    for ours, _ in made:
        found.pop(ours, None)
    if "wav" in found:
        return {"wav": found["wav"], **found}
    return {n: v for n, v in found.items() if n not in AUDIO_SUFFIXES} if "wav" in dict(suffixes) else found


@lru_cache(maxsize=256)
def _by_kind(pairs: FieldNames) -> tuple[FieldNames, FieldNames]:
    """Return the pairs that name members, and those that make something of them: ``json:speaker``, ``key | [:7]``."""
    of_members = [compiled(theirs).plain and ":" not in theirs for _, theirs in pairs]
    suffixes = tuple(pair for pair, is_one in zip(pairs, of_members, strict=True) if is_one)
    return suffixes, tuple(pair for pair, is_one in zip(pairs, of_members, strict=True) if not is_one)


def check_members(stage: str, names: Mapping[str, str] | None, grouping: str = "") -> None:
    """Raises: PipelineError if ``names`` has a member, or a field ``SUFFIX:NAME`` of its JSON, that cannot be there."""
    for ours, theirs in (names or {}).items():
        expression = compiled(theirs)
        for read in expression.names:
            suffix, within, name = read.partition(":")
            ok = bool(suffix) and bool(name) == bool(within) and suffix == suffix.lower()
            rule = "fields must name suffixes (far.flac), or fields of a JSON member (json:speaker)"
            require(ok, stage, rule, theirs, "suffixes are in lower case")
            rule, remedy = "no suffix has a dot if names are cut at the last one", 'try grouping="webdataset"'
            require(grouping != "wenet" or "." not in suffix, stage, rule, theirs, remedy)
        itself = expression.plain and ":" not in theirs
        rule, remedy = f"{ours} must be a member itself", "audio and features are not in a member's JSON"
        require(itself or ours not in ("wav", "feat"), stage, rule, theirs, remedy)
        rule, remedy = "a key is the name of its members", 'a field of their JSON can be one: {"key": "json:id"}'
        require(not itself or ours != "key", stage, rule, theirs, remedy)


def member_of(text: str) -> str:
    """Return the suffix of the member that holds the transcript ``text``; "" if none does, as of a constant."""
    read = compiled(text).names if text else ()
    return next((name.partition(":")[0] for name in read if name != "key"), "")


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
    made = _by_kind(pairs_of(names))[1] if names else ()
    return (
        fields | _made(utterance, url, [pair for pair in made if pair[0] != "txt" or txt is None]) if made else fields
    )


class _Texts(Mapping[str, Any]):
    """What expressions read of an utterance: ``key``, a member's text by its suffix, and ``SUFFIX:NAME``, a field of
    its JSON."""

    def __init__(self, utterance: TarUtterance, url: str) -> None:
        self._utterance, self._url = utterance, url
        self._objects: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        suffix, within, inner = name.partition(":")
        if suffix not in self._utterance.fields:
            if name == "key":
                return self._utterance.key
            raise KeyError(name)
        if not within:
            return _decoded(self._utterance, suffix, self._url).strip()
        return lookup(self.object(suffix), inner)

    def object(self, suffix: str) -> dict[str, Any]:
        """Return the JSON object in a member. Raises: DataError, KeyError."""
        if suffix not in self._objects:
            self._objects[suffix] = _object(self._utterance, suffix, self._url)
        return self._objects[suffix]

    def __iter__(self) -> Iterator[str]:
        return iter(self._utterance.fields)

    def __len__(self) -> int:
        return len(self._utterance.fields)


def _made(utterance: TarUtterance, url: str, names: list[tuple[str, str]]) -> dict[str, Any]:
    """Return what expressions make of the members; what is not there, or null, stays out."""
    texts, found = _Texts(utterance, url), dict[str, Any]()
    for ours, theirs in names:
        if (value := compiled(theirs)(texts)) is not None:
            found[ours] = value.strip() if ours == "txt" and isinstance(value, str) else value
    numbers_as_text(found, "key", "txt")
    if not isinstance(found.get("txt", ""), str):
        del found["txt"]
    if not found.keys().isdisjoint(["start", "end"]):
        check_segment(found, url, utterance.key)
    return found


def read_by(utterance: TarUtterance, url: str, names: Renames) -> dict[str, Any]:
    """Return what expressions may read of an utterance: its key, its members by their suffixes, and, of the members
    that ``names`` lead into, the fields as ``SUFFIX:NAME``. What cannot be read is left out."""
    texts = _Texts(utterance, url)
    found: dict[str, Any] = {"key": utterance.key, **dict.fromkeys(utterance.fields, "")}
    for name in {name for _, made in _by_kind(pairs_of(names))[1] for name in compiled(made).names}:
        suffix, within, _ = name.partition(":")
        with suppress(DataError, KeyError):
            found |= {f"{suffix}:{n}": v for n, v in texts.object(suffix).items()} if within else {name: texts[name]}
    return found


def text_of(utterance: TarUtterance, url: str, text: str = "txt") -> str:
    """Return the transcript, stripped: the member ``text``, or what an expression makes of members; "" if there is no
    such member.

    Raises: DataError ``bad_text``, ``bad_value`` or ``missing_text``.
    """
    if text in utterance.fields:
        return _decoded(utterance, text, url).strip()
    suffix = member_of(text)
    if not text or (suffix and suffix not in utterance.fields):  # the reader refuses an utterance that needs one
        return ""
    found = compiled(text)(_Texts(utterance, url))
    if not isinstance(found, str):
        raise _bad(utterance, suffix, url, "missing_text", _no_text(utterance, suffix, url, text))
    return found.strip()


def _no_text(utterance: TarUtterance, suffix: str, url: str, text: str) -> str:
    """Return what to say of a member whose JSON has not the text."""
    there: dict[str, Any] = dict.fromkeys(utterance.fields)
    with suppress(DataError):
        there |= leaves(_object(utterance, suffix, url), f"{suffix}:")
    return f"the JSON has no text {text.partition(':')[2] or text!r}: {named_otherwise('txt', there, asked=text)}"


def _decoded(utterance: TarUtterance, suffix: str, url: str) -> str:
    payload = utterance.fields[suffix]
    data = payload if isinstance(payload, bytes) else payload.read()
    try:
        if data[:2] == b"\x1f\x8b":  # gzip, as of txt.gz, and no UTF-8
            stream = zlib.decompressobj(31)
            text = stream.decompress(data, _LONGEST)
            if not stream.eof:
                raise zlib.error("it is cut off" if not stream.unconsumed_tail else "it holds more than 16 MiB")
            data = text
        return data.decode("utf-8-sig")
    except zlib.error as error:
        raise _bad(utterance, suffix, url, "bad_text", f"its gzip stream is damaged: {error}") from error
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
