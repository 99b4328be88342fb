"""Noises and impulse responses: audio of a list, chosen by the utterance's draws, read when the batch is made.

A choice consists of numbers alone and is made before anything is read: it depends neither on the cache nor on the order
of calls. In a shard, the number chooses among all members once they are known.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch

from uio_pipes.audio.length import audio_info, segment_samples
from uio_pipes.audio.recording import decoded
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws, Lru
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Deferred, Node
from uio_pipes.core.roles import OfStream, StageLink
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.resample import resample
from uio_pipes.formats.lists.clips import (
    MEMBER_BYTES,
    ClipPlace,
    ClipTable,
    entries,
    members,
    parse,
    read_again,
    weight,
)
from uio_pipes.io.local import Payload
from uio_pipes.io.opening import is_local

LONG = 30  # seconds: only the wanted segment of longer files is decoded
BITS = 32


class Choice(NamedTuple):
    """A clip and a place in it: ``item`` is the number in the list, the others are 32 random bits each."""

    item: int
    member: int
    offset: int


def _is_remote(audio: Payload | str) -> bool:
    return isinstance(audio, str) and is_local(audio) is None


class Clips:
    """The clips of a list. Decoded audio and the members of shards stay in a cache of at most ``cache_bytes``.

    Every method raises DataError ``reason`` for a clip that cannot be used; the message names it.
    """

    def __init__(self, paths: tuple[str, ...], reason: str, cache_bytes: int) -> None:
        self.table = ClipTable(paths)
        self.lines = [parse(self.table, i) for i in range(len(self.table))]
        self.reason = reason
        self.lanes = 0  # lanes of this process that use them
        self.cache = Lru(cache_bytes)

    def choose(self, draws: Draws) -> Choice:
        """Choose a line of the list, then a member of its shard, each with equal chances, and a place in the clip."""
        return Choice(draws.below(len(self.lines)), draws.below(1 << BITS), draws.below(1 << BITS))

    def whole(self, choice: Choice, sample_rate: int) -> torch.Tensor:
        """Return the clip's first channel, (S,) float32 at ``sample_rate``. A silent clip cannot be used."""
        place = self._place(choice)
        try:
            clip = self._whole(place, sample_rate)
            if not clip.any():
                raise DataError("silent_audio", "every sample is 0")
        except DataError as error:
            raise self._bad(choice, place.name, error) from error
        return clip

    def segment(self, choice: Choice, sample_rate: int, samples: int, *, once: bool = False) -> torch.Tensor:
        """Return ``samples`` of the clip from the chosen offset on; a shorter clip is repeated, beginning there.

        ``once``: a shorter clip is not repeated, but returned as it is.
        """
        place = self._place(choice)
        try:
            part = self._part(place, choice, sample_rate, samples)
            if part is not None:
                return part
            clip = self._whole(place, sample_rate)
        except DataError as error:
            raise self._bad(choice, place.name, error) from error
        spare = len(clip) - samples
        if spare >= 0:
            first = (spare + 1) * choice.offset >> BITS
            return clip[first : first + samples]
        if once:
            return clip
        first = len(clip) * choice.offset >> BITS
        return clip.repeat(-(-(samples + first) // len(clip)))[first : first + samples]

    def _part(self, place: ClipPlace, choice: Choice, sample_rate: int, samples: int) -> torch.Tensor | None:
        """Decode only the segment; None if the clip is short or only decoding shows its length."""
        if ("clip", place.key, sample_rate) in self.cache or _is_remote(place.audio):
            return None
        info = self.cache.get(("info", place.key), lambda: audio_info(place.audio, {}), lambda _: MEMBER_BYTES)
        if info is None or (total := segment_samples(info, place.start, place.end)) <= LONG * info.sample_rate:
            return None
        needed = -(-samples * info.sample_rate // sample_rate) + 1
        if total <= needed:
            return None
        rate = info.sample_rate
        first = round((place.start or 0) * rate) + ((total - needed + 1) * choice.offset >> BITS)
        waveform, _ = decoded(place.audio, 0, first / rate, (first + needed) / rate)
        return _finite(resample(waveform, rate, sample_rate)[0, :samples])

    def _whole(self, place: ClipPlace, sample_rate: int) -> torch.Tensor:
        def make() -> torch.Tensor:
            waveform, rate = decoded(place.audio, 0, place.start, place.end)
            return _finite(resample(waveform, rate, sample_rate)[0])

        return self.cache.get(("clip", place.key, sample_rate), make, lambda clip: clip.nbytes)

    def _place(self, choice: Choice) -> ClipPlace:
        line = self.lines[choice.item]
        if isinstance(line, ClipPlace):
            return line
        name = line
        try:
            found = self.cache.get(("shard", choice.item), lambda: members(line, self.cache.limit // 2), weight)
            number = len(found) * choice.member >> BITS
            member, audio = found[number]
            name = f"{line}, member {member!r}"
            payload = read_again(line, *audio) if isinstance(audio, tuple) else audio
            return ClipPlace((choice.item, number), name, payload)
        except DataError as error:
            raise self._bad(choice, name, error) from error

    def _bad(self, choice: Choice, name: str, error: DataError) -> DataError:
        place = self.table.place(choice.item)
        where = name if name.startswith(place) else f"{name} (listed in {place})"
        return DataError(self.reason, f"{where}: {error.message} [{error.reason}]; correct it, or take it off the list")


class ClipStage(OfStream):
    """A stage that works with clips. Subclasses are frozen dataclasses with these fields, and one for the paths."""

    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])
    lists: ClassVar[str]  # the field for the paths
    optional: ClassVar[bool] = False  # without paths it works without clips, by ``apply``
    bad: ClassVar[str]  # the reason for which an utterance fails whose clip cannot be used

    probability: float
    cache_mb: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.optional and self._paths is None):
            object.__setattr__(self, self.lists, entries(self.name, self.lists, self._paths))
        require(0 <= self.probability <= 1, self.name, "probability must be 0 to 1", self.probability, "try 0.5")
        require(self.cache_mb >= 0, self.name, "cache_mb must be 0 or more MiB", self.cache_mb, "try 256")

    @property
    def _paths(self) -> Any:
        return getattr(self, self.lists)

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        """Change the waveform by the clip that ``draws`` choose."""
        raise NotImplementedError

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        if self._paths is None:
            return super().build(source, lane, site)
        key = (self.name, self._paths, self.cache_mb)
        clips = lane.shared(key, lambda: Clips(self._paths, self.bad, self.cache_mb << 20))
        return _ClipNode(source, _ClipLink(self, site, clips))

    def content(self) -> list[tuple[int, str]]:
        return [] if self._paths is None else [(0, ClipTable(self._paths).digest)]


class _ClipNode(Deferred):
    """Its lanes share the cache of the clips, and account for it."""

    def __init__(self, source: Node, link: _ClipLink) -> None:
        super().__init__(source, link)
        self.clips = link.clips
        self.clips.lanes += 1

    def memory(self) -> int:
        return super().memory() + self.clips.cache.limit // self.clips.lanes


class _ClipLink(StageLink):
    __slots__ = ("change", "clips")

    def __init__(self, stage: ClipStage, site: Site, clips: Clips) -> None:
        super().__init__(stage, site)
        self.change, self.clips = stage.change, clips

    def run(self, sample: Sample) -> None:
        self.change(sample, sample.draws(self.salt), self.clips)


def _finite(clip: torch.Tensor) -> torch.Tensor:
    if not clip.isfinite().all():
        raise DataError("bad_audio", "some samples are not finite numbers")
    return clip
