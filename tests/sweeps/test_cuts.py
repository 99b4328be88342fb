"""Lhotse's cuts and Shars damaged in every way: manifests plain and compressed, and the files of a Shar."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cuts_corpus import cut_of, write_cuts
from shar_corpus import shar
from sweeps.damages import DAMAGES, damaged
from sweeps.sweep import Outcome, delivered, in_turns, rows, trials
from sweeps.table import assert_documented

import uio_pipes as uio
from uio_pipes.base.errors import NOTES

TABLE = True
SEED = 5
USUAL = 480
CUTS = 12


@dataclass(frozen=True)
class Thing:
    """A file that is damaged, and whether the utterances are those of a Shar."""

    name: str
    file: str
    of_shar: bool = False


THINGS = (
    Thing("Lhotse cuts, .jsonl", "cuts.jsonl"),
    Thing("Lhotse cuts, .jsonl.gz", "cuts.jsonl.gz"),
    Thing("Lhotse Shar, cuts.jsonl.gz", "shar/cuts.000000.jsonl.gz", of_shar=True),
    Thing("Lhotse Shar, recording.tar", "shar/recording.000000.tar", of_shar=True),
)


class Bench:
    """One thing in a folder of its own, damaged again and again."""

    def __init__(self, root: Path, thing: Thing) -> None:
        self.thing, self.path = thing, root / thing.file
        root.mkdir()
        if thing.of_shar:
            shar(root / "shar", [CUTS])
        else:
            draw = random.Random(2)  # more than is doubled: a manifest that is there twice is sound
            write_cuts(
                self.path, [cut_of(root, n) | {"custom": {"id": draw.randbytes(2000).hex()}} for n in range(CUTS)]
            )
        self.whole = self.path.read_bytes()
        self.targets = [0, len(self.whole) // 2, len(self.whole) - 9, len(self.whole) - 1]
        self.time = self.path.stat().st_mtime_ns
        self.sound, reported = self.read()
        assert len(self.sound) == CUTS
        assert set(reported) <= NOTES

    def read(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the utterances delivered, and the reasons counted."""
        shar, path = self.thing.of_shar, self.path
        return delivered(
            lambda: uio.Loader(
                (uio.from_lhotse_shar(path.parent) if shar else uio.from_lhotse_cuts(path)).decode_audio()
            ),
            lambda s: (s.get("txt"), s.get("speaker"), s["wav"].numpy().tobytes()),
        )

    def trial(self, damage: str, seed: str) -> Outcome:
        """Damage it, read it."""
        self.path.write_bytes(damaged(self.whole, damage, self.targets, random.Random(seed)))
        self.time += 1_000_000_000  # otherwise a manifest of the same size would be known already
        os.utime(self.path, ns=(self.time, self.time))
        found, reasons = self.read()
        reported = tuple(reason for reason in reasons if reason != "twice")
        result: Literal["reported", "unchanged", "silent"] = "reported" if reported else "silent"
        if found == self.sound and not reasons:
            result = "unchanged"
        return Outcome(self.thing.name, damage, result, reported, seed)


def alike(thing: str, damage: str) -> tuple[str, str]:
    """What is compressed is never silent; of the others, only a cut is not."""
    return thing, "any of these" if thing.endswith(".gz") else damage if damage == "cut off" else "any of the others"


def sweep(trials: int, seed: int) -> Iterator[Outcome]:
    return in_turns(THINGS, Bench, lambda thing: DAMAGES, trials, seed)


def test_damaged_cuts_and_shars() -> None:
    """Text of a plain manifest and audio in a tar have no checksum; whatever else is wrong is reported."""
    found = rows(sweep(trials(USUAL), SEED))
    for (thing, damage), row in found.items():
        if thing.endswith(".gz"):
            assert row.silent == [], (thing, damage)
    assert_documented(found, alike)
