"""A prepared folder of noise and a model of 16 dimensions: what training takes seconds with."""

import re
from collections.abc import Sequence
from pathlib import Path

import corpus
from command import programs

from uio_pipes.tools.data.pack import PackSettings, pack

CONFIG = """
model: {num_mel_bins: 20, cmvn: false, channels: 4, dim: 16, heads: 2, feed_forward: 32, layers: 1, kernel: 7,
        decoder_layers: 1, decoder_feed_forward: 32, dropout: 0.1, ctc_weight: 0.3}
data: {sample_rate: 8000, speeds: [], min_frames: 1, shuffle: 6, sort: 0, batch: {type: static, size: 2},
       num_workers: 1, prefetch: 2}
optim: {learning_rate: 0.01, warm_up: 5}
train: {epochs: 3, save_every: 2, keep: 2, log_every: 2, accumulate: 2}
"""

# The same in a whole recipe, on a mini corpus.
RECIPE = """
model: {num_mel_bins: 20, channels: 4, dim: 16, heads: 2, feed_forward: 16, layers: 1, kernel: 3,
        decoder_layers: 1, decoder_feed_forward: 16, dropout: 0.0}
data: {speeds: [], spec_aug: null, shuffle: 100, sort: 0, num_workers: 0, batch: {type: static, size: 8}}
optim: {learning_rate: 0.01, warm_up: 5}
train: {epochs: 2, save_every: 3, log_every: 1}
"""
CTC_ALONE = ["--set", "model.decoder_layers=0", "--set", "model.ctc_weight=1"]

SIZES = (9, 8, 7, 9, 6)


def run_recipe(name: str, folder: Path, *options: str) -> str:
    """Run a recipe and its stages in processes of their own; return what they say. Its results are in FOLDER/out."""
    config = folder / "tiny.yaml"
    config.write_text(RECIPE)
    common = ["--out", str(folder / "out"), "--config", str(config), "--hours", "0.015", "--nproc", "1"]
    return programs("-m", f"recipes.{name}.run", *common, *options)


def modes_in_table(said: str, rate: str) -> list[str]:
    """The decoding modes with an error rate, in a recipe's summary."""
    return re.findall(r"^│ (\w+) +│ +\d+\.\d\d +│", said[said.index(f"{rate} %") :], re.MULTILINE)


def prepare(root: Path, sizes: Sequence[int] = SIZES) -> Path:
    """Write the files of stages 0 to 3 that training reads, and ``config.yaml``; return the folder."""
    data = root / "data"
    for split, shards in (("train", sizes), ("dev", sizes[:2])):
        made = corpus.shards(data / split, shards, seconds=(0.3, 1.0))
        made.list.rename(data / split / "shards.list")
        raw = corpus.raw_list(data / split, sum(shards))
        listed = raw.list.rename(data / split / "data.list")
        settings = PackSettings(10, sample_rate=None, to="indexed")
        pack(listed, data / split / "indexed", data / split / "indexed.list", settings)
    (data / "dict").mkdir()
    tokens = ["<blank>", "<unk>", "<sos/eos>", "文", *"0123456789"]
    (data / "dict" / "lang_char.txt").write_text("".join(f"{t} {i}\n" for i, t in enumerate(tokens)))
    (root / "config.yaml").write_text(CONFIG)
    return data
