"""Transcribe a part of the corpus greedily, and score it: ``python -m recipes.speech_lm.decode DATA EXP``.

The newest checkpoint is used. EXP gets ``test.hyp`` (``KEY text`` a line) and ``test.cer`` (alignments and error rate).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional

import uio_pipes as uio
from uio_pipes.io.files import write_lines

from ..common import checkpoint
from ..common.experiment import NotTrained, eos_of, read_tokenizer
from ..common.problems import told
from ..common.score import Score, write_report
from ..common.strict import read
from .config import Settings
from .data import one_a_row, pipeline
from .model import IGNORE, SpeechLM, targets
from .train import PROBLEMS

__all__ = ["decode", "greedy", "main"]

ROOM = 40  # tokens of a transcript at most


@torch.no_grad()
def greedy(model: SpeechLM, batch: dict[str, Any], eos: int, room: int = ROOM) -> list[list[int]]:
    """Return the likeliest tokens of each part after its prompt, up to ``eos``, but ``room`` at most.

    The prompt of a part is all before its first label; what comes later is not looked at.
    """
    batch = one_a_row(batch)
    last = (targets(batch) != IGNORE).long().argmax(1)  # place of the prompt
    seen = torch.arange(batch["tokens"].size(1), device=last.device) <= last.unsqueeze(1)
    pasts: list[list[Tensor]] = [[] for _ in model.decoder]
    logits = model.decode(batch, model.encode(batch), pasts)[torch.arange(len(last)), last]
    found = [logits.argmax(-1)]
    while len(found) < room and not (torch.stack(found) == eos).any(0).all():
        seen = functional.pad(seen, (0, 1), value=True)
        found.append(model.step(found[-1], last + len(found), seen, pasts).argmax(-1))
    texts: list[list[int]] = torch.stack(found, 1).tolist()
    return [text[: text.index(eos)] if eos in text else text for text in texts]


def decode(data: Path, exp: Path, part: str = "test") -> Score:
    """Transcribe a part and score it. Raises: NotTrained, and any of ``PROBLEMS``."""
    newest = checkpoint.newest(exp)
    if newest is None:
        raise NotTrained(f"{exp} has no complete checkpoint: train first (python -m recipes.speech_lm.train)")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    saved, tokenizer = checkpoint.load_model(newest, device), read_tokenizer(data / "dict")
    settings = read(Settings, saved["settings"])
    model = SpeechLM(settings.model, tokenizer.vocab_size).to(device)
    model.load_state_dict(saved["model"])
    lines = []
    for batch in uio.to_device(uio.Loader(pipeline(data, part, settings)), device):
        texts = map(tokenizer.detokenize, greedy(model, batch, eos_of(data / "dict")))
        lines += [f"{key} {text}" for key, text in zip(batch["keys"], texts, strict=True)]
    write_lines(exp / f"{part}.hyp", sorted(lines))
    return write_report(exp / f"{part}.cer", data / part / "text", exp / f"{part}.hyp")


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 of an ASR recipe wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder of the experiment.")],
    part: Annotated[str, typer.Option(help="Folder of DATA to transcribe.")] = "test",
) -> None:
    """Transcribe a part of the corpus by the newest checkpoint, and print its error rate."""
    with told(*PROBLEMS, NotTrained):
        typer.echo(f"{exp / part}.hyp, {part}.cer: CER {decode(data, exp, part)}")


if __name__ == "__main__":
    typer.run(main)
