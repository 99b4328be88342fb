"""``decode_audio``: the waveform of an audio file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from uio_pipes.audio.bounds import LONGEST, decoding_at_most
from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.audio.recording import decoded
from uio_pipes.audio.waveform import as_waveform
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import added
from uio_pipes.io.local import Ref


@dataclass(frozen=True)
class DecodeAudio(OfStream):
    """Decode ``wav`` to float32 of shape (1, S) in [-1, 1], and set ``sample_rate`` in Hz.

    Formats: wav, flac, ogg, opus and mp3; with ``pip install 'uio_pipes[codecs]'`` also m4a, aac and wma. They are
    recognized by their first bytes. If the utterance has ``start`` and ``end`` (seconds), that segment is cut out.
    The planned length comes from the header, so that nothing is decoded before the batch is made; mp3, m4a, aac and
    wma have no reliable length there and are decoded when it is first needed. Samples that are arrays or tensors
    already, of shape (S,) or (C, S), are only converted; integers are taken as PCM of their width.

    Failures: ``bad_audio``, ``truncated_audio``, ``empty_audio``, ``nan_audio``, ``bad_segment``, ``no_such_channel``,
    ``missing_codec``, ``too_long_to_decode``.

    Args:
        channel: number of the channel to keep, counted from 0; None keeps all of them, (C, S). Default: 0.
        longest: seconds that are decoded for one utterance, which takes 230 MB an hour at 16 kHz; a longer one is the
            failure ``too_long_to_decode``. Segments of longer recordings are no matter. None: no bound. Default:
            3600.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "decode_audio"
    note: ClassVar[str] = "when the batch is made (mp3, m4a, aac, wma: when its length is needed)"
    reads: ClassVar[frozenset[str]] = frozenset(["wav", "start", "end"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])

    channel: int | None = 0
    longest: float | None = added(LONGEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.channel is None or (isinstance(self.channel, int) and self.channel >= 0)
        bounded = self.longest is None or self.longest > 0
        require(bounded, self.name, "longest must be above 0 seconds, or None for no bound", self.longest, "try 7200")
        require(ok, self.name, "channel must be 0 or more, or None for all", self.channel, "WeNet keeps channel 0")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is not None or "wav" not in sample.fields:
            return plan
        sample.compute_now(self.name, self.of)
        wav = sample.fields["wav"]
        return Plan(int(wav.shape[-1]), sample.fields["sample_rate"])

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        wav = fields.get("wav")
        if wav is None:
            instead = ", but features: leave out what makes them from audio" if "feat" in fields else ""
            there = ", ".join(map(str, fields))
            raise DataError("missing_audio", f"the utterance has no audio to decode{instead} (its fields: {there})")
        if isinstance(wav, (torch.Tensor, np.ndarray)):
            fields["wav"] = as_waveform(wav, self.channel)
            return
        with decoding_at_most(self.longest):
            waveform, rate = decoded(wav, self.channel, fields.get("start"), fields.get("end"))
        _check_rate(wav, fields.get("sample_rate"), rate)
        fields["wav"], fields["sample_rate"] = waveform, rate


def _check_rate(wav: Any, stated: Any, rate: int) -> None:
    """Raises: DataError if the list or the index states a sample rate that the audio does not have."""
    info = wav.info if isinstance(wav, Ref) else None
    for what, known in (("its entry", stated), ("the index", info.sample_rate if info is not None else None)):
        if isinstance(known, (int, float)) and known > 0 and known not in (rate, TICKS):  # which are seconds
            raise DataError("wrong_rate", f"{what} says {known} Hz, the audio has {rate}: correct one of them")
