"""``add_noise`` and ``reverberate``: noise or other voices mixed with the speech, and the acoustics of a room.

Noises and impulse responses are audio of a list, chosen by the utterance's draws and read when the batch is made. A
choice consists of numbers alone: it depends neither on the cache nor on the order of calls. In a shard, the number
chooses among all members once they are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch

from uio_pipes.audio.length import audio_info, segment_samples
from uio_pipes.audio.recording import decoded, in_floats
from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.base.memory import Lru
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, within
from uio_pipes.core.stage_link import StageLink
from uio_pipes.dsp.effects import REACH, add_noise, reverberate, room_response
from uio_pipes.dsp.fbank import noise
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
from uio_pipes.io.opening import is_local

LONG = 30  # seconds: only the wanted segment of longer files is decoded
BITS = 32


class Choice(NamedTuple):
    """A clip and a place in it: ``item`` is the number in the list, the others are 32 random bits each."""

    item: int
    member: int
    offset: int


class Clips:
    """The clips of a list. Decoded audio and the members of shards stay in a cache of at most ``cache_bytes``.

    Every method raises DataError ``reason`` for a clip that cannot be used; the message names it.
    """

    def __init__(self, paths: tuple[str, ...], reason: str, cache_bytes: int) -> None:
        self.table = ClipTable(paths)
        self.lines = [parse(self.table, i) for i in range(len(self.table))]
        self.reason = reason
        self.lanes = 0  # lanes of this process that use them
        self.cache = Lru("noises and rooms", cache_bytes)

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
        remote = isinstance(place.audio, str) and is_local(place.audio) is None
        if remote or ("clip", place.key, sample_rate) in self.cache:
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
        return DataError(
            self.reason, f"{where}: {error.message} [{error.reason}]; correct it, or remove it from the list"
        )


class ClipStage(OfStream):
    """A stage that works with clips. Subclasses are frozen dataclasses with these fields, and one for the paths."""

    reads = ("wav", "sample_rate")
    writes = ("wav",)
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
        """Change the waveform with the clip that ``draws`` choose."""
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
        raise DataError("bad_audio", "some samples are NaN or infinite")
    return clip


@dataclass(frozen=True)
class AddNoise(ClipStage):
    """Add noise from other recordings to ``wav``, at a random signal-to-noise ratio.

    The noise, the part of it that is used, and the ratio belong to the utterance: they are the same on 1 worker and
    on 64. From a longer noise a random segment is taken (if it is longer than 30 s and its header gives the length,
    only that segment is decoded); a shorter one is repeated, beginning at a random place. Noise is resampled to the
    utterance's rate, and its first channel is added to every channel of the utterance. Nothing is added to silence,
    silent noise adds nothing, and the result is not clipped.

    With ``part``, the noise is under a part of the utterance only, at a random place. With recordings of speech as
    noises that is overlapped speech (Chen et al., "WavLM", 2022). With ``clips``, several noises are added. With
    recordings of speech that is babble.

    A noise that cannot be read makes its utterance the failure ``bad_noise``, and the message names the noise.
    Remote files are read whole. Remote or compressed shards are kept as long as they take up to half the cache; a
    larger one is read again for each of its members.

    Args:
        noises: list file(s) whose lines are paths or URLs of audio files, ``key path`` pairs (Kaldi), JSON objects
            with ``wav`` (and ``start``, ``end`` in seconds), or tar shards of audio files; or the audio files and
            shards themselves, by name, glob or braces. Each line has equal chances, and so has each audio file of
            its shard.
        snr: (lowest, highest) signal-to-noise ratio in dB, of the powers (mean squares) over the whole utterance;
            one is drawn evenly from between. Both within ±100. Default: (5.0, 20.0).
        probability: how likely an utterance gets noise, from 0 to 1. Default: 1.0.
        cache_mb: MiB of decoded noise that each process keeps in memory, for all its lanes. Default: 256.
        clips: (fewest, most) noises that an utterance gets, if it gets any; each number in between has equal chances.
            Each noise has its own part, ratio and place. Default: (1, 1).
        part: (smallest, largest) share of the utterance's length that has the noise, within 0 and 1; one is drawn
            evenly from between. Its place is random. A shorter noise is not repeated. The ratio is that of the whole
            utterance to this part of the noise. None: the noise is under the whole utterance. Default: None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        ListError: when the loader starts, if the list is missing or cannot be used.
    """

    name: ClassVar[str] = "add_noise"
    lists: ClassVar[str] = "noises"
    bad: ClassVar[str] = "bad_noise"

    noises: str | Sequence[str]
    snr: Sequence[float] = field(default=(5.0, 20.0), metadata=within(-100, 100, "dB"))
    probability: float = 1.0
    cache_mb: int = 256
    clips: Sequence[int] = (1, 1)
    part: Sequence[float] | None = field(default=None, metadata=within(0, 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.clips if isinstance(self.clips, (list, tuple)) else ()
        ok = len(counts) == 2 and all(map(is_whole, counts)) and 1 <= counts[0] <= counts[1] <= 100
        require(ok, self.name, "clips must be (fewest, most), whole numbers from 1 to 100", self.clips, "try (3, 7)")
        object.__setattr__(self, "clips", tuple(counts))

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, snr, choice = draws.uniform() < self.probability, draws.uniform(*self.snr), clips.choose(draws)
        speech = sample.fields["wav"] = in_floats(sample.fields["wav"])
        if not wanted:
            return
        rate = sample.fields["sample_rate"]
        noisy, (fewest, most) = speech, self.clips
        for i in range(fewest + draws.below(most - fewest + 1)):
            if i:
                snr, choice = draws.uniform(*self.snr), clips.choose(draws)
            samples = speech.shape[-1]
            length = samples if self.part is None else min(samples, max(1, round(samples * draws.uniform(*self.part))))
            noise = clips.segment(choice, rate, length, once=self.part is not None)
            first = draws.below(speech.shape[-1] - len(noise) + 1)
            noisy = add_noise(noisy, noise, snr, first, speech)
        sample.fields["wav"] = noisy


_ROOM, _HEIGHT = (3.0, 10.0), (2.5, 4.0)  # metres of length and width, and of height
_INSIDE = (0.1, 0.9)  # of each dimension: where source and microphone can be


@dataclass(frozen=True)
class Reverberate(ClipStage):
    """Convolve ``wav`` with a room impulse response, keeping length, timing and power.

    The responses are recordings, ``reverberate("rooms.list")``, or are computed for a room of its own for each
    utterance, ``reverberate(rt60=(0.1, 0.8))``. The direct sound (a recorded response's highest peak) is put at time
    0, and the result is scaled to the power of the input, like Kaldi's ``wav-reverberate --shift-output
    --normalize-output``. Which response is used belongs to the utterance: it is the same on 1 worker and on 64.

    A recorded response is resampled to the utterance's rate, and its first channel is used. One that cannot be read,
    or is silent, makes its utterance the failure ``bad_impulse_response``, and the message names it.

    A computed one is that of a box whose walls reflect alike, 3 to 10 m long and wide and 2.5 to 4 m high, with source
    and microphone anywhere but in the outer tenths of each: image sources for the first 50 ms, decaying noise after
    (Lehmann and Johansson, "Diffuse reverberation model for efficient image-source simulation of room impulse
    responses", 2010).

    Args:
        impulse_responses: list file(s), audio files or tar shards of them, as for ``add_noise``. Default: None.
        probability: how likely an utterance is reverberated, from 0 to 1. Default: 1.0.
        cache_mb: MiB of decoded responses that each process keeps in memory, for all its lanes. Default: 256.
        rt60: (lowest, highest) reverberation time of computed rooms, the seconds in which sound decays by 60 dB, within
            0.05 and 10; one is drawn evenly from between. In place of ``impulse_responses``. Default: None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: neither ``impulse_responses`` nor ``rt60`` is given, or both, or an argument breaks a rule.
        ListError: when the loader starts, if the list is missing or cannot be used.
    """

    name: ClassVar[str] = "reverberate"
    lists: ClassVar[str] = "impulse_responses"
    optional: ClassVar[bool] = True
    bad: ClassVar[str] = "bad_impulse_response"

    impulse_responses: str | Sequence[str] | None = None
    probability: float = 1.0
    cache_mb: int = 256
    rt60: Sequence[float] | None = field(default=None, metadata=within(0.05, 10, "s"))

    def __post_init__(self) -> None:
        given = (self.impulse_responses, self.rt60)
        sentence = "give either impulse_responses, for recorded rooms, or rt60, for computed ones"
        refuse(given.count(None) != 1, self.name, sentence, "as in rt60=(0.1, 0.8)")
        super().__post_init__()

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, choice = draws.uniform() < self.probability, clips.choose(draws)
        wav = sample.fields["wav"] = in_floats(sample.fields["wav"])
        if wanted:
            response = clips.whole(choice, sample.fields["sample_rate"])
            sample.fields["wav"] = reverberate(wav, response)

    def apply(self, sample: Sample, draws: Draws) -> None:
        """Reverberate in a computed room."""
        fields = sample.fields
        wav = fields["wav"] = in_floats(fields["wav"])
        if draws.uniform() < self.probability and wav.numel():
            sample_rate, rt60 = fields["sample_rate"], draws.uniform(*self.rt60 or ())
            size = [draws.uniform(*bounds) for bounds in (_ROOM, _ROOM, _HEIGHT)]
            source, microphone = ([length * draws.uniform(*_INSIDE) for length in size] for _ in range(2))
            one, other = noise(round(rt60 * sample_rate), draws)
            room = room_response(sample_rate, rt60, size, source, microphone, torch.from_numpy(one + other))
            fields["wav"] = reverberate(wav, room, REACH)
