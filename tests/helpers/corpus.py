"""Small corpora of seeded noise: tar shards (plain or compressed, damaged on request), raw lists, feature shards."""

import gzip
import io
import json
import wave
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from archive_files import tar_bytes as _tar

# What can be wrong, and the reason under which it is counted
DAMAGE = {
    "broken_header": "bad_header",
    "missing_txt": "missing_text",
    "missing_audio": "missing_audio",
    "undecodable": "bad_audio",
    "truncated": "truncated",
}
Members = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Corpus:
    """A list, the keys of its intact utterances in list order, and how many of each damage there are."""

    list: Path
    keys: tuple[str, ...] = field(repr=False)
    damage: tuple[str, ...] = ()


def wav_bytes(seed: int, rate: int = 8000, seconds: tuple[float, float] = (0.3, 4.0)) -> bytes:
    """Noise of a length within ``seconds``, the same for the same ``seed``."""
    rng = np.random.default_rng(seed)
    pcm = (rng.standard_normal(int(rate * rng.uniform(*seconds))) * 3000).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.tobytes())
    return buffer.getvalue()


def shards(
    root: Path,
    sizes: Sequence[int],
    *,
    rate: int = 8000,
    seconds: tuple[float, float] = (0.3, 4.0),
    compress: str = "",
    damage: Sequence[str] = (),
) -> Corpus:
    """Shards of ``sizes`` utterances each; each ``damage`` hits one utterance of a shard of its own, in order."""
    root.mkdir(parents=True, exist_ok=True)
    names, keys, first = [], [], 0
    for number, size in enumerate(sizes):
        utterances = [(f"K{i:04d}", f"文{i}".encode(), wav_bytes(i, rate, seconds)) for i in range(first, first + size)]
        hurt = damage[number] if number < len(damage) else ""
        data, intact = _shard(utterances, hurt)
        name = root / f"s{number:03d}.tar{compress and '.' + compress}"
        name.write_bytes(gzip.compress(data, 1) if compress == "gz" else data)
        names.append(str(name))
        keys += intact
        first += size
    path = root / "shards.list"
    path.write_text("# a comment\n\n" + "\n".join(names) + "\n")
    return Corpus(path, tuple(keys), tuple(damage))


def raw_list(root: Path, count: int, *, rate: int = 8000) -> Corpus:
    """A raw list; every third utterance is a segment of its recording."""
    root.mkdir(parents=True, exist_ok=True)
    lines, keys = [], []
    for i in range(count):
        path = root / f"r{i:03d}.wav"
        path.write_bytes(wav_bytes(i, rate))
        line = {"key": f"R{i:04d}", "wav": str(path), "txt": f"文{i}"}
        lines.append(json.dumps(line | ({"start": 0.05, "end": 0.3} if i % 3 == 0 else {})))
        keys.append(f"R{i:04d}")
    (root / "raw.list").write_text("\n".join(lines) + "\n")
    return Corpus(root / "raw.list", tuple(keys))


def feature_shards(root: Path, sizes: Sequence[int], bins: int = 6) -> Corpus:
    """Shards of KEY.npy (T, bins) and KEY.txt."""
    root.mkdir(parents=True, exist_ok=True)
    names, keys, first = [], [], 0
    for number, size in enumerate(sizes):
        members: Members = []
        for i in range(first, first + size):
            rng = np.random.default_rng(i)
            array = io.BytesIO()
            np.save(array, rng.standard_normal((int(rng.integers(20, 300)), bins)).astype(np.float32))
            members += [(f"F{i:04d}.npy", array.getvalue()), (f"F{i:04d}.txt", f"文{i}".encode())]
            keys.append(f"F{i:04d}")
        name = root / f"f{number:03d}.tar"
        name.write_bytes(_tar(members))
        names.append(str(name))
        first += size
    (root / "shards.list").write_text("\n".join(names) + "\n")
    return Corpus(root / "shards.list", tuple(keys))


def _shard(utterances: list[tuple[str, bytes, bytes]], hurt: str) -> tuple[bytes, list[str]]:
    """An archive with one utterance damaged (the second; for ``truncated`` the last), and the intact keys."""
    if hurt and hurt not in DAMAGE:
        raise ValueError(f"damage must be one of {sorted(DAMAGE)}, not {hurt!r}")
    at = len(utterances) - 1 if hurt == "truncated" else min(1, len(utterances) - 1)
    members: Members = []
    for i, (key, txt, wav) in enumerate(utterances):
        bad = hurt if i == at else ""
        if bad != "missing_txt":
            members.append((f"{key}.txt", txt))
        if bad != "missing_audio":
            members.append((f"{key}.wav", b"no audio at all" * 9 if bad == "undecodable" else wav))
    data = _tar(members)
    if hurt == "broken_header":
        where = data.index(f"{utterances[at][0]}.txt".encode())
        data = data[: where + 100] + b"\xff" * 40 + data[where + 140 :]
    if hurt == "truncated":
        where = data.index(f"{utterances[at][0]}.wav".encode())
        data = data[: where + 512 + 200]
    return data, [key for i, (key, _, _) in enumerate(utterances) if not hurt or i != at]
