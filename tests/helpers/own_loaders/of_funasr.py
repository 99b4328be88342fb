"""FunASR's ``DataloaderMapStyle``: its ``AudioDataset`` with the frontend and the features of Paraformer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import funasr.datasets.audio_datasets.datasets
import funasr.datasets.audio_datasets.index_ds
import funasr.datasets.audio_datasets.samplers  # noqa: F401: they register their classes
from funasr.datasets.dataloader_entry import DataloaderMapStyle
from funasr.frontends.wav_frontend import WavFrontend
from funasr.tokenizer.char_tokenizer import CharTokenizer
from own_batches import LIST, ROWS, TOKENIZER, TOKENS, check_same

import uio_pipes as uio

frames = {row["key"]: 0 for row in ROWS}
for batch in uio.Loader(uio.from_raw_list(LIST).decode_audio().fbank(80).batch(4).pad()):
    frames |= dict(zip(batch["keys"], batch["feats_lengths"].tolist(), strict=True))
lines = [{"source": row["wav"], "target": row["txt"], "source_len": frames[row["key"]]} for row in ROWS]
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
fixed = feats.batch(4).pad(order="kept", names=names)
check_same(own(batch_type="example", batch_size=4), uio.Loader(fixed), within=1e-3)
