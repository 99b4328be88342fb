"""The fields of an utterance, made from a Lhotse cut: its texts, speakers, custom fields, and its part of the audio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.formats.lists.raw_line import LATEST
from uio_pipes.formats.naming import FieldNames, check_text, names_of, renamed

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
            f"a {kind} is made of other cuts: mix or pad it by a stage of the pipeline, or write its audio by Lhotse "
            "(cuts.save_audios)",
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
        fields |= _said(one)
        texts = [one.get("text")]
    else:
        fields |= _agreed([_said(one) for one in supervisions])
        texts = [one.get("text") for one in sorted(supervisions, key=lambda one: float(one.get("start", inf)))]
    for name, value in (cut.get("custom") or {}).items():
        made = data(name, value) if isinstance(value, dict) and holds_data(value) else value
        if made is not None:
            fields[f"custom_{name}" if name in _TAKEN else name] = made
    if spoken := [str(text) for text in texts if text is not None]:
        fields["txt"] = " ".join(spoken)
    fields["supervisions"] = supervisions
    return fields


def _said(supervision: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: supervision[name] for name in _OF_SPEECH if supervision.get(name)}
    if custom := supervision.get("custom"):
        found |= {f"custom_{name}" if name in _TAKEN else name: value for name, value in custom.items()}
    return found


def _agreed(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, *others = several or [{}]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


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
    require(ok, stage, "fields must be names of fields by ours", fields, 'as in {"wav": "target", "feat": None}')
    pairs = () if fields is None else tuple(fields.items())
    names_of(stage, {ours: "" if theirs == "" else theirs or "none" for ours, theirs in pairs})
    return pairs


def unread(pairs: Pairs) -> frozenset[str]:
    """Return Lhotse's names of the data that are not to be read."""
    left_out = {ours for ours, theirs in pairs if theirs is None}
    return frozenset(name for ours in left_out for name in (ours, _THEIRS.get(ours, ours)))


class WantedFields:
    """The fields that are wanted. ``left_out``: our names of those that are not read."""

    def __init__(self, pairs: Pairs) -> None:
        self.names: FieldNames = tuple(
            (ours, _LHOTSE.get(theirs, theirs)) for ours, theirs in pairs if theirs is not None
        )
        self.left_out = frozenset(_LHOTSE.get(ours, ours) for ours, theirs in pairs if theirs is None)

    def named(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields under our names. Raises: DataError ``missing_audio`` or ``missing_text``."""
        if self.left_out:
            fields = {name: value for name, value in fields.items() if name not in self.left_out}
        found = renamed(fields, self.names)
        check_text(found, self.names)
        if "wav" not in found and "feat" not in found:
            asked = [_THEIRS.get(theirs, theirs) for ours, theirs in self.names if ours in ("wav", "feat")]
            what = f"no {' and no '.join(asked)}, which `fields` names" if asked else "neither a recording nor features"
            there = ", ".join(_THEIRS.get(name, name) for name in fields)
            raise DataError("missing_audio", f"the cut has {what}; it has {there}")
        return found
