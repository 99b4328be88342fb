"""Noises and impulse responses: audio of a list, chosen by the utterance's draws, read when the batch is made.

A choice is made of numbers alone, before anything is read: it depends neither on what the cache holds nor on the
order of calls. In a shard the member is chosen among all that the shard holds, once that is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from uio_pipes.dsp.decode import decode, decode_file
from uio_pipes.dsp.resample import resample
from uio_pipes.errors import DataError, ListError
from uio_pipes.io.local import LocalFile, Payload, Ref
from uio_pipes.io.lru import Lru
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.io.stream import open_source
from uio_pipes.lane import Draws, Site
from uio_pipes.length import audio_info, segment_samples
from uio_pipes.sample import Sample
from uio_pipes.sources.table import ARCHIVES, Table
from uio_pipes.sources.tar_members import Member, TarMembers
from uio_pipes.sources.tar_reader import AUDIO_SUFFIXES, split_name
from uio_pipes.stage import PerUtterance, StageLink, is_number, require

__all__ = ["Choice", "ClipLink", "ClipTable", "Clips", "entries"]

LONG = 30  # seconds: of longer files only the wanted segment is decoded
MEMBER_BYTES = 400  # of a shard's member in the cache, without its payload
BITS = 32


class Choice(NamedTuple):
    """Which clip, and where in it: numbers of 32 random bits but for ``item``, the number in the list."""

    item: int
    member: int
    offset: int


class ClipTable(Table):
    """Lists of audio files or shards of them; audio files themselves may be named too."""

    direct = (*ARCHIVES, *(f".{s}" for s in AUDIO_SUFFIXES), *(f".{s.upper()}" for s in AUDIO_SUFFIXES))


class _Place(NamedTuple):
    """Where the audio of a clip is: a path or URL, bytes, or a reference; perhaps a segment of it, in seconds."""

    key: tuple[int, int]
    name: str
    audio: Payload | str
    start: float | None = None
    end: float | None = None


def _is_remote(audio: Payload | str) -> bool:
    return isinstance(audio, str) and is_local(audio) is None


class Clips:
    """The clips of a list. What is decoded stays in a cache of at most ``cache_bytes``; so does what shards hold.

    Every method raises DataError ``reason`` for a clip that cannot be used; the message names it.
    """

    def __init__(self, paths: tuple[str, ...], reason: str, cache_bytes: int) -> None:
        self.table = ClipTable(paths)
        self.lines = [_parse(self.table, i) for i in range(len(self.table))]
        self.reason = reason
        self.cache = Lru(cache_bytes)

    def choose(self, draws: Draws) -> Choice:
        """A clip, each line of the list with equal chances, then each member of its shard; and a place in it."""
        return Choice(draws.below(len(self.lines)), draws.below(1 << BITS), draws.below(1 << BITS))

    def whole(self, choice: Choice, sample_rate: int) -> torch.Tensor:
        """The clip's first channel, (S,) float32 at ``sample_rate``; not one of zeros only."""
        place = self._place(choice)
        try:
            clip = self._whole(place, sample_rate)
            if not clip.any():
                raise DataError("silent_audio", "every sample is 0")
        except DataError as error:
            raise self._bad(choice, place.name, error) from error
        return clip

    def segment(self, choice: Choice, sample_rate: int, samples: int) -> torch.Tensor:
        """``samples`` of the clip from the chosen offset on; a shorter clip is repeated, beginning there."""
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
        first = len(clip) * choice.offset >> BITS
        return clip.repeat(-(-(samples + first) // len(clip)))[first : first + samples]

    def _part(self, place: _Place, choice: Choice, sample_rate: int, samples: int) -> torch.Tensor | None:
        """The segment, decoded alone; None where the clip is short or only decoding tells its length."""
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
        waveform, _ = _decode(place.audio, first / rate, (first + needed) / rate)
        return resample(waveform, rate, sample_rate)[0, :samples]

    def _whole(self, place: _Place, sample_rate: int) -> torch.Tensor:
        def make() -> torch.Tensor:
            waveform, rate = _decode(place.audio, place.start, place.end)
            return resample(waveform, rate, sample_rate)[0]

        return self.cache.get(("clip", place.key, sample_rate), make, lambda clip: clip.nbytes)

    def _place(self, choice: Choice) -> _Place:
        line = self.lines[choice.item]
        if isinstance(line, _Place):
            return line
        name = line
        try:
            members = self.cache.get(("shard", choice.item), lambda: self._members(line), _weight)
            number = len(members) * choice.member >> BITS
            name = f"{line}, member {members[number][0]!r}"
            audio = members[number][1]
            return _Place((choice.item, number), name, _read_again(line, *audio) if isinstance(audio, tuple) else audio)
        except DataError as error:
            raise self._bad(choice, name, error) from error

    def _members(self, url: str) -> list[_Member]:
        """The audio of a shard: references into a local plain tar; of a stream the bytes, until they take half of what
        may be kept, and then where they are."""
        source = open_source(url)
        found: list[_Member] = []
        held = 0
        try:
            reader = TarMembers(url, source, 0, False)
            for member in iter(lambda: _next_audio(reader), None):
                payload = source.payload(member.offset, member.size)
                if payload is None:
                    raise reader.cut_short("a payload", member.start, member.offset + member.size)
                held += len(payload) if isinstance(payload, bytes) else 0
                fits = held <= self.cache.limit // 2
                found.append((member.name, payload if fits else (member.offset, member.size)))
        finally:
            source.close()
        if not found:
            raise DataError("empty_shard", f"the shard holds no audio ({', '.join(sorted(AUDIO_SUFFIXES))})")
        return found

    def _bad(self, choice: Choice, name: str, error: DataError) -> DataError:
        place = self.table.place(choice.item)
        where = name if name.startswith(place) else f"{name} (listed in {place})"
        return DataError(self.reason, f"{where}: {error.message} [{error.reason}]; mend it, or take it off the list")


class ClipLink(StageLink):
    """A stage that works with clips, at its place in a graph: ``act(sample, draws, clips)``."""

    __slots__ = ("act", "clips")

    def __init__(
        self, stage: PerUtterance, site: Site, clips: Clips, act: Callable[[Sample, Draws, Clips], None]
    ) -> None:
        super().__init__(stage, site)
        self.clips, self.act = clips, act

    def apply(self, sample: Sample) -> None:
        self.act(sample, sample.draws(self.salt), self.clips)


_Member = tuple[str, Payload | tuple[int, int]]  # name, and the audio or its offset and size


def _next_audio(reader: TarMembers) -> Member:
    """The next member that is audio by its suffix. Raises StopIteration at the end."""
    while True:
        member = reader.next()
        parts = None if member is None else split_name(member.name, "wenet")
        if member is not None and parts is not None and parts[1] in AUDIO_SUFFIXES:
            return member


def _weight(members: list[_Member]) -> int:
    return sum(MEMBER_BYTES + (len(audio) if isinstance(audio, bytes) else 0) for _, audio in members)


def _read_again(url: str, offset: int, size: int) -> Payload:
    """A member of a stream too large to be kept: read from its beginning once more."""
    source = open_source(url)
    try:
        payload = source.payload(offset, size)
    finally:
        source.close()
    if payload is None:
        raise DataError("truncated", f"the shard ends before byte {offset + size}; fetch it again")
    return payload


def _decode(audio: Payload | str, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
    path = is_local(audio) if isinstance(audio, str) else None
    if path is not None:
        LocalFile(path).size  # noqa: B018  a missing file is said to be missing
        return decode_file(path, 0, start, end)
    if isinstance(audio, str):
        with open_binary(audio) as file:
            audio = file.read()
    return decode(audio.read() if isinstance(audio, Ref) else audio, 0, start, end)


def _parse(table: Table, number: int) -> _Place | str:
    """A line: a shard's name; or an audio file's, after its key (Kaldi), or as ``wav`` of a JSON object."""
    line = table[number]
    if line.endswith(ARCHIVES):
        return line
    start = end = None
    if line.startswith("{"):
        wav, start, end = _parse_json(line, table.place(number))
    else:
        first, _, rest = line.partition(" ") if " " in line else line.partition("\t")
        wav = rest.strip() if rest.strip() and "/" not in first else line
    if wav.endswith("|"):
        raise ListError(f"{table.place(number)} is a shell command: {line[:80]!r}; run it and list the files it makes")
    return _Place((number, 0), wav, wav, start, end)


def _parse_json(line: str, place: str) -> tuple[str, float | None, float | None]:
    try:
        fields: dict[str, Any] = json.loads(line)
        wav = fields["wav"]
    except (ValueError, KeyError) as error:
        raise ListError(f'{place} is no JSON object with a "wav": {line[:80]!r}') from error
    start, end = fields.get("start"), fields.get("end")
    if not isinstance(wav, str) or not all(v is None or is_number(v) for v in (start, end)):
        raise ListError(f'{place} must have a path as "wav", and seconds as "start" and "end", if any: {line[:80]!r}')
    return wav, start, end


def entries(stage: str, name: str, paths: Any) -> tuple[str, ...]:
    """``paths`` of a stage's parameter ``name`` as a tuple of strings. Raises: PipelineError."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    ok = isinstance(given, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) and os.fspath(p) for p in given)
    rule = f"{name} must be a list file, an audio file or a tar shard, or several of them"
    require(ok and bool(given), stage, rule, paths, 'name a list, or files by a glob ("noise/**/*.wav")')
    return tuple(os.fspath(p) for p in given)
