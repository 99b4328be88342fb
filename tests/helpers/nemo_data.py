"""NeMo's manifests and tars, laid out as its convert_to_tarred_audio_dataset.py documents them."""

import io
import json
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
import numpy as np
from archive_files import write_archive

Row = dict[str, Any]


@dataclass(frozen=True)
class Tarred:
    """Sharded manifests and tars under the names that a configuration gives them, one manifest of all, and its rows."""

    manifests: str
    tars: str
    whole: Path
    rows: tuple[Row, ...]


def wav(number: int) -> bytes:
    """The audio of utterance ``number``."""
    return corpus.wav_bytes(number, seconds=(0.5, 1.5))


def pcm(number: int, start: float = 0, end: float | None = None) -> np.ndarray:
    """The samples of that audio between two times, as floats."""
    samples = np.frombuffer(wav(number)[44:], "<i2").astype(np.float32) / 32768
    return samples[round(start * 8000) : None if end is None else round(end * 8000)]


def seconds(audio: bytes) -> float:
    with wave.open(io.BytesIO(audio)) as file:
        return file.getnframes() / file.getframerate()


def plain(root: Path, count: int = 8, folder: str = "wavs") -> Path:
    """``manifest.json`` beside a folder of wavs, with a second utterance cut from every third one."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for i in range(count):
        (root / folder / f"u{i}.wav").write_bytes(wav(i))
        row = {"audio_filepath": f"{folder}/u{i}.wav", "duration": seconds(wav(i)), "text": f"文{i}", "lang": "zh"}
        rows += [row, {**row, "offset": 0.1, "duration": 0.25, "text": f"cut {i}"}] if i % 3 == 0 else [row]
    return write(root / "manifest.json", rows)


def tarred(root: Path, sizes: Sequence[int]) -> Tarred:
    """Shards of ``sizes`` members. The first member of each has a second utterance, ``-sub1`` in the manifest."""
    (root / "sharded_manifests").mkdir(parents=True)
    every: list[Row] = []
    first = 0
    for shard, size in enumerate(sizes):
        members, rows = {}, list[Row]()
        for i in range(first, first + size):
            members[f"data_u{i}.wav"] = wav(i)
            common = {"text": f"文{i}", "shard_id": shard}
            rows.append({"audio_filepath": f"data_u{i}.wav", "duration": seconds(wav(i)), **common})
            if i == first:
                cut = {"offset": 0.1, "duration": 0.2, **common, "text": f"cut {i}"}
                rows.append({"audio_filepath": f"data_u{i}-sub1.wav", **cut})
        tar(root / f"audio_{shard}.tar", members)
        write(root / "sharded_manifests" / f"manifest_{shard}.json", rows)
        every += rows
        first += size
    whole = write(root / "tarred_audio_manifest.json", every)
    span = f"_OP_0..{len(sizes) - 1}_CL_"
    return Tarred(f"{root}/sharded_manifests/manifest_{span}.json", f"{root}/audio_{span}.tar", whole, tuple(every))


def tar(path: Path, members: dict[str, bytes]) -> Path:
    return write_archive(path, [*members.items()])


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path
