"""Dialogues of tones, and settings of a model that learns a little of them in seconds."""

from pathlib import Path

import numpy as np

from recipes.duplex.speak import Samples, write
from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.example_speech import RATE, Voice, to_int16, toned

TINY = [
    *("model.codebooks=2", "model.dim=16", "model.hidden=32", "data.seconds=4", "data.batch=4", "data.window=8"),
    *("data.lanes=2", "data.num_workers=0", "optim.learning_rate=0.01", "optim.warm_up=5"),
    *("train.epochs=3", "train.save_every=2", "train.log_every=1"),
]


def say(text: str, voice: Voice) -> Samples:
    """Say a word as a tone for each of its first letters, and be silent for a while, as espeak-ng is."""
    word = to_int16(9_000 * toned(text[:1], RATE, voice.pitch / 50).astype(np.float64))
    return np.concatenate([word, np.zeros(800, np.int16)])


def prepare(folder: Path, train: int = 24, test: int = 4) -> Path:
    """Write dialogues as ``speak`` does; return the folder."""
    for part, count in (("train", train), ("test", test)):
        (folder / part).mkdir(parents=True)
        rows = [write(folder / part / f"d{number:04d}.wav", f"{part} {number}", say) for number in range(count)]
        write_lines(folder / f"{part}.jsonl", rows)
    return folder
