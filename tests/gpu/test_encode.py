"""``uio.encode`` on a GPU: its codes are those of the model run by hand on the same batches, and are made once."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from corpus import Corpus
from encoding import Codec

import uio_pipes as uio


class Encoder(torch.nn.Module):
    """Convolutions as a codec has them, and the nearest of 64 entries of a codebook."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv1d(1, 32, 40, 20), torch.nn.GELU(), torch.nn.Conv1d(32, 64, 16, 16)
        )
        self.register_buffer("entries", torch.randn(64, 64))
        self.called = 0

    def forward(self, pcm: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.called += len(pcm)
        frames = self.convolutions(pcm.unsqueeze(1)).transpose(1, 2).float()
        entries = self.get_buffer("entries")
        codes = torch.cdist(frames, entries.expand(len(pcm), -1, -1)).argmin(2)
        return codes, ((lengths - 40) // 20 + 1) // 16


def pipeline(corpus: Corpus, cache: Path) -> uio.Pipeline:
    audio = uio.from_shard_list(corpus.list, shuffle=True).decode_audio()
    return audio.encoded(cache, ["codes"], by="encoder").sort(10).dynamic_batch(800)


def read(graph: uio.Pipeline) -> dict[str, torch.Tensor]:
    found = {}
    for batch in uio.Loader(graph.pad(keep=["codes"]), seed=3, num_workers=1):
        rows = zip(batch["keys"], batch["codes"], batch["codes_lengths"].tolist(), strict=True)
        found |= {key: row[:length] for key, row, length in rows}
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_codes_are_those_of_the_model_by_hand(
    plain_corpus: Corpus, tmp_path: Path, device: torch.device, workers: int, precision: str, deterministic: None
) -> None:
    model = Encoder().to(device)
    graph = pipeline(plain_corpus, tmp_path / "cache")
    loader = uio.to_device(uio.Loader(graph.pad(), seed=3, lanes=2, num_workers=workers, pin_memory=True), device)
    reduced = torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
    with reduced:
        first = uio.encode(loader, model)
        again = uio.encode(loader, model)
    assert (first.utterances, first.failures) == (model.called, 0)
    assert first.utterances > 10
    assert (again.utterances, again.skipped) == (0, {"encoded": first.utterances})

    found, expected = read(graph), {}
    plain = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().sort(10).dynamic_batch(800).pad()
    with reduced, torch.no_grad():
        for batch in uio.to_device(uio.Loader(plain, seed=3, lanes=2), device):
            codes, lengths = model.eval()(batch["pcm"], batch["pcm_length"])
            for key, row, length in zip(batch["keys"], codes.cpu(), lengths.tolist(), strict=True):
                expected[key] = row[:length]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in found)


@pytest.mark.gpu
def test_what_a_gpu_has_encoded_a_cpu_passes_over(plain_corpus: Corpus, tmp_path: Path) -> None:
    loader = uio.Loader(pipeline(plain_corpus, tmp_path / "cache").pad(), seed=3)
    on_cpu, on_gpu = Codec(), Codec().cuda()
    made = uio.encode(uio.to_device(loader, "cuda"), on_gpu)
    assert made.utterances == on_gpu.called > 0
    assert uio.encode(uio.to_device(loader, "cpu"), on_cpu).skipped == {"encoded": made.utterances}
    assert on_cpu.called == 0
