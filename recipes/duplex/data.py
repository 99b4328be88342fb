"""From the list of dialogues to batches of streams: text, the model's codes, the user's codes."""

from __future__ import annotations

from pathlib import Path

import uio_pipes as uio

from .config import Settings
from .script import ANSWERS

__all__ = ["EPAD", "PAD", "RATE", "SAMPLE_RATE", "TOKENIZER", "audio", "batches", "codes", "streams"]

SAMPLE_RATE = 16_000
RATE = 12.5  # frames of the codec in a second
EPAD, PAD = 0, 3  # of the text stream, as align has them: the frame before a word, and others without one
TEXT, PADDING = 4.0, 0.1  # weights of text among the losses, and of its padding in turn: words are rare
WORDS = sorted({word for kind in ANSWERS for answer in kind.values() for word in answer.split()})
TOKENIZER = uio.CharTokenizer(
    {"<epad>": EPAD, "<unk>": 1, "<pad>": PAD, **{word: 4 + number for number, word in enumerate(WORDS)}},
    split_with_space=True,
)


def audio(data: Path, part: str, shuffle: bool = False) -> uio.Pipeline:
    """Dialogues with their timelines, and both channels (2, S)."""
    return uio.from_moshi(data / f"{part}.jsonl", shuffle=shuffle).decode_audio(channel=[0, 1]).resample(SAMPLE_RATE)


def codes(data: Path, part: str, settings: Settings, shuffle: bool = False) -> uio.Pipeline:
    """The codes of both in their place: see ``codec``."""
    return audio(data, part, shuffle).encoded(data / "codes", ["feat"], by=f"{settings.model.codebooks} codebooks")


def streams(data: Path, part: str, settings: Settings, shuffle: bool = False) -> uio.Pipeline:
    """The text stream above the codes; the first codebook on time, the others a frame later. Crops for training."""
    graph = codes(data, part, settings, shuffle).align(TOKENIZER, RATE)
    if shuffle:
        graph = graph.random_crop(max_frames=round(settings.data.seconds * RATE))
    count = settings.model.codebooks
    late = [0] + [1] * (count - 1)
    weights = [TEXT, *[1.0] * count, *[0.0] * count]  # the user's codes are heard, and not predicted
    return graph.delay([0, *late, *late], weights=weights, text_padding_weight=PADDING)


def batches(data: Path, part: str, settings: Settings, shuffle: bool = False) -> uio.Pipeline:
    """``codes`` and ``loss`` (B, 1 + 2K, T), ``codes_lengths`` (B,) and the timelines."""
    graph = streams(data, part, settings, shuffle)
    if shuffle:
        graph = graph.shuffle(settings.data.window)
    names = {"feats": "codes", "feats_lengths": "codes_lengths"}
    graph = graph.batch(settings.data.batch)
    return graph.pad(keep=["loss", "timeline"], transpose=["feats", "loss"], names=names)
