"""A small Kaldi data folder: recordings, tables, features in arks."""

from dataclasses import dataclass
from pathlib import Path

import corpus
import kaldiio
import numpy as np


@dataclass(frozen=True)
class KaldiCorpus:
    """The folder and its keys in order."""

    folder: Path
    keys: tuple[str, ...]


def recordings(root: Path, count: int = 12, *, segments: bool = False) -> KaldiCorpus:
    """``wav.scp`` (every third in an ark of wavs), ``text``, ``utt2spk``, and on request two ``segments`` of each."""
    root.mkdir(parents=True, exist_ok=True)
    names = [f"R{i:03d}" for i in range(count)]
    lines = {}
    with open(root / "wavs.ark", "wb") as ark:
        for i, name in enumerate(names):
            audio = corpus.wav_bytes(i, seconds=(0.6, 1.5))
            if i % 3 == 2:
                ark.write(f"{name} ".encode())
                lines[name] = f"{root}/wavs.ark:{ark.tell()}"
                ark.write(audio)
            else:
                (root / f"{name}.wav").write_bytes(audio)
                lines[name] = f"{root}/{name}.wav"
    write(root / "wav.scp", lines)
    keys = names
    if segments:
        keys = [f"{name}-{part}" for name in names for part in range(2)]
        write(
            root / "segments",
            {key: f"{key[:4]} {0.05 + 0.25 * int(key[-1])} {0.3 + 0.25 * int(key[-1])}" for key in keys},
        )
    write(root / "text", {key: f"文{key} 字" for key in reversed(keys)})  # in another order
    write(root / "utt2spk", {key: f"S{int(key[1:4]) % 3}" for key in keys})
    return KaldiCorpus(root, tuple(keys))


def feats(root: Path, count: int = 12, *, compression: int | None = None, bins: int = 6) -> dict[str, np.ndarray]:
    """``feats.scp`` and ``text``, the features that kaldiio wrote."""
    root.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for i in range(count):
        rng = np.random.default_rng(i)
        arrays[f"F{i:03d}"] = rng.standard_normal((int(rng.integers(20, 90)), bins)).astype(np.float32)
    kaldiio.save_ark(str(root / "feats.ark"), arrays, scp=str(root / "feats.scp"), compression_method=compression)
    write(root / "text", {key: f"文{key}" for key in arrays})
    return arrays


def write(path: Path, lines: dict[str, str]) -> None:
    path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
