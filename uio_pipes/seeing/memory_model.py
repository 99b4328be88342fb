"""A model of the memory that a training step takes, fitted to measured peaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

MARGIN = 1.01  # how far a forecast is above the peak that is furthest above the fit: others may be above that one

FloatArray = npt.NDArray[np.float64]


def _features(shapes: npt.ArrayLike) -> FloatArray:
    """Return what the memory of each shape (B, T, U) is made of: a constant, and for each utterance a constant, frames
    and their square (attention), labels and their square, and frames × labels (a transducer's joint network)."""
    b, t, u = np.asarray(shapes, np.float64).T
    return np.stack([np.ones_like(b), b, b * t, b * t * t, b * u, b * u * u, b * t * u], axis=1)


@dataclass(frozen=True)
class MemoryModel:
    """Bytes of a step as a sum of features, none with a weight below 0: a smaller batch never needs more.

    Attributes:
        weights: bytes for each feature, so high that no measured peak is above its forecast.
        error: how much the highest of these forecasts is above its peak, as a share.
    """

    weights: tuple[float, ...]
    error: float

    @classmethod
    def fitted(cls, probes: Iterable[tuple[tuple[int, int, int], int]]) -> MemoryModel:
        """Fit to shapes and their peaks by non-negative least squares of the relative errors: by the best subset of the
        features for which least squares give no weight below 0, and of equally good ones the smallest."""
        shapes, peaks = zip(*probes, strict=True)
        table = _features(shapes) / np.asarray(peaks, np.float64)[:, None]
        scale = np.maximum(table.max(axis=0), np.finfo(float).tiny)
        best, weights = np.inf, np.zeros(len(scale))
        for some in (list(one) for n in range(1, len(scale) + 1) for one in combinations(range(len(scale)), n)):
            found = np.linalg.lstsq(table[:, some] / scale[some], np.ones(len(table)), rcond=None)[0] / scale[some]
            left = float(np.square(table[:, some] @ found - 1).sum())
            if (found >= 0).all() and left < best - 1e-9:
                best, weights = left, np.zeros(len(scale))
                weights[some] = found
        weights *= MARGIN / (table @ weights).min()
        return cls(tuple(weights.tolist()), float((table @ weights).max() - 1))

    def bytes(self, shapes: npt.ArrayLike) -> FloatArray:
        """Return the forecast for each shape (B, T, U)."""
        forecasts: FloatArray = _features(shapes) @ np.array(self.weights)
        return forecasts

    def cost(self, frames: int, labels: int) -> float:
        """Return the bytes that each utterance of a batch takes if it is padded to these lengths."""
        _, one, t, tt, u, uu, tu = self.weights
        return one + (t + tt * frames + tu * labels) * frames + (u + uu * labels) * labels

    def __str__(self) -> str:
        """The cost as a function in Python, rounded up."""
        names = ("", " * frames", " * frames**2", " * tokens", " * tokens**2", " * frames * tokens")
        parts = [f"{1.001 * w:.4g}{name}" for w, name in zip(self.weights[1:], names, strict=True) if w]
        return f"lambda frames, tokens: {' + '.join(parts) or 0}"
