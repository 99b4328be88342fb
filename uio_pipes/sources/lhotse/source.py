"""``from_lhotse_cuts``: the cuts of Lhotse manifests as utterances, in any order, read without Lhotse."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from typing import Any, ClassVar

from uio_pipes.base.checks import require, require_paths, require_root
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.lists.json_lines import LATEST, JsonRows, parse_object
from uio_pipes.formats.naming import (
    LOOKED_AT,
    FieldNames,
    asked,
    check_asked,
    check_text,
    has_expressions,
    names_of,
    renamed,
)
from uio_pipes.io.access import Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.format import Format, RowPlace
from uio_pipes.sources.lhotse.recording import Recorded, Unaligned, check_readable, placed, window_of, with_places
from uio_pipes.sources.lhotse.stored import CutFeatures, StoredArray, TimedArray, loader
from uio_pipes.sources.seen import Found, Seen

Cut = Mapping[str, Any]
MakeData = Callable[[str, Mapping[str, Any]], Any]  # a custom field's value, by its name and manifest; None: no field
_PLAIN = frozenset(["MonoCut", "MultiCut", "Cut"])
_OF_SPEECH = ("speaker", "language", "gender")
_TAKEN = frozenset(["key", "txt", "wav", "feat", "start", "end", "duration", "sample_rate", "label", "supervisions"])


def check_cut(cut: Cut) -> tuple[float, float | None]:
    """Return start and duration of a cut of one recording, in seconds.

    Raises: DataError ``unsupported_cut`` or ``bad_segment``.
    """
    kind = cut.get("type", "MonoCut")
    if kind not in _PLAIN:
        raise DataError(
            "unsupported_cut",
            f"a {kind} combines other cuts: mix or pad them with a stage of the pipeline, or save its audio with "
            "Lhotse (cuts.save_audios)",
        )
    start, duration = cut.get("start") or 0.0, cut.get("duration")
    known = type(start) in (int, float) and (duration is None or type(duration) in (int, float))
    if not known or not 0 <= start < LATEST or not 0 < (1 if duration is None else duration) < LATEST:
        raise DataError("bad_segment", f"start and duration must be seconds, not {start!r} and {duration!r}")
    return float(start), None if duration is None else float(duration)


def end_of(start: float, duration: float | None) -> float:
    """Return the end of a cut in seconds; the latest there may be if it goes to the end of its recording."""
    return LATEST if duration is None else start + duration


def described(cut: Cut, data: MakeData) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``speaker``, ``language``, ``gender``, ``supervisions`` and custom fields.

    The texts of several supervisions are joined by a blank, in the order of time; of their speakers, languages and
    custom fields those are there that agree. A custom field whose name means something else here is ``custom_NAME``.
    """
    supervisions = cut.get("supervisions") or []
    fields: dict[str, Any] = {"key": str(cut.get("id", ""))}
    if len(supervisions) == 1:
        one = supervisions[0]
        _add_said(fields, one)
        texts = [one.get("text")]
    else:
        first, *others = [_add_said({}, one) for one in supervisions] or [{}]
        fields |= {name: v for name, v in first.items() if all(other.get(name) == v for other in others)}
        texts = [one.get("text") for one in sorted(supervisions, key=lambda one: float(one.get("start", inf)))]
    for name, value in (cut.get("custom") or {}).items():
        made = data(name, value) if isinstance(value, dict) and holds_data(value) else value
        if made is not None:
            fields[f"custom_{name}" if name in _TAKEN else name] = made
    if spoken := [str(text) for text in texts if text is not None]:
        fields["txt"] = " ".join(spoken)
    fields["supervisions"] = supervisions
    return fields


def _add_said(fields: dict[str, Any], supervision: Mapping[str, Any]) -> dict[str, Any]:
    for name in _OF_SPEECH:
        if value := supervision.get(name):
            fields[name] = value
    if custom := supervision.get("custom"):
        fields |= {f"custom_{name}" if name in _TAKEN else name: value for name, value in custom.items()}
    return fields


def holds_data(value: Mapping[str, Any]) -> bool:
    """Return whether a custom field is the manifest of a recording or an array."""
    return "array" in value or ("shape" in value and "storage_type" in value) or is_recording(value)


def is_recording(value: Mapping[str, Any]) -> bool:
    """Return whether it is the manifest of a recording."""
    return "sources" in value and "sampling_rate" in value


# fields=

Pairs = tuple[tuple[str, str | None], ...]  # our name, theirs; None: not to be read
_LHOTSE = {"recording": "wav", "features": "feat", "text": "txt", "id": "key"}
_THEIRS = {ours: theirs for theirs, ours in _LHOTSE.items()}


def pairs_of(stage: str, fields: Mapping[str, str | None] | None) -> Pairs:
    """Check the argument ``fields`` of Lhotse's sources. Raises: PipelineError."""
    ok = fields is None or isinstance(fields, Mapping)
    require(ok, stage, "fields must map our field names to yours", fields, 'as in {"wav": "target", "feat": None}')
    pairs = () if fields is None else tuple(fields.items())
    names_of(stage, {ours: "" if theirs == "" else theirs or "none" for ours, theirs in pairs})
    return pairs


def unread(pairs: Pairs) -> frozenset[str]:
    """Return Lhotse's names of the data that are not read."""
    left_out = {ours for ours, theirs in pairs if theirs is None}
    return frozenset(name for ours in left_out for name in (ours, _THEIRS.get(ours, ours)))


class WantedFields:
    """The fields that are wanted. ``left_out``: our names of those that are not read."""

    def __init__(self, pairs: Pairs) -> None:
        self.names: FieldNames = tuple(
            (ours, _LHOTSE.get(theirs, theirs)) for ours, theirs in pairs if theirs is not None
        )
        self._made = has_expressions(self.names)
        self.left_out = frozenset(_LHOTSE.get(ours, ours) for ours, theirs in pairs if theirs is None)

    def named(self, fields: dict[str, Any], cut: Cut) -> dict[str, Any]:
        """Return the fields under our names. Expressions also see the manifest of the ``cut``, and that of its
        supervision if it has one. Raises: DataError ``missing_audio``, ``missing_text`` or ``bad_value``."""
        if self.left_out:
            fields = {name: value for name, value in fields.items() if name not in self.left_out}
        found = fields
        if self.names:
            found = renamed(fields, self.names, _record(fields, cut) if self._made else None)
            check_text(found, self.names)
        if "wav" not in found and "feat" not in found:
            asked = [_THEIRS.get(theirs, theirs) for ours, theirs in self.names if ours in ("wav", "feat")]
            what = f"no {' and no '.join(asked)}, which `fields` names" if asked else "neither a recording nor features"
            there = ", ".join(_THEIRS.get(name, name) for name in fields)
            raise DataError("missing_audio", f"the cut has {what}; it has {there}")
        return found


def _record(fields: dict[str, Any], cut: Cut) -> Mapping[str, Any]:
    """Return all that expressions may read: fields, those of the cut's manifest, and those of its only supervision."""
    supervisions = cut.get("supervisions") or []
    said = dict(supervisions[0]) if len(supervisions) == 1 else {}
    custom = {**(said.get("custom") or {}), **(cut.get("custom") or {})}
    return ChainMap({"custom": custom}, fields, dict(cut), said)


_CUTS = 'cuts have {"id", "start", "duration", "recording", "supervisions", "type"} a line'


_CUT = re.compile(r'"type": ?"(?:Mono|Multi|Mixed|Padding)?Cut"')
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, OverflowError)  # of what cuts are made of


def _refuse_others(line: str, place: str) -> None:
    """Raises: ListError if the first line of a manifest is sound, but no cut."""
    try:
        first = parse_object(line, place)
    except DataError:
        return  # one damaged line
    except ListError as error:
        raise ListError(f"{place} is not a JSON object: {line[:80]!r}; {_CUTS}") from error
    if str(first.get("type")).endswith("Cut"):
        return
    if is_recording(first) or "recording_id" in first:
        kind = "recordings" if is_recording(first) else "supervisions or features"
        raise ListError(
            f"{place} is a Lhotse manifest of {kind}, not of cuts: combine them with "
            'CutSet.from_manifests(recordings=…, supervisions=…).to_file("cuts.jsonl.gz")'
        )
    raise ListError(f"{place} is not a Lhotse cut, it has {', '.join(list(first)[:5])}: {_CUTS}")


@dataclass(frozen=True)
class ListCuts(Format):
    """Cuts of Lhotse's manifests, with references to their audio, features and arrays: nothing but the manifest is
    opened."""

    name: ClassVar[str] = "list_cuts"
    sentence: ClassVar[str] = "Lhotse cuts"

    fields: Pairs = ()
    allow_pipes: bool = False

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        fits = seen.has("supervisions") or (seen.has(*seen.columns) and any(map(_CUT.search, seen.lines)))
        return Found("Lhotse's cuts", from_lhotse_cuts, (seen.path,)) if fits else None

    def rows(self) -> JsonRows:
        """Read the manifests. Raises: ListError, too, if they are not of cuts."""
        rows = JsonRows(self.paths, self.access, wanted=_CUTS)
        _refuse_others(rows.lines[0], rows.place(0))
        check_asked(self._first(rows), asked(self._wanted.names), rows.place(0))
        return rows

    def utterance(self, cut: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        """Return the fields of a cut. Raises: DataError."""
        try:
            return placed(self._wanted.named(self._fields(cut, at), cut))
        except _UNREADABLE as error:
            message = f"the cut cannot be read ({type(error).__name__}: {error}): write it again"
            raise DataError("bad_cut", message) from error

    def key(self, cut: dict[str, Any], at: RowPlace) -> str:
        return str(cut.get("id", ""))

    @cached_property
    def _wanted(self) -> WantedFields:
        return WantedFields(self.fields)

    def _first(self, rows: JsonRows) -> Iterator[Mapping[str, Any]]:
        """Yield what names may mean in the first cuts that can be read."""
        for number in range(min(LOOKED_AT, len(rows))):
            with suppress(ListError, DataError, *_UNREADABLE):
                cut = rows.row(number)
                yield _record(self._fields(cut, RowPlace(rows, number)), cut)

    def _fields(self, cut: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        start, duration = check_cut(cut)
        left_out = self._wanted.left_out
        fields = described(cut, partial(self._custom, cut, at, start, duration))
        if "wav" not in left_out and (manifest := cut.get("recording")) is not None:
            fields["wav"] = self._recorded(manifest, at, cut.get("channel"), start, duration)
        if "feat" not in left_out and (manifest := cut.get("features")) is not None:
            fields["feat"] = CutFeatures(cut, manifest, loader(manifest, self.access))
        return fields

    def _recorded(
        self, manifest: Mapping[str, Any], at: RowPlace, channels: Any, start: float, duration: float | None
    ) -> Recorded:
        manifest = self._readable(manifest, at)
        return Recorded(manifest, channels, self.access, window_of(manifest, start, duration))

    def _readable(self, manifest: Mapping[str, Any], at: RowPlace) -> Mapping[str, Any]:
        """Return the manifest of a recording with the places of its files. Raises: DataError."""
        check_readable(manifest, self.allow_pipes)
        return with_places(manifest, self.root, at)

    def _custom(
        self,
        cut: dict[str, Any],
        at: RowPlace,
        start: float,
        duration: float | None,
        name: str,
        manifest: Mapping[str, Any],
    ) -> Any:
        """Return a custom recording or array, cut along with the cut."""
        if name in self._wanted.left_out:
            return None
        if is_recording(manifest):
            channels = cut["custom"].get(f"{name}_channel_selector")
            if cut["custom"].get(f"{name}_unaligned"):
                return Unaligned(self._readable(manifest, at), channels, self.access)
            return self._recorded(manifest, at, channels, start, duration)
        if "array" in manifest:
            return TimedArray(loader(manifest["array"], self.access), manifest, (start, end_of(start, duration)))
        return StoredArray(loader(manifest, self.access))


@reaches_files
def from_lhotse_cuts(
    paths: AnyPath | Iterable[AnyPath],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    allow_pipes: bool = False,
    root: AnyPath | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from the cuts of Lhotse manifests, read without Lhotse and in any order.

    Utterances have the fields ``key`` (the cut's id), ``txt``, ``speaker``, ``language``, ``gender`` and custom fields
    of its supervisions as far as they agree, ``wav`` or ``feat``, ``start`` and ``end`` in seconds if the cut is a
    part of its recording, the cut's custom fields, and ``supervisions`` as they are. The texts of several supervisions
    are joined by a blank; ``.segments(field="supervisions")`` cuts an utterance for each. Custom recordings and arrays
    are read when touched, and are cut along. Manifests give all lengths: nothing else is opened to plan.

    Args:
        paths: manifest(s) of cuts (``cuts.jsonl``, ``cuts.jsonl.gz``, …), globs, braces, URLs. Relative paths in them
            start at ``root``.
        shuffle: whether to deal the cuts in another order in each epoch. Default: False.
        fields: names that the fields have in the cuts, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and it is not read: ``{"feat": None}``. Default: None, all of them under their own names.
        allow_pipes: whether to run the commands that recordings may have in place of paths; they run without a shell.
            Default: False.
        root: folder or URL at which relative paths of recordings start. Default: None, the manifest's folder or, if
            there is no such file, the working directory, as in Lhotse.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing or damaged, or does not hold cuts, or none of the
            first 100 has what ``fields`` asks for.
    """
    name = "from_lhotse_cuts"
    given = require_paths(name, "paths must be manifests of cuts", paths, "try 'cuts.jsonl.gz'")
    reached = Access.of(name, **access)
    start = require_root(name, root)
    return ListCuts(given, shuffle, reached, start, pairs_of(name, fields), allow_pipes).pipeline
