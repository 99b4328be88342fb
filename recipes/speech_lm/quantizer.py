"""A frozen encoder without a download: residual k-means of the features, whose codes stand for them.

Each codebook is fitted to what the ones before it leave of a frame, as in neural codecs. ``python -m
recipes.speech_lm.quantizer DATA`` fits it to a sample of train, and encodes train, dev and test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn

import uio_pipes as uio
from uio_pipes.io.files import atomic_path

from ..common.problems import told
from ..common.strict import ConfigError
from .config import Settings, settings_of
from .data import features, quantized
from .model import ENTRIES

__all__ = ["Quantizer", "encode_all", "main"]

FRAMES = 20_000  # that it is fitted to
ROUNDS = 10


class Quantizer(nn.Module):
    """Features (B, T, F) and their lengths → codes (B, T, codebooks) uint8, and the same lengths."""

    entries: Tensor

    def __init__(self, codebooks: int, width: int) -> None:
        super().__init__()
        self.register_buffer("entries", torch.zeros(codebooks, ENTRIES, width))

    def forward(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        rest, codes = feats, []
        for entries in self.entries:
            codes.append(nearest(rest.flatten(0, -2), entries).view(feats.shape[:-1]))
            rest = rest - entries[codes[-1]]
        return torch.stack(codes, dim=-1).byte(), lengths

    def fit(self, frames: Tensor) -> None:
        """Fit each codebook to what is left of frames (N, F) by those before it."""
        draws, rest = torch.Generator().manual_seed(1), frames
        for entries in self.entries:
            order = torch.randperm(max(len(rest), ENTRIES), generator=draws)
            entries.copy_(rest[order[:ENTRIES] % len(rest)])
            for _ in range(ROUNDS):
                codes = nearest(rest, entries)
                sums = torch.zeros_like(entries).index_add_(0, codes, rest)
                counts = codes.bincount(minlength=ENTRIES).unsqueeze(1)
                entries.copy_(torch.where(counts > 0, sums / counts.clamp(min=1), entries))
            rest = rest - entries[nearest(rest, entries)]


def nearest(frames: Tensor, entries: Tensor) -> Tensor:
    """Return the number of the entry (E, F) that is nearest to each frame (N, F)."""
    return (entries.square().sum(1) - 2 * frames @ entries.T).argmin(1)


def encode_all(data: Path, settings: Settings) -> str:
    """Fit the quantizer unless it is there, and encode what is not encoded yet. Raises: UioError, OSError."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    codebooks, sizes = settings.model.codebooks, settings.model
    path = data / f"quantizer-{codebooks}-{sizes.frames}-{sizes.stride}.pt"
    if not path.exists():
        fitted = _fitted(data, settings)
        with atomic_path(path) as temporary:
            torch.save(fitted.state_dict(), temporary)
    saved = torch.load(path, weights_only=True)
    model = Quantizer(codebooks, saved["entries"].shape[-1]).to(device)
    model.load_state_dict(saved)
    said = []
    for part in ("train", "dev", "test"):
        graph = quantized(data, part, settings).batch(16).pad()
        found = uio.encode(uio.to_device(uio.Loader(graph, num_workers=settings.data.num_workers), device), model)
        said.append(f"{part}: {found.utterances} utterances, {found.skipped.get('encoded', 0)} before")
    return f"{data / 'codes'}: {codebooks} codes of 8 bits a frame; " + "; ".join(said)


def _fitted(data: Path, settings: Settings) -> Quantizer:
    frames: list[Tensor] = []
    for sample in uio.Loader(features(data, "train", settings, shuffle=True)):
        frames.append(sample["feat"])
        if sum(map(len, frames)) > FRAMES:
            break
    model = Quantizer(settings.model.codebooks, frames[0].shape[1])
    model.fit(torch.cat(frames))
    return model


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 of an ASR recipe wrote.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Like model.codebooks=8; repeatable.")] = None,
) -> None:
    """Fit a quantizer to train, and encode all parts; what is encoded already is passed over."""
    with told(ConfigError, uio.UioError, OSError):
        typer.echo(encode_all(data, settings_of(["model.codebooks=8", *(override or ())])))


if __name__ == "__main__":
    typer.run(main)
