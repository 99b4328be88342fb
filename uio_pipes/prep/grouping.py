"""Which shard an utterance belongs to: known from the list alone, before anything is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from uio_pipes.prep.cutting import Form
from uio_pipes.prep.lists import ListProblem, Utterance, read_raw_list

FRAMES_PER_SECOND = 100


@dataclass(frozen=True)
class Group:
    """Utterances of ``low`` <= frames < ``high``, frames of 10 ms."""

    low: int
    high: int

    @property
    def folder(self) -> str:
        """``10_500``."""
        return f"{self.low}_{self.high}"


def parse_group(text: str) -> Group:
    """``"10:500"``, as CAT writes it. Raises: ValueError."""
    low, colon, high = text.partition(":")
    if not (colon and low.isdigit() and high.isdigit() and int(low) < int(high)):
        raise ValueError(f"a group is LOW:HIGH in frames of 10 ms with LOW below HIGH, as 10:500; not {text!r}")
    return Group(int(low), int(high))


@dataclass(frozen=True)
class PackSettings:
    """How to pack. ``size``: utterances in a shard; ``name``: of a shard, its number to be filled in."""

    size: int = 2000
    groups: tuple[Group, ...] = ()
    form: Form = "wav"
    sample_rate: int = 16_000
    name: str = "data-{:05d}.tar"

    def identity(self, source: Path) -> dict[str, Any]:
        """These settings and the content of the list ``source``. Raises: ListProblem."""
        if not source.is_file():
            raise ListProblem(f"there is no list {source}; the recipe's stage 0 writes it")
        digest = blake2b(digest_size=16)
        with source.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return asdict(self) | {"groups": [group.folder for group in self.groups], "list": digest.hexdigest()}


class Plan:
    """Places utterances, and counts in ``left_out`` those that lie in no group, by reason."""

    def __init__(self, settings: PackSettings) -> None:
        self.settings = settings
        self.left_out: Counter[str] = Counter()
        self._groups = sorted(settings.groups, key=lambda group: group.low)

    def place(self, source: Path, finished: Collection[str]) -> Iterator[tuple[str, Utterance]]:
        """Shard (a path relative to the folder) and utterance, in the list's order; not of ``finished`` shards."""
        placed: Counter[str] = Counter()
        self.left_out.clear()
        for utterance in read_raw_list(source):
            folder = self._folder(utterance)
            if folder is None:
                continue
            shard = folder + self.settings.name.format(placed[folder] // self.settings.size)
            placed[folder] += 1
            if shard not in finished:
                yield shard, utterance

    def _folder(self, utterance: Utterance) -> str | None:
        if not self._groups:
            return ""
        if utterance.seconds is None:
            raise ListProblem(f"groups by length need start and end of each utterance; {utterance.key} has none")
        frames = int(utterance.seconds * FRAMES_PER_SECOND + 1e-6)
        for group in self._groups:
            if group.low <= frames < group.high:
                return f"{group.folder}/"
        short, long = frames < self._groups[0].low, frames >= self._groups[-1].high
        self.left_out["too_short" if short else "too_long" if long else "between_groups"] += 1
        return None
