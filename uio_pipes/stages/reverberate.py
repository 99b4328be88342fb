"""``reverberate``: the speech as heard in a room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.audio.waveform import in_floats
from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import added, within
from uio_pipes.dsp.dither import noise
from uio_pipes.dsp.noise import reverberate
from uio_pipes.dsp.rooms import REACH, room_response
from uio_pipes.stages.noise_clips import Clips, ClipStage

_ROOM = (3.0, 10.0)  # metres
_HEIGHT = (2.5, 4.0)  # metres of a room
_INSIDE = (0.1, 0.9)  # of each dimension: where source and microphone can be


@dataclass(frozen=True)
class Reverberate(ClipStage):
    """Convolve ``wav`` with a room impulse response; length, timing and power stay as they were.

    The responses are recordings, ``reverberate("rooms.list")``, or are computed for a room of its own for each
    utterance, ``reverberate(rt60=(0.1, 0.8))``. The direct sound (a recorded response's highest peak) is put at time
    0, and the result is scaled to the power of the input, like Kaldi's ``wav-reverberate --shift-output
    --normalize-output``. Which response is used belongs to the utterance: it is the same on 1 worker and on 64.

    A recorded response is resampled to the utterance's rate, and its first channel is used. One that cannot be read,
    or is silent, makes its utterance the failure ``bad_impulse_response``, and the message names it.

    A computed one is that of a box whose walls reflect alike, with a height of 2.5 to 4 m, and source and microphone
    anywhere but in the outer tenths of its length, width and height: image sources for the first 50 ms, decaying noise
    after (Lehmann and Johansson, "Diffuse reverberation model for efficient image-source simulation of room impulse
    responses", 2010).

    Args:
        impulse_responses: list file(s), audio files or tar shards of them, as for ``add_noise``. Default: None.
        probability: how likely an utterance is reverberated, from 0 to 1. Default: 1.0.
        cache_mb: MiB of decoded responses that each process keeps in memory, for all its lanes. Default: 256.
        rt60: (lowest, highest) reverberation time of computed rooms, the seconds in which sound decays by 60 dB, within
            0.05 and 10; one is drawn evenly from between. In place of ``impulse_responses``. Default: None.
        room_size: (lowest, highest) length and width of computed rooms in metres, within 1 and 100; each is drawn
            evenly from between. Large rooms with a short reverberation time are almost dry. Default: (3.0, 10.0).
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
    rt60: Sequence[float] | None = added(None, metadata=within(0.05, 10, "s"))
    room_size: Sequence[float] = added(_ROOM, metadata=within(1, 100, "m"))

    def __post_init__(self) -> None:
        rule = "give either impulse_responses, recorded ones, or rt60, for computed rooms"
        given = (self.impulse_responses, self.rt60)
        require(given.count(None) == 1, self.name, rule, given, "try rt60=(0.1, 0.8)")
        super().__post_init__()
        rule = "room_size is that of computed rooms, but impulse_responses are recorded"
        fits = self.rt60 is not None or self.room_size == _ROOM
        require(fits, self.name, rule, self.room_size, "leave one of them out")

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, choice = draws.uniform() < self.probability, clips.choose(draws)
        if wanted:
            wav = torch.as_tensor(sample.fields["wav"])
            response = clips.whole(choice, sample.fields["sample_rate"])
            sample.fields["wav"] = reverberate(wav, response)

    def apply(self, sample: Sample, draws: Draws) -> None:
        """Reverberate in a computed room."""
        fields = sample.fields
        wav = fields["wav"] = in_floats(fields["wav"])
        if draws.uniform() < self.probability and wav.numel():
            fields["wav"] = reverberate(wav, self._room(fields["sample_rate"], draws), REACH)

    def _room(self, sample_rate: int, draws: Draws) -> torch.Tensor:
        rt60 = draws.uniform(*self.rt60 or ())
        size = [draws.uniform(*bounds) for bounds in (self.room_size, self.room_size, _HEIGHT)]
        source, microphone = ([length * draws.uniform(*_INSIDE) for length in size] for _ in range(2))
        one, other = noise(round(rt60 * sample_rate), draws)
        return room_response(sample_rate, rt60, size, source, microphone, one + other)
