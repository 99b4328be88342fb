"""torchaudio that cannot be used here gives our error, with the remedy."""

import sys
from pathlib import Path

import pytest

import uio_pipes as uio
from uio_pipes.dsp.effects import functional


@pytest.mark.parametrize("error", ["OSError", "ImportError", "RuntimeError"])
def test_torchaudio_that_was_built_for_another_pytorch(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one would need another CUDA: this package raises what torchaudio's ``__init__`` does there."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text(f"raise {error}('different CUDA versions')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(uio.PipelineError, match=r"lowpass needs .* \(different CUDA versions\): install the version"):
        functional("lowpass")
