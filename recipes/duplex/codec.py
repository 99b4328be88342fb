"""A codec without a download, which stands in for Mimi: residual k-means of mel energies, 12.5 frames a second.

Its codes tell what is said; no sound can be made of them. ``python -m recipes.duplex.codec DATA`` fits it to some of
the dialogues, and encodes both channels of all, each by itself, once and for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional

import uio_pipes as uio
from uio_pipes.io.files import atomic_path

from ..common.problems import told
from ..common.strict import ConfigError
from ..speech_lm.quantizer import Quantizer
from .config import Settings, settings_of
from .data import RATE, SAMPLE_RATE, audio, codes

__all__ = ["Codec", "encode_all", "main"]

BINS, SHIFT = 24, 20  # mel bands of a frame, and ms from one to the next
SIDE_BY_SIDE = round(1000 / RATE / SHIFT)  # of these frames in one of the codec
FLOOR = 13.0  # log energies below are silence: all of it gets the same code
FRAMES = 10_000  # that it is fitted to


class Codec(nn.Module):
    """Waveforms (N, S) at 16 kHz and their lengths → codes (N, T, codebooks) uint8 and lengths, T = ⌈S / 1280⌉."""

    def __init__(self, codebooks: int) -> None:
        super().__init__()
        self.fbank = uio.FbankModule(BINS, SAMPLE_RATE, frame_shift=SHIFT)
        self.quantizer = Quantizer(codebooks, BINS * SIDE_BY_SIDE)

    def forward(self, pcm: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        codes: tuple[Tensor, Tensor] = self.quantizer(*self.features(pcm, lengths))
        return codes

    def features(self, pcm: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is quantized, (N, T, F), and lengths."""
        hop = round(SAMPLE_RATE / RATE)
        feats, _ = self.fbank(functional.pad(pcm, (0, 2 * hop)), lengths + 2 * hop)
        whole = -(-pcm.shape[1] // hop) * SIDE_BY_SIDE
        stacked = feats[:, :whole].clamp(min=FLOOR).unflatten(1, (-1, SIDE_BY_SIDE)).flatten(2)
        return stacked, (lengths + hop - 1) // hop


def encode_all(data: Path, settings: Settings) -> str:
    """Fit the codec unless it is there, and encode what is not encoded yet. Raises: UioError, OSError."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    codec, path = Codec(settings.model.codebooks), data / f"codec-{settings.model.codebooks}.pt"
    if not path.exists():
        _fit(codec, data)
        with atomic_path(path) as temporary:
            torch.save(codec.state_dict(), temporary)
    codec.load_state_dict(torch.load(path, weights_only=True))
    said = []
    for part in ("train", "test"):
        loader = uio.Loader(codes(data, part, settings).batch(8).pad(), num_workers=settings.data.num_workers)
        found = uio.encode(uio.to_device(loader, device), codec.to(device))
        said.append(f"{part}: {found.utterances} dialogues, {found.skipped.get('encoded', 0)} before")
    return f"{data / 'codes'}: {settings.model.codebooks} codes of each channel a frame; " + "; ".join(said)


def _fit(codec: Codec, data: Path) -> None:
    frames: list[Tensor] = []
    for sample in uio.Loader(audio(data, "train", shuffle=True)):
        pcm = sample["wav"]
        feats, _ = codec.features(pcm, torch.tensor([pcm.shape[1]] * len(pcm)))
        frames.append(feats.flatten(0, 1))
        if sum(map(len, frames)) > FRAMES:
            break
    found = torch.cat(frames)
    silent = (found == FLOOR).all(1)
    codec.quantizer.fit(torch.cat([found[~silent], found[silent][:1]]))


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the dialogues.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Like model.codebooks=4; repeatable.")] = None,
) -> None:
    """Fit the codec to train, and encode all dialogues; what is encoded already is passed over."""
    with told(ConfigError, uio.UioError, OSError):
        typer.echo(encode_all(data, settings_of(override or ())))


if __name__ == "__main__":
    typer.run(main)
