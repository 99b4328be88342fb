"""WeNet's files: raw lists, shards and shard lists, the dictionary, Kaldi's wav.scp and text."""

from __future__ import annotations

import io
import json
import multiprocessing
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .files import atomic_path, write_lines

SPECIAL = ("<blank>", "<unk>", "<sos/eos>")


@dataclass(frozen=True)
class Utterance:
    """What a list or a shard says of one utterance."""

    key: str
    wav: Path
    txt: str


def write_kaldi(folder: Path, utterances: list[Utterance]) -> None:
    """``wav.scp`` and ``text``, a line an utterance."""
    write_lines(folder / "wav.scp", (f"{utterance.key} {utterance.wav}" for utterance in utterances))
    write_lines(folder / "text", (f"{utterance.key} {utterance.txt}" for utterance in utterances))


def write_raw_list(path: Path, utterances: list[Utterance]) -> None:
    """WeNet's raw list: a JSON object a line."""
    fields = ({"key": u.key, "wav": str(u.wav), "txt": u.txt} for u in utterances)
    write_lines(path, (json.dumps(line, ensure_ascii=False) for line in fields))


def write_dictionary(path: Path, texts: Iterable[str]) -> int:
    """``token id`` a line: the special ones, then every character of the texts. Returns how many there are."""
    tokens = [*SPECIAL, *sorted({character for text in texts for character in text})]
    write_lines(path, (f"{token} {number}" for number, token in enumerate(tokens)))
    return len(tokens)


def write_shards(folder: Path, utterances: list[Utterance], size: int) -> Iterator[tuple[Path, int]]:
    """Write ``shards_000000000.tar``, … with ``size`` utterances each; yields path and count of each in its order.

    Threads do: it is reading and writing of files. A shard exists only when it is complete.
    """
    starts = range(0, len(utterances), size)
    blocks = [utterances[start : start + size] for start in starts]
    paths = [folder / f"shards_{index:09d}.tar" for index in range(len(blocks))]
    with ThreadPoolExecutor(multiprocessing.cpu_count()) as pool:
        yield from zip(paths, pool.map(_write_shard, paths, blocks), strict=True)


def _write_shard(path: Path, utterances: list[Utterance]) -> int:
    with atomic_path(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
        for utterance in utterances:
            _add(tar, f"{utterance.key}.txt", utterance.txt.encode())
            _add(tar, f"{utterance.key}.wav", utterance.wav.read_bytes())
    return len(utterances)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # no time, no owner: equal content gives equal shards
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
