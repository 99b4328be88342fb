"""NeMo's loaders of a CTC model: the one of Lhotse (``use_lhotse: true``) and the older one."""

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import soundfile
from nemo.collections.asr.models import EncDecCTCModel
from omegaconf import OmegaConf
from own_batches import ROWS, TOKENS, check_same

import uio_pipes as uio

tokens = [line.split()[0] for line in Path(TOKENS).read_text().splitlines()][1:]
lines = [
    {"audio_filepath": row["wav"], "text": row["txt"], "duration": soundfile.info(row["wav"]).duration} for row in ROWS
]
Path("manifest.json").write_text("\n".join(map(json.dumps, lines)))
MODEL: Any = types.SimpleNamespace(
    cfg=OmegaConf.create({"sample_rate": 16000, "labels": tokens}), _cfg={}, local_rank=0, global_rank=0, world_size=1
)


def own(**given: Any) -> Iterator[dict[str, Any]]:
    config = {"manifest_filepath": "manifest.json", "batch_size": 4, "shuffle": False, "num_workers": 0}
    config |= {"parser": "base", **given}  # which leaves texts as they are; that of English is the default
    for batch in EncDecCTCModel._setup_dataloader_from_config(MODEL, OmegaConf.create(config)):
        yield dict(zip(("pcm", "pcm_length", "target", "target_lengths"), batch, strict=True))


tokenizer = uio.CharTokenizer({token: label for label, token in enumerate(tokens)})
corpus = uio.from_nemo("manifest.json").decode_audio().tokenize(tokenizer).batch(4)
ours = corpus.pad(order="kept", lengths="int64", value={"target": 0})
check_same(own(), uio.Loader(ours))
check_same(own(use_lhotse=True, force_finite=True, use_bucketing=False), uio.Loader(ours))
