"""How a padded batch is handed to a model: by which names, with which padding, masks, lengths and axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from uio_pipes.base.checks import is_number, nearest, require
from uio_pipes.base.errors import PipelineError

FEATS = "feats"
LENGTHS = {"int32": torch.int32, "int64": torch.int64}


def check_outputs(stage: str, value: Any, names: Any, lengths: Any) -> None:
    """Raises: PipelineError if an argument of ``pad`` that only says how the batch looks breaks a rule."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    rule = "value must be a number for the features, or numbers by the outputs that they pad"
    require(all(map(is_number, values)), stage, rule, value, 'as in {"feats": 0.0, "target": -100}')
    require(lengths in LENGTHS, stage, "lengths must be int32 or int64", lengths, "models of Hugging Face take int64")
    if names is None:
        return
    rule = "names must be new names by the outputs that get them, or None for outputs to leave out"
    ok = isinstance(names, Mapping) and all(isinstance(one, str) and one for one in names)
    ok = ok and all(new is None or (isinstance(new, str) and new) for new in names.values())
    require(ok, stage, rule, names, 'as in {"feats": "input_features", "keys": None}')
    new = [name for name in names.values() if name is not None]
    require(len(set(new)) == len(new), stage, "names must give each output a name of its own", names, "change one")


@dataclass(frozen=True)
class Outputs:
    """What ``pad`` does to the outputs of a batch once they are made; arguments as those of ``Pad``."""

    value: float | Mapping[str, float] = 0.0
    mask: bool = False
    names: Mapping[str, str | None] | None = None
    lengths: str = "int32"
    transpose: bool = False

    def padding(self, name: str, usual: float) -> float:
        """Return what the output ``name`` is padded with; ``usual``: if nothing is said of it."""
        if isinstance(self.value, Mapping):
            return self.value.get(name, usual)
        return self.value if _are_features(name) else usual

    def paddings(self, name: str, whole: float) -> tuple[float, float]:
        """Return what an output is padded with if it has floats, and if it has whole numbers; ``whole``: usually."""
        return self.padding(name, 0.0), self.padding(name, whole)

    def of(self, batch: dict[str, Any], lengths_of: Mapping[str, str]) -> dict[str, Any]:
        """Return the batch as the model takes it. ``lengths_of``: names of lengths by the outputs that have them.

        Raises: PipelineError if ``names`` or ``value`` has an output that the batch lacks, or two have one name.
        """
        if isinstance(self.value, Mapping):
            _check_there("value", self.value, batch)
        for name, lengths in lengths_of.items():
            batch[lengths] = batch[lengths].to(LENGTHS[self.lengths])
            if self.mask:
                places = torch.arange(batch[name].shape[1])
                batch[f"{name}_mask"] = places < batch[lengths][:, None]
            if self.transpose and _are_features(name):
                batch[name] = batch[name].transpose(1, 2).contiguous()
        return batch if self.names is None else self._named(batch, self.names)

    def _named(self, batch: dict[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
        _check_there("names", names, batch)
        named = {name: names.get(name, name) for name in batch}
        made = {new: batch[name] for name, new in named.items() if new is not None}
        if len(made) < sum(new is not None for new in named.values()):
            raise PipelineError(f"pad: names={dict(names)!r} gives two outputs of {', '.join(batch)} the same name")
        return made


def _are_features(name: str) -> bool:
    return name == FEATS or name.endswith(f"_{FEATS}")


def _check_there(argument: str, given: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    for name in given:
        if name not in batch:
            near = nearest(name, batch)
            hint = f"; did you mean {near!r}?" if near else ""
            raise PipelineError(f"pad: {argument} has {name!r}, but the batch has {', '.join(batch)}{hint}")
