"""Export a model for use outside Python, load it again and compare: ``python -m recipes.common.export EXP``.

::

    EXP/export/encoder.pt2         torch.export (AOTInductor, ExecuTorch, …): feats (B, T, F), lengths (B,) →
                                   CTC log-probabilities (B, T', V), memory (B, T', D), its lengths (B,)
    EXP/export/decoder.pt2         memory, its lengths, tokens (B, U) that begin with <sos/eos> →
                                   log-probabilities (B, U, V); only where the model has a decoder
    EXP/export/model.torchscript   both, for LibTorch: forward and the method ``decoder``
    EXP/export/lang_char.txt       the dictionary (and spm.model)

B, T and U may have any size (T from 5 frames up). The normalization by global CMVN is part of the model.
"""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

import uio_pipes as uio
from uio_pipes.io.files import atomic_path

from .config import Config
from .experiment import NotTrained, load_model, read_tokenizer
from .model import BLANK, AsrModel
from .pipelines import source
from .problems import told

__all__ = ["ExportMismatch", "compare", "export"]

TOLERANCE = 1e-4
_BATCH, _FRAMES, _TOKENS = Dim("batch", min=1), Dim("frames", min=5), Dim("tokens", min=1)


class ExportMismatch(Exception):
    """The results of the exported model are not those of the model."""


class Encoder(nn.Module):
    """The module that becomes ``encoder.pt2``."""

    def __init__(self, model: AsrModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return CTC log-probabilities, memory, and the lengths of both."""
        memory, lengths = self.model.encode(feats, lengths)
        return self.model.ctc_log_probs(memory), memory, lengths


class Decoder(nn.Module):
    """The module that becomes ``decoder.pt2``."""

    def __init__(self, model: AsrModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, memory: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        """Return log-probabilities."""
        return self.model.decoder_log_probs(memory, lengths, tokens)


class Scripted(Encoder):
    """The module that becomes ``model.torchscript``."""

    @torch.jit.export
    def decoder(self, memory: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        """Return log-probabilities."""
        return self.model.decoder_log_probs(memory, lengths, tokens)


def export(exp: Path, which: str = "average") -> list[Path]:
    """Write the files; return their paths."""
    model, _, _ = load_model(exp, which, torch.device("cpu"))
    folder = exp / "export"
    batch: Any = (torch.zeros(2, 64, model.mean.numel()), torch.tensor([64, 48], dtype=torch.int32))
    shapes: Any = ({0: _BATCH, 1: _FRAMES}, {0: _BATCH})
    written = [_export(Encoder(model), batch, shapes, folder / "encoder.pt2")]
    if model.decoder is not None:
        memory, lengths = model.encode(*batch)
        tokens = torch.full((2, 3), model.sos)
        shapes = ({0: _BATCH, 1: Dim("memory", min=2)}, {0: _BATCH}, {0: _BATCH, 1: _TOKENS})
        written.append(_export(Decoder(model), (memory, lengths, tokens), shapes, folder / "decoder.pt2"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript will end one day
        scripted: Any = torch.jit.script(Scripted(model) if model.decoder is not None else Encoder(model))
        with atomic_path(folder / "model.torchscript") as temporary:
            torch.jit.save(scripted, str(temporary))
    for name in ("lang_char.txt", "spm.model"):
        if (exp / name).is_file():
            shutil.copyfile(exp / name, folder / name)
    return [*written, folder / "model.torchscript"]


def _export(module: nn.Module, inputs: Any, shapes: Any, path: Path) -> Path:
    with torch.no_grad():
        # Guards on shapes that the solver cannot prove become checks at run time: they hold for all sizes.
        program = torch.export.export(
            module.eval(), inputs, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
        )
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        torch.export.save(program, file)
    return path


@torch.inference_mode()
def compare(exp: Path, which: str, batches: Iterable[dict[str, Any]]) -> tuple[int, float]:
    """Load the exported files and run them beside the model: greedy texts must be equal, numbers equal to 1e-4.

    Returns the number of utterances and the largest difference of a log-probability. Raises: ExportMismatch.
    """
    model, _, _ = load_model(exp, which, torch.device("cpu"))
    folder, eager = exp / "export", Encoder(model)
    load: Any = torch.jit.load
    encoders: dict[str, Any] = {
        "encoder.pt2": torch.export.load(str(folder / "encoder.pt2")).module(),
        "model.torchscript": load(str(folder / "model.torchscript")),
    }
    decoders: dict[str, Any] = {}
    if model.decoder is not None:
        decoders["decoder.pt2"] = torch.export.load(str(folder / "decoder.pt2")).module()
        decoders["model.torchscript, decoder"] = encoders["model.torchscript"].decoder
    count, largest = 0, 0.0
    for batch in batches:
        feats, lengths = batch["feats"], batch["feats_lengths"]
        log_probs, memory, sizes = eager(feats, lengths)
        for name, encoder in encoders.items():
            other = encoder(feats, lengths)[0]
            for row, its, size in zip(log_probs, other, sizes, strict=True):
                largest = max(largest, _check(row[:size], its[:size], name, texts=True))
        tokens = _tokens(batch, model.sos)
        for name, decoder in decoders.items():
            expected = model.decoder_log_probs(memory, sizes, tokens)
            largest = max(largest, _check(expected, decoder(memory, sizes, tokens), name, texts=False))
        count += len(feats)
    return count, largest


def _check(expected: Tensor, found: Tensor, name: str, texts: bool) -> float:
    difference = float((expected - found).abs().max())
    if not difference <= TOLERANCE:
        raise ExportMismatch(f"{name} differs from the model by {difference:.2g}, more than {TOLERANCE:.0e}")
    if texts and not torch.equal(_greedy(expected), _greedy(found)):
        raise ExportMismatch(f"{name} reads another text than the model")
    return difference


def _greedy(log_probs: Tensor) -> Tensor:
    best: Tensor = torch.unique_consecutive(log_probs.argmax(-1))
    return best[best != BLANK]


def _tokens(batch: dict[str, Any], sos: int) -> Tensor:
    target: Tensor = batch["target"]
    tokens: Tensor = functional.pad(target.masked_fill(target < 0, sos), (1, 0), value=sos)
    return tokens


def synthetic_batches(model: AsrModel) -> list[dict[str, Any]]:
    """Return noise of the mean and variance of the corpus, in batches of several shapes."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 5), (1, 333), (3, 64), (8, 200))
    batches = []
    for size, frames in shapes:
        feats = torch.randn(size, frames, model.mean.numel(), generator=generator) / model.istd + model.mean
        lengths = torch.linspace(frames, max(5, frames // 2), size).to(torch.int32)
        target = torch.randint(1, model.vocab_size, (size, 7), generator=generator)
        batches.append({"feats": feats, "feats_lengths": lengths, "target": target})
    return batches


def real_batches(exp: Path, lists: str, data_type: str, config: Config, count: int = 10) -> Iterable[dict[str, Any]]:
    """Return the first batches of a list."""
    pipeline = source(lists, data_type, shuffle=False).decode_audio().resample(config.data.sample_rate)
    pipeline = pipeline.tokenize(read_tokenizer(exp)).fbank(num_mel_bins=config.model.num_mel_bins)
    return itertools.islice(uio.Loader(pipeline.batch(8).pad()), count)


def main(
    exp: Annotated[Path, typer.Argument(help="Folder of the experiment.")],
    which: Annotated[str, typer.Option(help="average, latest, or a file of epochs/.")] = "average",
    check: Annotated[str, typer.Option(help="A list to compare with; without it, noise.")] = "",
    data_type: Annotated[str, typer.Option(help="Form of that list: raw, shard or indexed.")] = "shard",
) -> None:
    """Export a model, load it again, and compare it with the model itself."""
    with told(NotTrained, ExportMismatch, uio.UioError):
        for path in export(exp, which):
            typer.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
        model, _, config = load_model(exp, which, torch.device("cpu"))
        batches = real_batches(exp, check, data_type, config) if check else synthetic_batches(model)
        count, largest = compare(exp, which, batches)
        typer.echo(f"loaded again: {count} utterances, greedy texts equal, log-probabilities within {largest:.1g}")


if __name__ == "__main__":
    typer.run(main)
