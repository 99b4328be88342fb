"""torchaudio, for the few augmentations that run on it. It is an extra, and is imported when it is first needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from uio_pipes.base.errors import PipelineError


def require_torchaudio(stage: str) -> None:
    """Raises: PipelineError with the remedy if torchaudio is not installed. It is not imported."""
    if find_spec("torchaudio") is None:
        raise PipelineError(f"{stage} needs the package torchaudio: pip install 'uio_pipes[augment]'")


def functional(stage: str) -> Any:
    """Import ``torchaudio.functional``. Raises: PipelineError with the remedy if that fails."""
    try:
        return import_module("torchaudio.functional")
    except (ImportError, OSError, RuntimeError) as error:  # its libraries do not fit PyTorch, or are for another CUDA
        raise PipelineError(
            f"{stage} needs torchaudio, which cannot be imported ({error}): install the version that fits your "
            "PyTorch, pip install 'uio_pipes[augment]'"
        ) from error
