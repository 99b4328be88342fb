"""Trains a small model, saves a checkpoint and is killed later: ``trained_and_killed.py DEVICE LIST CHECKPOINT``."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import uio_pipes as uio

SAVED, KILLED = 4, 7


class Training:
    """Features with dither on the device, two layers under autocast, Adam."""

    def __init__(self, device: str, shards: str) -> None:
        torch.manual_seed(1)
        self.device = device
        graph = uio.from_shard_list(shards, shuffle=True).decode_audio().speed_perturb().shuffle(7).batch(2)
        self.loader = uio.to_device(uio.Loader(graph.pad(), seed=5, num_workers=2), device)
        self.fbank = uio.FbankModule(40, dither=1.0).to(device)
        layers = torch.nn.Conv1d(40, 64, 3, padding=1), torch.nn.GELU(), torch.nn.Conv1d(64, 40, 3, padding=1)
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def steps(self) -> Iterator[str]:
        """Train; yield the keys of each batch and every bit of its loss."""
        for batch in self.loader:
            with torch.autocast(self.device, dtype=torch.bfloat16):
                feats, _ = self.fbank(batch["pcm"], batch["pcm_length"])
                loss = (self.model(feats.transpose(1, 2)) - feats.transpose(1, 2)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            yield f"{batch['keys']} {loss.item().hex()}"

    def save(self, path: Path) -> None:
        states = {"loader": self.loader, "model": self.model, "optimizer": self.optimizer}
        saved: dict[str, Any] = {name: part.state_dict() for name, part in states.items()}
        torch.save(saved | {"rng": self._rng().get_state()}, path)

    def load(self, path: Path) -> None:
        saved = torch.load(path)
        for name in ("loader", "model", "optimizer"):
            getattr(self, name).load_state_dict(saved[name])
        self._rng().set_state(saved["rng"].cpu())

    def _rng(self) -> torch.Generator:
        return torch.cuda.default_generators[0] if self.device == "cuda" else torch.default_generator


def main(device: str, shards: str, checkpoint: str) -> None:
    torch.use_deterministic_algorithms(True)
    training = Training(device, shards)
    for number, _ in enumerate(training.steps(), 1):
        if number == SAVED:
            training.save(Path(checkpoint))
        if number == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
