"""The features to be packed in place of audio. No torch in here: only what computes features imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Dtype = Literal["float32", "float16"]


@dataclass(frozen=True)
class FeatureSettings:
    """Features to be packed. ``dtype``: of the stored arrays; ``conf``: the WeNet ``dataset_conf`` by which they are
    computed of audio, or None for features that are there already."""

    dtype: Dtype = "float32"
    conf: Mapping[str, Any] | None = None

    def stages(self) -> list[str]:
        """Return the stages that compute the features, with all their parameters. Raises: PipelineError."""
        if self.conf is None:
            return []
        from uio_pipes.prep.writing.features import extractor

        return [stage.describe(stable=True) for stage in extractor(self.conf).stages]

    def identity(self) -> dict[str, Any]:
        """Return what the journal keeps: other features are another packing."""
        return {"dtype": self.dtype, "features": self.stages()}

    def length_rule(self) -> Callable[[float], int]:
        """Return the function that gives the number of frames of so many seconds of audio."""
        from uio_pipes.prep.writing.features import extractor

        return extractor(self.conf or {}).frames
