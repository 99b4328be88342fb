"""FunASR's ``DataloaderMapStyle``: its ``AudioDataset`` with the frontend and the features of Paraformer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import soundfile
from funasr.datasets.dataloader_entry import DataloaderMapStyle
from funasr.frontends.wav_frontend import WavFrontend
from funasr.tokenizer.char_tokenizer import CharTokenizer
from own_batches import LIST, ROWS, TOKENIZER, TOKENS, check_same

import uio_pipes as uio

frames = [-(-((soundfile.info(row["wav"]).frames - 240) // 160) // 6) for row in ROWS]  # one for six
lines = [
    {"source": row["wav"], "target": row["txt"], "source_len": length} for row, length in zip(ROWS, frames, strict=True)
]
Path("train.jsonl").write_text("\n".join(map(json.dumps, lines)))
tokens = [line.split()[0] for line in Path(TOKENS).read_text().splitlines()]


def own(**conf: Any) -> Iterator[dict[str, Any]]:
    given = {"index_ds": "IndexDSJsonl", "batch_sampler": "BatchSampler", "num_workers": 0, "shuffle": False, **conf}
    loader = DataloaderMapStyle(
        WavFrontend(dither=0, lfr_m=7, lfr_n=6),
        CharTokenizer(token_list=tokens),
        dataset="AudioDataset",
        train_data_set_list="train.jsonl",
        valid_data_set_list="train.jsonl",
        dataset_conf=given,
    )
    for batch in loader.build_iter()[0]:  # its lengths are (B, 1)
        yield {name: value.squeeze(1) if "lengths" in name else value for name, value in batch.items()}


feats = uio.from_raw_list(LIST).decode_audio().fbank(80, window_type="hamming").stack(7, 6).tokenize(TOKENIZER)
names = {"feats": "speech", "feats_lengths": "speech_lengths", "target": "text", "target_lengths": "text_lengths"}
fixed, sized = feats.batch(4), feats.sort(48).dynamic_batch(max_frames=120)
for conf, batches, count in (
    ({"batch_type": "example", "batch_size": 4}, fixed, 12),
    ({"batch_type": "token", "batch_size": 120, "sort_size": 48}, sized, 14),
):
    check_same(own(**conf), uio.Loader(batches.pad(order="kept", names=names)), count, within=2e-3)
