"""What is packed, and where: each utterance has its place before anything is decoded."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import measure
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.tools.data.reading import Bad, TableUtterances, Utterance, UtteranceList
from uio_pipes.tools.data.writing.cutting import FRAMES_PER_SECOND, Dtype, Form
from uio_pipes.tools.data.writing.journal import Finished
from uio_pipes.tools.data.writing.making import Placed


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


To = Literal["shards", "indexed", "raw", "cuts"]
_NAMES = {"shards": "data-{:05d}.tar", "indexed": "data-{:05d}", "raw": "wav-{:05d}", "cuts": "cuts-{:05d}"}


@dataclass(frozen=True)
class PackSettings:
    """What data are written as. ``size``: utterances in a part; ``name``: of a part, with a field for its number.

    ``form`` and ``sample_rate`` are those of ``cut_recording``; a rate of None keeps each recording's own.
    ``features``: to be packed in place of audio. ``to``: tars, folders of a TouchDataset, folders of audio files with a
    raw list, or Lhotse's cuts. ``needs_text``: False if utterances may have no transcript.
    """

    size: int = 2000
    groups: tuple[LengthGroup, ...] = ()
    form: Form = "wav"
    sample_rate: int | None = 16_000
    name: str = ""
    features: FeatureSettings | None = None
    to: To = "shards"
    needs_text: bool = True

    @property
    def part_name(self) -> str:
        """``name``, or what parts of this kind are usually called."""
        return self.name or _NAMES[self.to]

    def identity(self) -> dict[str, Any]:
        """Return these settings, as the journal keeps them."""
        known = asdict(self) | {"groups": [group.folder for group in self.groups], "name": self.part_name}
        del known["features"]
        return known | ({"dtype": self.features.dtype, "features": self.features.stages()} if self.features else {})

    def length_rule(self) -> Callable[[float], int]:
        """Return the function that gives the frames of so many seconds: those of their features, or of 10 ms."""
        if not self.groups or self.features is None:
            return lambda seconds: int(seconds * FRAMES_PER_SECOND + 1e-6)
        from uio_pipes.tools.data.writing.features import extractor

        return extractor(self.features.conf or {}).frames


class InOrder:
    """Utterances that are read once, as a stream: each shard takes the next ones. What cannot be read between them
    belongs to the shard of the next one. The attributes are those of :class:`Placement`; ``shards`` is complete at the
    end, and only then ``count`` is more than a bound."""

    def __init__(self, utterances: UtteranceList, settings: PackSettings) -> None:
        self._utterances, self._settings, self.apart = utterances, settings, False
        self.shards, self.bad, self.digest = list[str](), list[Bad](), utterances.digest
        self.left_out, self.total = utterances.left_out, utterances.total

    def count(self, shard: str) -> int:
        return self._settings.size

    def utterances(self, settled: Mapping[str, Finished], split: Split) -> Iterator[Placed]:
        seen, waiting, name, done = 0, list[Bad](), "", False
        for one in self._utterances:
            if isinstance(one, Bad):
                waiting.append(one)
                continue
            if seen % self._settings.size == 0:
                name = self._begin()
                done = name in settled and settled[name].first == one.key
            seen += 1
            if not done:
                yield from ((name, bad) for bad in waiting)
                yield name, one
            waiting = []
        if waiting and seen % self._settings.size == 0:
            name = self._begin()
            done = name in settled
        if not done:
            yield from ((name, bad) for bad in waiting)

    def _begin(self) -> str:
        self.shards.append(self._settings.part_name.format(len(self.shards)))
        return self.shards[-1]


class Placement:
    """The shard of each utterance of a list. The list is read once, or twice if a key occurs twice; 4 bytes an
    utterance stay in memory (12 while it is read).

    Attributes: ``shards`` (names, in the order in which they begin), ``counts`` (utterances of each), ``left_out``
    (reasons and counts of utterances in no group, or that the source does not want), ``bad`` (lines that cannot be
    read, and keys that an earlier utterance has), ``apart`` (no recording is in two shards, as far as neighbours show),
    ``total`` (how many have a place).
    """

    def __init__(self, utterances: UtteranceList, settings: PackSettings) -> None:
        self._list, self.settings = utterances, settings
        self.shards: list[str] = []
        self.counts: list[int] = []
        self.left_out: Counter[str] = Counter()
        self.bad: list[Bad] = []
        self.apart = isinstance(utterances, TableUtterances)
        self._groups = sorted(settings.groups, key=lambda group: group.low)
        self._length_rule = settings.length_rule()
        self._of = array("i")
        hashes = array("q")
        placed: Counter[str] = Counter()
        current: dict[str, int] = {}
        recording, last = None, NOWHERE
        for one in self._list:
            folder = self._folder(one)
            hashes.append(hash(one.key))
            if folder is None:
                self._of.append(NOWHERE)
                continue
            number, within = divmod(placed[folder], self.settings.size)
            if not within:
                current[folder] = len(self.shards)
                self.shards.append(folder + self.settings.part_name.format(number))
                self.counts.append(0)
            placed[folder] += 1
            shard = current[folder]
            self.counts[shard] += 1
            self._of.append(shard)
            if isinstance(one, Utterance):
                self.apart &= one.source != recording or shard == last
                recording, last = one.source, shard
        self._leave_out_twice(np.frombuffer(hashes, np.int64))
        self.left_out += utterances.left_out
        self._counts = dict(zip(self.shards, self.counts, strict=True))
        self.total: int | None = sum(self.counts)
        self.digest = utterances.digest

    def _leave_out_twice(self, hashes: npt.NDArray[np.int64]) -> None:
        """Leave out the second and later utterances of one key, in any shard: readers would join them."""
        placed = np.flatnonzero(np.frombuffer(self._of, np.int32) != NOWHERE)
        values, counts = np.unique(hashes[placed], return_counts=True)
        if not (suspects := set(placed[np.isin(hashes[placed], values[counts > 1])].tolist())):
            return
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

    @property
    def places(self) -> str:
        """A hash of where each utterance goes, which depends on lengths that the list may not tell."""
        return blake2b(self._of.tobytes(), digest_size=8).hexdigest()

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

    def utterances(self, settled: Mapping[str, Finished], split: Split) -> Iterator[Placed]:
        """Yield the utterances of this share's shards that are not ``settled``, in the list's order."""
        todo = self.share(split) - settled.keys()
        want = [shard in todo for shard in self.shards]
        for number, one in zip(self._of, self._list if todo else (), strict=bool(todo)):
            if number != NOWHERE and want[number] and isinstance(one, Utterance):
                yield self.shards[number], one

    def count(self, shard: str) -> int:
        """Return the number of utterances of a shard."""
        return self._counts[shard]

    def _folder(self, one: Utterance | Bad) -> str | None:
        if isinstance(one, Bad):
            self.bad.append(one)
            return None
        if not self._groups:
            return ""
        try:
            frames = self._frames(one)
        except DataError as error:
            self.bad.append(Bad(one.key, error.reason, str(error if error.url else error.at(one.place, one.key))))
            return None
        for group in self._groups:
            if group.low <= frames < group.high:
                return f"{group.folder}/"
        short, long = frames < self._groups[0].low, frames >= self._groups[-1].high
        self.left_out["too_short" if short else "too_long" if long else "between_groups"] += 1
        return None

    def _frames(self, one: Utterance) -> int:
        """Return the frames of an utterance. Raises: DataError, ListError if nothing gives its length."""
        if "feat" in one.fields and one.wav is None:
            plan = measure({"feat": one.fields["feat"]})
            return plan.length if plan is not None else 0
        seconds = one.seconds
        if seconds is None:
            declared = one.fields.get("duration")
            seconds = declared if type(declared) in (int, float) else None
        if seconds is None:
            raise ListError(
                f"groups by length need start and end of each utterance, or its duration; {one.key} has none: add "
                '"duration" (seconds) to the lines of the list'
            )
        return self._length_rule(seconds)


Places = InOrder | Placement
