"""``fbank``: log mel filter bank features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from uio_pipes.audio.length import SLACK, TICKS, Plan, check_no_features
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.dither import noise
from uio_pipes.dsp.fbank import Fbank, num_frames


@dataclass(frozen=True)
class FbankFeatures(OfStream):
    """Compute Kaldi's log mel filter bank energies of ``wav``: ``feat`` (T, num_mel_bins) float32.

    Equal to ``torchaudio.compliance.kaldi.fbank(wav * 32768, energy_floor=0, …)`` to 1e-4 without dither. An
    utterance shorter than one window is the failure ``too_short``, one with precomputed features ``has_features``.

    Args:
        num_mel_bins: mel bands, which is F of the result. Default: 23.
        frame_length: length of a window in ms. Default: 25.0.
        frame_shift: step from one window to the next in ms. Default: 10.0.
        dither: standard deviation of the noise that is added, on the scale of 16-bit samples; it belongs to the
            utterance, so it is the same wherever that is computed. Default: 0.0.
        window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "fbank"
    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    num_mel_bins: int = 23
    frame_length: float = 25.0
    frame_shift: float = 10.0
    dither: float = 0.0
    window_type: str = "povey"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kernel  # noqa: B018  wrong parameters fail now

    @cached_property
    def kernel(self) -> Fbank:
        return Fbank(self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type)

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        check_no_features(sample.fields, self.name)
        if plan.sample_rate == TICKS:  # the true rate is unknown; windows and shifts may round down by a sample
            window, shift = self.frame_length * 1000 - SLACK, self.frame_shift * 1000 - SLACK
            return plan._replace(frames=1 + max(0, int((plan.samples - window) // shift)))
        return plan._replace(frames=num_frames(plan.samples, plan.sample_rate, self.frame_length, self.frame_shift))

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        check_no_features(fields, self.name)
        dither = noise(fields["wav"].shape[-1], draws) if self.dither else ()
        feat = self.kernel(fields["wav"], fields["sample_rate"], dither)
        if not len(feat):
            raise DataError("too_short", f"{fields['wav'].shape[-1]} samples are less than one window")
        fields["feat"] = feat
