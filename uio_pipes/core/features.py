"""Samples of the fields that sources load, and precomputed features: ``feat`` from a (T, F) .npy array."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.length import Plan, StoredFeatures
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import Chain, Link
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Origin, Sample, run_key
from uio_pipes.io.local import Payload, Ref
from uio_pipes.io.opening import open_binary


class _LoadFeatures:
    name = "load_features"
    of = ""
    reads = frozenset(["feat"])
    writes = frozenset(["feat"])

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        feat = sample.fields["feat"]
        try:
            array = _array(feat) if isinstance(feat, (torch.Tensor, np.ndarray)) else _loaded(feat)
        except (ValueError, OSError, EOFError, MemoryError) as error:
            raise DataError("bad_features", f"cannot read the features: {error}") from error
        if array.ndim != 2 or not len(array):
            raise DataError("bad_features", f"features must be a (frames, bins) array, not of shape {array.shape}")
        features = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(features).all():
            raise DataError("bad_features", "some features are not numbers (NaN or infinite): make them again")
        sample.fields["feat"] = torch.from_numpy(features)


def _array(feat: torch.Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(feat.float() if isinstance(feat, torch.Tensor) else feat)


def _loaded(feat: Any) -> npt.NDArray[Any]:
    if isinstance(feat, StoredFeatures):
        return feat.load()
    array: npt.NDArray[Any] = np.load(io.BytesIO(read_payload(feat)), allow_pickle=False)
    return array


def read_payload(payload: Payload | str) -> bytes:
    """Return the bytes of a payload, or of the file that a path or URL names."""
    if isinstance(payload, str):
        with open_binary(payload) as file:
            return file.read()
    return payload.read() if isinstance(payload, Ref) else bytes(payload)


LOAD_FEATURES: Link = _LoadFeatures()


class Loaded:
    """Makes the samples of one lane from the fields that a source loaded."""

    def __init__(self, lane: Lane) -> None:
        self._plain, self._run_key = Chain(), run_key(lane)
        self._with_features = self._plain.then(LOAD_FEATURES)

    def sample(self, fields: dict[str, Any], origin: Origin, place: str) -> Sample:
        """Return a sample, which loads its features when they are touched. ``place``: shard or line, for messages."""
        return Sample(fields, origin, self._run_key, self._with_features if "feat" in fields else self._plain, place)
