"""What is packed, and where: the placement of utterances in shards is known from the list alone, before anything is
decoded."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import ListError
from uio_pipes.tools.data.reading.utterance_lists import Bad, Utterance, UtteranceList
from uio_pipes.tools.data.writing.cutting import FRAMES_PER_SECOND, CutResult, Dtype, Form, cut_recording


@dataclass(frozen=True)
class FeatureSettings:
    """Features to be packed. ``dtype``: of the stored arrays; ``conf``: the WeNet ``dataset_conf`` by which they are
    computed of audio, or None for features that are there already."""

    dtype: Dtype = "float32"
    conf: Mapping[str, Any] | None = None

    def stages(self) -> list[str]:
        """Return the stages that compute the features, with all their parameters. Raises: PipelineError."""
        if self.conf is None:
            return []
        from uio_pipes.tools.data.writing.features import extractor

        return [stage.describe(stable=True) for stage in extractor(self.conf).stages]

    def identity(self) -> dict[str, Any]:
        """Return what the journal keeps: other features are another packing."""
        return {"dtype": self.dtype, "features": self.stages()}

    def length_rule(self) -> Callable[[float], int]:
        """Return the function that gives the number of frames of so many seconds of audio."""
        from uio_pipes.tools.data.writing.features import extractor

        return extractor(self.conf or {}).frames


Placed = tuple[str, Utterance]  # shard and utterance
TASK = 64  # utterances that a process cuts at a time, at least: a recording is not divided


def tasks_of(placed: Iterable[Placed]) -> Iterator[list[Placed]]:
    """Yield tasks of whole recordings with about ``TASK`` utterances."""
    task: list[Placed] = []
    for _, recording in itertools.groupby(placed, key=lambda one: one[1].wav):
        task += recording
        if len(task) >= TASK:
            yield task
            task = []
    if task:
        yield task


def cut_task(task: list[Placed], settings: PackSettings) -> list[CutResult]:
    """Cut the audio of each utterance of a task, or make its features."""
    if settings.features is not None:
        from uio_pipes.tools.data.writing.features import make_features  # only here: packing audio needs no torch

        return make_features([utterance for _, utterance in task], settings.features.conf, settings.features.dtype)
    audio: list[CutResult] = []
    for wav, recording in itertools.groupby((utterance for _, utterance in task), key=lambda one: one.wav):
        audio += cut_recording(wav, list(recording), settings.sample_rate, settings.form)
    return audio


NOWHERE = -1


@dataclass(frozen=True)
class LengthGroup:
    """The utterances of ``low`` <= frames < ``high``, in frames of their features, or of 10 ms of audio."""

    low: int
    high: int

    @property
    def folder(self) -> str:
        """The group's folder: ``10_500``."""
        return f"{self.low}_{self.high}"


def parse_group(text: str) -> LengthGroup:
    """Parse ``"10:500"``, as CAT writes it. Raises: ValueError."""
    low, colon, high = text.strip().partition(":")
    if not (colon and low.isdigit() and high.isdigit() and int(low) < int(high)):
        raise ValueError(f"a group is LOW:HIGH in frames with LOW below HIGH, as 10:500; not {text!r}")
    return LengthGroup(int(low), int(high))


def parse_groups(text: str) -> tuple[LengthGroup, ...]:
    """Parse ``"10:500,500:1000"``; groups must not overlap. Raises: ValueError."""
    groups = tuple(parse_group(part) for part in text.split(",") if part)
    for one, other in itertools.pairwise(sorted(groups, key=lambda group: group.low)):
        if other.low < one.high:
            shared = f"{one.low}:{one.high} and {other.low}:{other.high}"
            raise ValueError(f"groups must not overlap, an utterance goes to one of them; {shared} do")
    return groups


@dataclass(frozen=True)
class Split:
    """The share ``index`` (from 1) of ``count``: one job of an array."""

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}of{self.count}"


def parse_split(text: str) -> Split:
    """Parse ``"3/8"``, the third share of eight. Raises: ValueError."""
    index, slash, count = text.strip().partition("/")
    if not (slash and index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise ValueError(f"a share is i/n with i from 1 to n, as 3/8; not {text!r}")
    return Split(int(index), int(count))


@dataclass(frozen=True)
class PackSettings:
    """Settings of a packing. ``size``: utterances in a shard; ``name``: of a shard, with a field for its number.

    ``form`` and ``sample_rate`` are those of ``cut_recording``; a rate of None keeps each recording's own.
    ``features``: to be packed in place of audio.
    """

    size: int = 2000
    groups: tuple[LengthGroup, ...] = ()
    form: Form = "wav"
    sample_rate: int | None = 16_000
    name: str = "data-{:05d}.tar"
    features: FeatureSettings | None = None

    def identity(self, digest: str) -> dict[str, Any]:
        """Return these settings and the digest of the list, as the journal keeps them."""
        known = asdict(replace(self, features=None)) | {"groups": [group.folder for group in self.groups]}
        del known["features"]
        return known | {"list": digest} | (self.features.identity() if self.features else {})

    def length_rule(self) -> Callable[[float], int]:
        """Return the function that gives the frames of so many seconds: those of their features, or of 10 ms."""
        return self.features.length_rule() if self.groups and self.features is not None else _of_10_ms


def _of_10_ms(seconds: float) -> int:
    return int(seconds * FRAMES_PER_SECOND + 1e-6)


class Placement:
    """The shard of each utterance of a list. The list is read once, or twice if a key occurs twice; 4 bytes an
    utterance stay in memory (12 while it is read).

    Attributes: ``shards`` (names, in the order in which they begin), ``counts`` (utterances of each), ``left_out``
    (reasons and counts of utterances in no group), ``bad`` (lines that cannot be read, and keys that an earlier
    utterance has), ``apart`` (no recording is in two shards, as far as neighbours show).
    """

    def __init__(self, utterance_list: UtteranceList, settings: PackSettings) -> None:
        self._list, self.settings = utterance_list, settings
        self.shards: list[str] = []
        self.counts: list[int] = []
        self.left_out: Counter[str] = Counter()
        self.bad: list[Bad] = []
        self.apart = True
        self._groups = sorted(settings.groups, key=lambda group: group.low)
        self._length_rule = settings.length_rule()
        self._place()

    def _place(self) -> None:
        self._of = array("i")
        hashes = array("q")
        placed: Counter[str] = Counter()
        current: dict[str, int] = {}
        recording, last = "", NOWHERE
        for one in self._list:
            folder = self._folder(one)
            hashes.append(hash(one.key))
            if folder is None:
                self._of.append(NOWHERE)
                continue
            number, within = divmod(placed[folder], self.settings.size)
            if not within:
                current[folder] = len(self.shards)
                self.shards.append(folder + self.settings.name.format(number))
                self.counts.append(0)
            placed[folder] += 1
            shard = current[folder]
            self.counts[shard] += 1
            self._of.append(shard)
            if isinstance(one, Utterance):
                self.apart &= one.wav != recording or shard == last
                recording, last = one.wav, shard
        self._leave_out_twice(np.frombuffer(hashes, np.int64))

    def _leave_out_twice(self, hashes: npt.NDArray[np.int64]) -> None:
        """Leave out the second and later utterances of one key, in any shard: readers would join them."""
        placed = np.flatnonzero(np.frombuffer(self._of, np.int32) != NOWHERE)
        hashes = hashes[placed]
        sorted_hashes = np.sort(hashes)
        twice = sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]]
        if not len(twice):
            return
        suspects = set(placed[np.isin(hashes, twice)].tolist())
        first: dict[str, int] = {}
        for number, one in enumerate(self._list):
            if number in suspects and first.setdefault(one.key, number) != number:
                detail = f"utterance {number + 1} of the list has the key of utterance {first[one.key] + 1}: rename one"
                self.bad.append(Bad(one.key, "duplicate_key", detail))
                self.counts[self._of[number]] -= 1
                self._of[number] = NOWHERE
        kept = [number for number, count in enumerate(self.counts) if count]  # shards that have utterances left
        moved = {old: new for new, old in enumerate(kept)} | {NOWHERE: NOWHERE}
        self._of = array("i", (moved[number] for number in self._of))
        self.shards, self.counts = [self.shards[n] for n in kept], [self.counts[n] for n in kept]

    def share(self, split: Split) -> set[str]:
        """Return the shards of one job: neighbours within each folder, so that two jobs seldom cut one recording."""
        folders: dict[str, list[str]] = {}
        for shard in self.shards:
            folders.setdefault(shard.rpartition("/")[0], []).append(shard)
        begin, end = split.index - 1, split.index
        return {
            shard
            for shards in folders.values()
            for shard in shards[len(shards) * begin // split.count : len(shards) * end // split.count]
        }

    def utterances(self, wanted: set[str]) -> Iterator[tuple[str, Utterance]]:
        """Yield the utterances of the ``wanted`` shards in the list's order, each with its shard (relative path)."""
        want = [shard in wanted for shard in self.shards]
        for number, one in zip(self._of, self._list, strict=True):
            if number != NOWHERE and want[number] and isinstance(one, Utterance):
                yield self.shards[number], one

    def count(self, shard: str) -> int:
        """Return the number of utterances of a shard."""
        return self._counts[shard]

    @cached_property
    def _counts(self) -> dict[str, int]:
        return dict(zip(self.shards, self.counts, strict=True))

    def _folder(self, one: Utterance | Bad) -> str | None:
        if isinstance(one, Bad):
            self.bad.append(one)
            return None
        if not self._groups:
            return ""
        frames = self._frames(one)
        for group in self._groups:
            if group.low <= frames < group.high:
                return f"{group.folder}/"
        short, long = frames < self._groups[0].low, frames >= self._groups[-1].high
        self.left_out["too_short" if short else "too_long" if long else "between_groups"] += 1
        return None

    def _frames(self, one: Utterance) -> int:
        if one.frames is not None:
            return one.frames
        seconds = one.seconds if one.seconds is not None else one.duration
        if seconds is None:
            raise ListError(
                f"groups by length need start and end of each utterance, or its duration; {one.key} has none: add "
                '"duration" (seconds) to the lines of the list'
            )
        return self._length_rule(seconds)
