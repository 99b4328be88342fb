"""A frozen model that makes codes; as a program, a run of ``uio.encode`` that its parent kills: LIST CACHE."""

import sys
import time

import torch

import uio_pipes as uio

HOP = 320


class Codec(torch.nn.Module):
    """Whole numbers for every ``HOP`` samples; ``called`` counts utterances."""

    def __init__(self, scale: float = 100.0) -> None:
        super().__init__()
        self.window = torch.nn.Parameter(torch.linspace(0.0, scale, HOP))
        self.called = 0

    def forward(self, pcm: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.training:
            raise RuntimeError("a frozen model must be in evaluation mode")
        self.called += len(pcm)
        whole = pcm[:, : pcm.shape[1] // HOP * HOP].unflatten(1, (-1, HOP))
        return (whole * self.window).sum(2).round().int(), lengths // HOP


def encoded(path: str, cache: str) -> uio.Pipeline:
    return uio.from_shard_list(path, shuffle=True).decode_audio().encoded(cache, ["codes"], by="codec")


def to_encode(path: str, cache: str) -> uio.Pipeline:
    return encoded(path, cache).sort(6).batch(3).pad()


class Slow(Codec):
    """Tells its parent of each batch, so that it can kill this process in the middle."""

    def forward(self, pcm: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        print(len(pcm), flush=True)
        time.sleep(0.05)
        return super().forward(pcm, lengths)


if __name__ == "__main__":
    print(uio.encode(uio.Loader(to_encode(*sys.argv[1:]), seed=3), Slow()))
