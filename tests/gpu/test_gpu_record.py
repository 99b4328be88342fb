"""``uio.Recorder`` on a GPU: it takes the losses of the step, however far the host is ahead of the device."""

from pathlib import Path

import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.inspect.record import read_record

pytest.importorskip("pyarrow", reason="the record is in Parquet files: pip install 'uio_pipes[parquet]'")
SLEEP = 20_000_000  # clock cycles, about 10 milliseconds


def test_losses_are_those_of_the_step(plain_corpus: Corpus, tmp_path: Path, device: torch.device) -> None:
    graph = uio.from_shard_list(plain_corpus.list).decode_audio().fbank(8).batch(2).pad()
    loader = uio.to_device(uio.Loader(graph, num_workers=1), device)
    expected: dict[str, float] = {}
    with uio.Recorder(tmp_path / "record", loader) as record:
        for step, batch in enumerate(loader):
            losses = torch.full((len(batch["keys"]),), -1.0, device=device)
            if device.type == "cuda":
                torch.cuda._sleep(SLEEP)
            losses.copy_(batch["feats_lengths"])
            record.log(batch, step=step, loss=losses.to(torch.bfloat16), norm=losses.sum())
            losses.zero_()  # the memory is used again before the numbers have left the device
            lengths = batch["feats_lengths"].to(torch.bfloat16).tolist()
            expected |= dict(zip(batch["keys"], lengths, strict=True))
    found = read_record(tmp_path / "record").to_pydict()
    assert dict(zip(found["key"], found["loss"], strict=True)) == expected
    assert len(expected) > 10
