"""The encoder of docs/packed.md gives for packed utterances what its weights give for a padded batch."""

import sys
from pathlib import Path
from typing import Any

import pages
import pytest
import torch
from command import uio as command

import uio_pipes as uio

PAGE = Path(__file__).parents[1] / "docs" / "packed.md"


def padded(module: Any, encoder: Any, feats: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs of rows (B, T', size), and which of them are there (B, T')."""
    x = encoder.subsample(feats[:, None])
    x = encoder.project(x.transpose(1, 2).flatten(2))
    there = torch.arange(x.shape[1]) < module.steps(lengths)[:, None]
    x = x + module.positions(torch.arange(x.shape[1]).float(), x.shape[2])
    for layer in encoder.layers:
        rows = layer.qkv(layer.norm(x)).unflatten(2, (3, layer.heads, -1))
        q, k, v = rows.permute(2, 0, 3, 1, 4)
        heard = torch.nn.functional.scaled_dot_product_attention(q, k, v, there[:, None, None])
        x = x + layer.out(heard.transpose(1, 2).flatten(2))
        silent = x.masked_fill(~there[:, :, None], 0.0)
        x = x + layer.conv(silent.transpose(1, 2)).transpose(1, 2)
    return x, there


def test_packed_outputs_are_those_of_the_padded_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(block.code for block in pages.blocks(PAGE) if block.code.startswith("# encoder.py"))
    (tmp_path / "encoder.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "encoder", raising=False)
    import encoder as module

    assert command("example", ".", cwd=tmp_path).returncode == 0
    encoder = module.Encoder()
    corpus = uio.from_shard_list("data/shards.list").decode_audio().fbank(80)
    wanted = {}
    for batch in uio.Loader(corpus.batch(6).pad()):
        made, there = padded(module, encoder, batch["feats"], batch["feats_lengths"])
        for key, row, mask in zip(batch["keys"], made, there, strict=True):
            wanted[key] = row[mask]
    assert len(wanted) == 48
    for batch in uio.Loader(corpus.pack(max_frames=1_000, multiple_of=8, fixed=True)):
        made, ends = encoder(batch["feats"], batch["feats_lengths"], batch["cu_seqlens"])
        for i, key in enumerate(batch["keys"]):
            assert torch.allclose(made[ends[i] : ends[i + 1]], wanted.pop(key), rtol=0, atol=1e-5), key
    assert not wanted
