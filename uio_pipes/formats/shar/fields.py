"""The fields of a sample, made from a Lhotse cut and its data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError
from uio_pipes.formats.shar.streams import Value
from uio_pipes.io.local import Payload, Ref

_TOLERANCE = 0.001  # seconds: by less than that, a cut is all of its recording
_PLAIN = ("MonoCut", "MultiCut", "Cut")


def as_fields(cut: dict[str, Any], values: dict[str, Value]) -> dict[str, Any]:
    """Return ``key``, ``txt``, ``speaker``, ``language``, ``wav`` or ``feat``, ``supervisions`` and custom fields.

    Raises: DataError ``unsupported_cut``, ``missing_audio`` or ``bad_features``.
    """
    kind = cut.get("type", "MonoCut")
    if kind not in _PLAIN:
        raise DataError(
            "unsupported_cut", f"a {kind} is made of other cuts: mix it and write the result (a Shar holds no mixtures)"
        )
    supervisions = cut.get("supervisions") or []
    fields: dict[str, Any] = {"key": str(cut.get("id", "")), **(cut.get("custom") or {}), "supervisions": supervisions}
    texts = [str(s["text"]) for s in supervisions if s.get("text") is not None]
    if texts:
        fields["txt"] = " ".join(texts)
    for name in ("speaker", "language"):
        given = {s[name] for s in supervisions if s.get(name)}
        if len(given) == 1:
            fields[name] = given.pop()
    for name, value in values.items():
        if value.data is None:
            fields.pop(name, None)
        elif name == "recording":
            fields |= {"wav": value.data, **_segment(cut, value.meta)}
        elif name == "features":
            fields["feat"] = _features(value)
        else:
            fields[name] = value.data
    if "wav" not in fields and "feat" not in fields:
        raise DataError("missing_audio", "the cut has neither a recording nor features here")
    return fields


def _segment(cut: dict[str, Any], recording: dict[str, Any]) -> dict[str, float]:
    """Return the cut's segment of its recording: a Shar stores what the cut needs, but cuts edited later need less."""
    start, whole = float(cut.get("start") or 0), recording.get("duration")
    duration = cut.get("duration")
    fields = {"start": start} if start > 0 else {}
    if duration is not None and whole is not None and start + duration < whole - _TOLERANCE:
        fields |= {"start": start, "end": start + float(duration)}
    return fields


def _features(value: Value) -> Payload | StoredFeatures:
    if value.suffix == "npy":
        payload: Payload = value.data
        return payload
    if value.suffix == "llc":
        return _Lilcom(value.data, int(value.meta.get("num_frames", 0)))
    raise DataError("bad_features", f"features in the form .{value.suffix} are not known: write lilcom or numpy")


class _Lilcom(StoredFeatures):
    """Features that lilcom packed; the manifest gives the number of frames."""

    __slots__ = ("_frames", "payload")

    def __init__(self, payload: Payload, frames: int) -> None:
        self.payload, self._frames = payload, frames

    @property
    def frames(self) -> int:
        return self._frames

    def load(self) -> npt.NDArray[Any]:
        try:
            import lilcom
        except ImportError as error:
            message = "features packed by lilcom: pip install lilcom, or write the Shar with features as numpy"
            raise DataError("missing_codec", message) from error
        data = self.payload.read() if isinstance(self.payload, Ref) else self.payload
        try:
            return np.asarray(lilcom.decompress(data))
        except (ValueError, RuntimeError) as error:
            raise DataError("bad_features", f"lilcom cannot unpack the features: {error}") from error
