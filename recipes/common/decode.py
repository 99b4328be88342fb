"""Greedy CTC decoding: ``python -m recipes.common.decode DATA EXP --split test`` writes EXP/test.hyp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

import uio_pipes as uio

from . import checkpoint
from .files import read_lines, write_lines
from .model import BLANK, CtcConformer
from .pipelines import decode_pipeline, dictionary
from .progress import follow


def greedy(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """The best label of each frame, repeats joined, blanks dropped."""
    best = log_probs.argmax(-1).cpu()
    labels = (torch.unique_consecutive(row[:length]) for row, length in zip(best, lengths.tolist(), strict=True))
    return [row[row != BLANK].tolist() for row in labels]


def decode(data: Path, exp: Path, split: str, num_workers: int = 0) -> Path:
    """Decode one part with the newest checkpoint; returns the file of ``KEY text`` lines."""
    newest = checkpoint.newest(exp)
    if newest is None:
        raise FileNotFoundError(f"no complete checkpoint in {exp / 'checkpoints'}: run recipes.common.train first")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = dictionary(data)
    model = CtcConformer(tokenizer.vocab_size).to(device).eval()
    model.load_state_dict(checkpoint.load_model(newest, device)["model"])
    loader = uio.Loader(decode_pipeline(data, split, max_frames=1_500), num_workers=num_workers)
    characters = {number: token for token, number in tokenizer.symbols.items()}
    total = len(read_lines(data / split / "data.list"))
    lines = follow(_decode_batches(model, loader, characters, device), f"decoding {split}", total)
    path = exp / f"{split}.hyp"
    write_lines(path, sorted(line for batch in lines for line in batch))
    return path


@torch.inference_mode()
def _decode_batches(
    model: CtcConformer, loader: uio.Loader, characters: dict[int, str], device: torch.device
) -> Iterator[tuple[list[str], int]]:
    for batch in loader:
        log_probs, lengths = model(batch["feats"].to(device), batch["feats_lengths"].to(device))
        texts = ["".join(characters[label] for label in labels) for labels in greedy(log_probs, lengths)]
        yield [f"{key} {text}" for key, text in zip(batch["keys"], texts, strict=True)], len(texts)


def main(
    data: Annotated[Path, typer.Argument(help="Folder that `prepare` wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder with checkpoints.")],
    split: str = "test",
    num_workers: int = 0,
) -> None:
    """Decode a part of the corpus with the newest checkpoint."""
    typer.echo(decode(data, exp, split, num_workers))


if __name__ == "__main__":
    typer.run(main)
