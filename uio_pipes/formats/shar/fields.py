"""The fields of a sample, made from a Lhotse cut and its data in a Shar."""

from __future__ import annotations

from typing import Any

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError
from uio_pipes.formats.lhotse.cut import WantedFields, check_cut, described, end_of, is_recording
from uio_pipes.formats.lhotse.recording import Recorded, placed
from uio_pipes.formats.lhotse.stored import CutFeatures, StoredArray, TimedArray, member_loader
from uio_pipes.formats.lhotse.window import times, window_of
from uio_pipes.formats.shar.streams import Value
from uio_pipes.io.access import PLAIN
from uio_pipes.io.local import Payload

_EVERYTHING = WantedFields(())


def as_fields(cut: dict[str, Any], values: dict[str, Value], wanted: WantedFields = _EVERYTHING) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``speaker``, …, ``wav`` or ``feat``, ``supervisions`` and custom fields.

    Raises: DataError ``unsupported_cut``, ``bad_cut``, ``bad_segment``, ``missing_audio`` or ``bad_features``.
    """
    try:
        return placed(wanted.named(_fields(cut, values)))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"the cut or one of its manifests cannot be read ({type(error).__name__}: {error}): write it again"
        raise DataError("bad_cut", message) from error


def _fields(cut: dict[str, Any], values: dict[str, Value]) -> dict[str, Any]:
    start, duration = check_cut(cut)
    fields = described(cut, lambda name, manifest: None)  # a Shar's data are in its other files
    for name, value in values.items():
        if value.data is None:
            fields.pop(name, None)
        elif name == "recording":
            fields |= {"wav": _audio(cut, value), **_times(start, duration, value.meta)}
        elif name == "features":
            fields["feat"] = _features(cut, value)
        else:
            fields[name] = _custom(value, start, duration)
    return fields


def _audio(cut: dict[str, Any], recording: Value) -> Payload:
    """Return the audio; if channels matter, as a recording of which segments take those they are of."""
    sources = recording.meta.get("sources") or []
    several = sum(len(source["channels"]) for source in sources) > 1
    named = any(said.get("channel") for said in cut.get("supervisions") or [])
    if "num_samples" not in recording.meta or not (several or named):
        payload: Payload = recording.data
        return payload
    return Recorded(recording.meta, cut.get("channel"), PLAIN, None, [recording.data])


def _times(start: float, duration: float | None, recording: dict[str, Any]) -> dict[str, float]:
    """Return the cut's segment of its recording: a Shar stores what the cut needs, but cuts edited later need less."""
    if "num_samples" not in recording:
        return {"start": start} if start > 0 else {}
    return times(window_of(recording, start, duration), recording["sampling_rate"])


def _custom(value: Value, start: float, duration: float | None) -> Any:
    meta = value.meta
    if value.suffix and "array" in meta:
        return TimedArray(member_loader(value.data, value.suffix), meta, (start, end_of(start, duration)))
    if value.suffix and "shape" in meta:
        return StoredArray(member_loader(value.data, value.suffix))
    if value.suffix and is_recording(meta) and "num_samples" in meta:
        return Recorded(meta, None, PLAIN, window_of(meta, start, duration), [value.data])
    return value.data


def _features(cut: dict[str, Any], value: Value) -> Payload | StoredFeatures:
    if value.suffix == "npy" and "frame_shift" not in value.meta:
        payload: Payload = value.data
        return payload
    return CutFeatures(cut, value.meta, member_loader(value.data, value.suffix))
