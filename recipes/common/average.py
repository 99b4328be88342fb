"""Average the weights of several epochs: ``python -m recipes.common.average EXP --best 5`` writes EXP/average.pt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from . import checkpoint
from .experiment import NotTrained
from .problems import told

__all__ = ["average", "choose"]


def choose(exp: Path, best: int = 0, last: int = 0) -> list[Path]:
    """Return the models of the ``best`` epochs by validation loss, or of the ``last`` epochs; fewer if there are fewer.

    Raises: NotTrained if no epoch has ended yet.
    """
    if (best > 0) == (last > 0):
        raise ValueError(f"choose either the best or the last epochs, at least one, not best={best} and last={last}")
    found = sorted((exp / "epochs").glob("epoch_*.pt"))
    if not found:
        raise NotTrained(f"{exp / 'epochs'} has no model: no epoch has ended yet; train (stage 4)")
    if last:
        return found[-last:]
    losses = {path: _load(path)["valid_loss"] for path in found}
    return sorted(sorted(found, key=lambda path: float(losses[path]))[:best])


def average(exp: Path, paths: list[Path]) -> Path:
    """Write the mean of the models as ``average.pt``; return its path."""
    sums: dict[str, Tensor] = {}
    epochs: list[int] = []
    dtypes: dict[str, torch.dtype] = {}
    for path in paths:
        saved = _load(path, whole=True)
        epochs.append(saved["epoch"])
        for name, value in saved["model"].items():
            dtypes[name] = value.dtype
            sums[name] = sums.get(name, 0) + value.double()
    model = {name: (total / len(paths)).to(dtypes[name]) for name, total in sums.items()}
    out = exp / "average.pt"
    checkpoint.write(out, {"model": model, "epochs": epochs})
    return out


def _load(path: Path, whole: bool = False) -> dict[str, Any]:
    """Load a saved epoch; its weights only if ``whole``."""
    device = torch.device("cpu" if whole else "meta")
    saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return saved


def main(
    exp: Annotated[Path, typer.Argument(help="Folder of the experiment.")],
    best: Annotated[int, typer.Option(help="This many epochs with the lowest validation loss.")] = 0,
    last: Annotated[int, typer.Option(help="This many last epochs instead.")] = 0,
) -> None:
    """Average the weights of the best (default: 5) or the last epochs."""
    with told(NotTrained, ValueError):
        paths = choose(exp, best if best or last else 5, last)
        typer.echo(f"{average(exp, paths)}: mean of {', '.join(path.stem for path in paths)}")


if __name__ == "__main__":
    typer.run(main)
