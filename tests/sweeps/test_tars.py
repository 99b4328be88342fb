"""Shards damaged in every way: plain and compressed, with and without a manifest, and with an index."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard
from helpers_bad import audio
from sweeps.damages import DAMAGES, damaged
from sweeps.sweep import Outcome, Row, delivered, in_turns, rows, trials
from sweeps.table import assert_documented

import uio_pipes as uio
from uio_pipes.base.errors import NOTES
from uio_pipes.formats.lists.quarantine import read_quarantine
from uio_pipes.tools.data.index import index_lists

TABLE = True
SEED = 11
USUAL = 1200

UTTERANCES = 12
HOLE = "whole utterances zeroed"
PLAIN = {name: name for name in ("a bit flipped", "bytes overwritten", "cut off", "blocks swapped")} | {
    "bytes zeroed": "bytes or blocks zeroed",
    "blocks of 512 bytes zeroed": "bytes or blocks zeroed",
    HOLE: HOLE,
    "bytes cut out": "bytes cut out or put in, blocks doubled",
    "bytes put in": "bytes cut out or put in, blocks doubled",
    "blocks doubled": "bytes cut out or put in, blocks doubled",
}
COMPRESSED = {name: name if name == "a bit flipped" else "any of the others" for name in DAMAGES}
Compress = Callable[[bytes], bytes]


def in_frames(compress: Compress, size: int = 50_000) -> Compress:
    return lambda data: b"".join(compress(data[at : at + size]) for at in range(0, len(data), size))


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


@dataclass(frozen=True)
class Thing:
    """One way to keep a shard. ``share``: of the trials."""

    name: str
    suffix: str = ""
    compress: Compress = bytes
    manifest: bool = False
    verify: Literal["crc"] | None = None
    indexed: bool = False

    @property
    def damages(self) -> dict[str, str]:
        """The damages done to it, each with its words in the table."""
        return COMPRESSED if self.suffix else PLAIN


THINGS = (
    Thing("tar"),
    Thing("tar, in a list with a manifest", manifest=True),
    Thing('tar, `verify="crc"`', verify="crc"),
    Thing('tar, `from_tar_index(verify="crc")`', indexed=True, verify="crc"),
    Thing("tar.gz", ".gz", gz),
    Thing("tar.gz of many members", ".gz", in_frames(gz)),
    Thing("tar.zst with checksums", ".zst", zstandard.ZstdCompressor(write_checksum=True).compress),
    Thing("tar.zst by `--compress`", ".zst", in_frames(zstandard.ZstdCompressor(write_checksum=True).compress)),
    Thing("tar.zst without checksums", ".zst", zstandard.ZstdCompressor().compress),
    Thing("tar.bz2", ".bz2", bz2.compress),
    Thing("tar.xz", ".xz", lambda data: lzma.compress(data, preset=0)),
)


def archive(longer: int = 1) -> tuple[bytes, list[int], list[int]]:
    """A tar as ``uio pack`` and as others order members; where headers and payloads begin and the last one ends; where
    utterances begin and the last one ends."""
    draw, buffer = random.Random(1), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(UTTERANCES):
            wav = audio(longer * draw.choice((400, 2000, 4500, 16_000)), number)
            parts = {"txt": b"text %d " % number * draw.choice((1, 90)), "wav": wav, "speaker": b"S%d" % number}
            order = ("txt", "speaker", "wav") if number % 3 else ("wav", "txt", "speaker")
            for suffix in order:
                info = tarfile.TarInfo(f"K{number:03d}.{suffix}")
                info.size = len(parts[suffix])
                tar.addfile(info, io.BytesIO(parts[suffix]))
    data = buffer.getvalue()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        places = [place for info in tar.getmembers() for place in (info.offset, info.offset_data)]
    end = -(-len(data.rstrip(b"\0")) // 512) * 512
    return data, [*places, end, len(data) - 1], [*places[::6], end]


Delivered = dict[str, tuple[Any, ...]]


class Bench:
    """One thing in a folder of its own, damaged again and again."""

    def __init__(self, root: Path, thing: Thing) -> None:
        self.thing, self.path = thing, root / f"s.tar{thing.suffix}"
        root.mkdir()
        data, self.targets, self.starts = archive(4 if thing.suffix else 1)  # more than is held back
        self.whole = thing.compress(data)
        if thing.suffix:
            self.targets = [0, 4, len(self.whole) // 2, len(self.whole) - 9, len(self.whole) - 3]
        self.path.write_bytes(self.whole)
        self.given: str = str(self.path)
        if thing.manifest:
            self.given = str(root / "shards.list")
            Path(self.given).write_text(f"{self.path}\n")
        if thing.manifest or thing.verify:
            index_lists([self.given])
        self.status = self.path.stat()
        self.sound, reported, _ = self.read()
        assert len(self.sound) == UTTERANCES
        assert set(reported) <= NOTES

    def read(self) -> tuple[Delivered, tuple[str, ...], set[str]]:
        """Return the utterances delivered, the reasons counted, and the keys named as suspect."""
        found = self.path.with_name("found.jsonl")
        found.unlink(missing_ok=True)
        read = uio.from_tar_index if self.thing.indexed else uio.from_shard_list
        failures = uio.Failures(quarantine=str(found))
        utterances, reasons = delivered(
            lambda: uio.Loader(read(self.given, verify=self.thing.verify), failures=failures),
            lambda s: (s["txt"], s["wav"], s.get("speaker")),
        )
        named = read_quarantine(found) if found.exists() else []
        suspects = {entry["key"] for entry in named if entry["reason"] == "suspect"}
        return utterances, tuple(sorted({*reasons} - {"unchecked_stream"})), suspects

    def with_hole(self, draw: random.Random) -> bytes:
        begin, end = sorted(draw.sample(self.starts, 2))
        return self.whole[:begin] + bytes(end - begin) + self.whole[end:]

    def trial(self, damage: str, seed: str) -> Outcome:
        """Damage it, read it. Out of a compressed stream, each utterance that is wrong has to be named."""
        draw = random.Random(seed)
        changed = self.with_hole(draw) if damage == HOLE else damaged(self.whole, damage, self.targets, draw)
        self.path.write_bytes(changed)
        os.utime(self.path, ns=(self.status.st_atime_ns, self.status.st_mtime_ns))
        found, reasons, suspects = self.read()
        reported = tuple(reason for reason in reasons if reason != "twice")
        same = found == self.sound and "twice" not in reasons
        wrong = {key for key, value in found.items() if self.sound.get(key) != value}
        unnamed = wrong - suspects if self.thing.suffix or self.thing.verify else set()
        result: Literal["reported", "unchanged", "silent"] = "reported" if reported and not unnamed else "silent"
        if same and not reported:
            result = "unchanged"
        return Outcome(self.thing.name, self.thing.damages[damage], result, reported, seed)


def sweep(trials: int, seed: int) -> Iterator[Outcome]:
    return in_turns(THINGS, Bench, lambda thing: thing.damages, trials, seed)


def alike(thing: str, damage: str) -> tuple[str, str]:
    """What has checksums is one row; tars without have three of what is hardly ever silent, and one of the rest."""
    if "verify=" in thing or "tar." in thing:
        return thing.removesuffix(" of many members").replace("by `--compress`", "with checksums"), "any of these"
    lost = (HOLE, PLAIN["bytes cut out"], "cut off")
    return thing, damage if damage in lost else "bits flipped; bytes or blocks overwritten, zeroed or swapped"


def silent(found: dict[tuple[str, str], Row], thing: str) -> dict[str, list[str]]:
    """Of one thing, damages that were silent, and the seeds that make them again."""
    return {damage: row.silent for (name, damage), row in found.items() if name == thing and row.silent}


def test_damaged_tars() -> None:
    """Bytes of audio and text have no checksum in a tar without an index, nor in zstd without checksums; but what is
    missing, and whatever else is wrong, is reported."""
    found = rows(sweep(trials(USUAL), SEED))
    assert {thing for thing, _ in found} == {thing.name for thing in THINGS}
    for thing in THINGS:
        quiet = silent(found, thing.name)
        if thing.verify or (thing.suffix and thing.name != "tar.zst without checksums"):
            assert quiet == {}, thing.name
        assert "cut off" not in quiet
        if thing.manifest:
            assert not {HOLE, PLAIN["bytes cut out"]} & quiet.keys(), quiet
    assert_documented(found, alike)


def test_only_a_hole_at_the_end_can_be_taken_for_the_end(tmp_path: Path) -> None:
    """Every run of whole utterances, zeroed, without a manifest."""
    bench = Bench(tmp_path / "tar", THINGS[0])
    for begin, end in itertools.combinations(bench.starts, 2):
        bench.path.write_bytes(bench.whole[:begin] + bytes(end - begin) + bench.whole[end:])
        found, reasons, _ = bench.read()
        assert reasons or (end == bench.starts[-1] and end - begin < 10_240), (begin, end)
        assert found.items() <= bench.sound.items()
        lost = sum(begin <= start < end for start in bench.starts[:-1])
        assert len(found) == UTTERANCES - lost
