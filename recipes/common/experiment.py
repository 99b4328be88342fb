"""The folder of an experiment: everything that is needed to use its models, even when the data is gone.

::

    EXP/config.yaml         all keys                   EXP/checkpoints/step_00000120/…   to continue training from
    EXP/lang_char.txt       a token and its id a line  EXP/epochs/epoch_003.pt           model, valid_loss, epoch, step
    EXP/spm.model           if tokens are pieces       EXP/average.pt                    written by `average`
    EXP/global_cmvn         if the model normalizes    EXP/tensorboard/, EXP/*.hyp
    EXP/watch/              for `uio watch EXP`
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

import uio_pipes as uio
from uio_pipes.dsp.features import Cmvn, read_cmvn
from uio_pipes.io.files import atomic_path
from uio_pipes.tokenizers import read_symbols

from . import checkpoint
from .config import Config, ConfigError
from .model import AsrModel

__all__ = ["NotTrained", "build_model", "eos_of", "load_model", "read_tokenizer", "set_up"]

Tokens = uio.CharTokenizer | uio.SentencePieceTokenizer
SOS_EOS = "<sos/eos>"


class NotTrained(Exception):
    """The experiment does not have this model yet; the message says what makes it."""


def read_tokenizer(folder: Path) -> Tokens:
    """Return a tokenizer for the characters of ``lang_char.txt``, or for pieces if ``spm.model`` is beside it (the
    labels are those of the table).

    Raises: uio.ListError if there is no table.
    """
    table, pieces = folder / "lang_char.txt", folder / "spm.model"
    if not table.is_file():
        raise uio.ListError(f"there is no {table}: stage 2 writes it (the dictionary)")
    return uio.SentencePieceTokenizer(pieces) if pieces.is_file() else uio.CharTokenizer(table)


def eos_of(folder: Path) -> int:
    """Return the label of <sos/eos>. Raises: uio.ListError if the dictionary lacks it."""
    table = read_symbols(folder / "lang_char.txt")
    if SOS_EOS not in table:
        raise uio.ListError(f"{folder / 'lang_char.txt'} has no {SOS_EOS}, which begins and ends a text; add it")
    return table[SOS_EOS]


def set_up(exp: Path, data: Path, config: Config) -> None:
    """Make the folder, or check that it has the same model and dictionary. Raises: ConfigError, uio.ListError."""
    known = exp / "config.yaml"
    if known.is_file() and (before := Config.load(known).model) != config.model:
        raise ConfigError(
            f"{exp} holds an experiment with another model ({_difference(before, config.model)}); take another folder, "
            "or the configuration with which it began"
        )
    read_tokenizer(data / "dict")
    for source in _files(data, config):
        _keep(source, exp / source.name)
    config.save(known)


def _files(data: Path, config: Config) -> list[Path]:
    files = [data / "dict" / "lang_char.txt"]
    if (data / "dict" / "spm.model").is_file():
        files.append(data / "dict" / "spm.model")
    if config.model.cmvn:
        files.append(data / "global_cmvn")
        read_cmvn(files[-1])
    return files


def _keep(source: Path, target: Path) -> None:
    """Copy a file; one that an experiment began with must not change later."""
    if target.is_file():
        if target.read_bytes() != source.read_bytes():
            raise ConfigError(f"{source} differs from {target}, which the experiment began with; take another folder")
        return
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _difference(before: object, now: object) -> str:
    changed = (f"{name}: {old!r} then, {vars(now)[name]!r} now" for name, old in vars(before).items())
    return ", ".join(
        text for text, old in zip(changed, vars(before).items(), strict=True) if vars(now)[old[0]] != old[1]
    )


def build_model(exp: Path, config: Config) -> AsrModel:
    """Build the model with initial weights, from torch's random state."""
    cmvn: Cmvn | None = read_cmvn(exp / "global_cmvn") if config.model.cmvn else None
    return AsrModel(config.model, read_tokenizer(exp).vocab_size, cmvn, eos_of(exp))


def load_model(exp: Path, which: str | Path, device: torch.device) -> tuple[AsrModel, Tokens, Config]:
    """Load a model for use: "average", "latest" (checkpoint), or a file of ``epochs/``.

    Raises: NotTrained if there is none.
    """
    if not (exp / "config.yaml").is_file():
        raise NotTrained(f"{exp} is not an experiment (it has no config.yaml): train first (stage 4)")
    config = Config.load(exp / "config.yaml")
    model = build_model(exp, config)
    model.load_state_dict(_weights(exp, which, device)["model"])
    return model.to(device).eval(), read_tokenizer(exp), config


def _weights(exp: Path, which: str | Path, device: torch.device) -> dict[str, Any]:
    if which == "latest":
        newest = checkpoint.newest(exp)
        if newest is None:
            raise NotTrained(f"{exp} has no complete checkpoint: train first (stage 4)")
        return checkpoint.load_model(newest, device)
    path = exp / "average.pt" if which == "average" else Path(which)
    if not path.is_file():
        remedy = "python -m recipes.common.average makes it (stage 5)" if which == "average" else "see its epochs/"
        raise NotTrained(f"there is no model {path}: {remedy}, or take the latest")
    weights: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return weights
