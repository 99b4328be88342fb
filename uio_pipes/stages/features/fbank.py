"""``fbank``, ``mfcc`` and ``log_mel_spectrogram``: features of the waveform."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from uio_pipes.audio.length import ROUNDING, TICKS, Plan, check_no_features
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import Grid, HasGrid
from uio_pipes.core.roles import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Trait, least, must_be
from uio_pipes.dsp.fbank import Fbank, noise, num_frames, window_and_shift
from uio_pipes.dsp.spectra import SAMPLE_RATE, LogMel, Mfcc


@dataclass(frozen=True)
class FbankFeatures(HasGrid, OfStream):
    """Compute Kaldi's log mel filter bank energies of ``wav``: ``feat`` (T, num_mel_bins) float32.

    Equal to ``torchaudio.compliance.kaldi.fbank(wav * 32768, energy_floor=0, …)`` without dither, to 1e-3 on speech.
    Where a band is far below its frame's peak, rounding shows in both, and ours is as near to float64. The bits are
    the same on every CPU and with every version of PyTorch. An utterance shorter than one window is the failure
    ``too_short``, one with precomputed features ``has_features``.

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
    reads = ("wav", "sample_rate")
    writes = ("feat",)

    num_mel_bins: int = 23
    frame_length: float = 25.0
    frame_shift: float = 10.0
    dither: float = 0.0
    window_type: str = "povey"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kernel  # noqa: B018  wrong parameters fail now

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.ONE_TO_ONE | Trait.TAKES_PCM | (Trait.NONE if self.dither else Trait.LOCAL)

    @cached_property
    def kernel(self) -> Fbank:
        return Fbank(self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type)

    def grid(self, before: Grid | None, sample_rate: int) -> Grid:
        window, shift = window_and_shift(sample_rate, self.frame_length, self.frame_shift)
        return Grid(shift / sample_rate, window / 2 / sample_rate)

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        check_no_features(sample.fields, self.name)
        if plan.sample_rate == TICKS:  # the true rate is unknown; windows and shifts may round down by a sample
            window, shift = self.frame_length * 1000 - ROUNDING, self.frame_shift * 1000 - ROUNDING
            return plan.with_frames(1 + max(0, int((plan.samples - window) // shift)))
        return plan.with_frames(num_frames(plan.samples, plan.sample_rate, self.frame_length, self.frame_shift))

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        check_no_features(fields, self.name)
        dither = noise(fields["wav"].shape[-1], draws) if self.dither else ()
        feat = self.kernel(fields["wav"], fields["sample_rate"], dither)
        if not feat.shape[0]:
            raise DataError("too_short", f"{fields['wav'].shape[-1]} samples are less than one window")
        fields["feat"] = feat


@dataclass(frozen=True)
class MfccFeatures(FbankFeatures):
    """Compute Kaldi's mel-frequency cepstral coefficients of ``wav``: ``feat`` (T, num_ceps) float32.

    Coefficient 0 comes first, and all are liftered by 22. Equal to ``torchaudio.compliance.kaldi.mfcc(wav * 32768,
    …)`` without dither, as ``fbank`` is to its own. An utterance shorter than one window is the failure
    ``too_short``, one with precomputed features ``has_features``. The defaults are WeNet's, and one of
    ``num_mel_bins`` and ``num_ceps`` has to be given.

    Args:
        num_mel_bins: mel bands, more than 3. Default: 23.
        frame_length: length of a window in ms. Default: 25.0.
        frame_shift: step from one window to the next in ms. Default: 10.0.
        dither: standard deviation of the noise that is added, on the scale of 16-bit samples. Default: 0.0.
        window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".
        num_ceps: coefficients to keep, which is F of the result; not more than ``num_mel_bins``. Default: 40.
        high_freq: upper end of the bands in Hz; 0 is half the sample rate, and a negative number is that much below
            it. Default: 0.0.
        low_freq: lower end of the bands in Hz. Default: 20.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: ``num_ceps`` is above ``num_mel_bins``, which it is by default.
    """

    name: ClassVar[str] = "mfcc"

    num_ceps: int = 40
    high_freq: float = 0.0
    low_freq: float = 20.0

    @cached_property
    def kernel(self) -> Mfcc:
        frames = self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type
        return Mfcc(*frames, self.low_freq, self.high_freq, self.num_ceps)


@dataclass(frozen=True)
class LogMelSpectrogram(HasGrid, OfStream):
    """Compute Whisper's log mel spectrogram of ``wav`` at 16 kHz: ``feat`` (T, num_mel_bins) float32.

    T is samples // hop_length. Radford et al. 2022; equal to their code to 1e-4. Failures: ``wrong_rate`` if the
    rate is not 16 kHz, ``too_short`` if the audio is no longer than half a window or makes no frame,
    ``has_features`` with precomputed features.

    Args:
        n_fft: length of a window in samples, an even number. Default: 400.
        hop_length: step from one window to the next in samples. Default: 160.
        num_mel_bins: mel bands, which is F of the result; 128 for ``large-v3``. Default: 80.
        padding: zero samples to append. Default: 0.
        pad_or_trim: bring every utterance to ``max_duration``, by zeros or by cutting off its end, as Whisper's
            encoder needs it. Default: False.
        max_duration: seconds for ``pad_or_trim``. Default: 30.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "log_mel_spectrogram"
    reads = ("wav", "sample_rate")
    writes = ("feat",)

    n_fft: int = must_be(400, "an even number of samples, 2 or more", lambda n: n >= 2 and n % 2 == 0, "try 400")
    hop_length: int = least(1, 160, "Whisper's is 160")
    num_mel_bins: int = least(1, 80, "Whisper's is 80 or 128")
    padding: int = least(0, 0, "Whisper's is 0")
    pad_or_trim: bool = False
    max_duration: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        longer = self.max_duration * SAMPLE_RATE > self.n_fft / 2
        require(
            longer, self.name, "max_duration must be longer than half of n_fft", self.max_duration, "try 30 seconds"
        )

    @cached_property
    def kernel(self) -> LogMel:
        return LogMel(self.n_fft, self.hop_length, self.num_mel_bins, self.padding, self.pad_or_trim, self.max_duration)

    def grid(self, before: Grid | None, sample_rate: int) -> Grid:
        return Grid(self.hop_length / SAMPLE_RATE, 0.0)  # windows are centred

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        check_no_features(sample.fields, self.name)
        if plan.sample_rate == TICKS:  # the true rate is checked when the audio is there
            return plan.with_frames(self.kernel.frames(plan.samples * SAMPLE_RATE // TICKS + 1))
        _check_rate(plan.sample_rate)
        return plan.with_frames(self.kernel.frames(plan.samples))

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        check_no_features(fields, self.name)
        _check_rate(fields["sample_rate"])
        feat = self.kernel(fields["wav"])
        if not len(feat):
            raise DataError("too_short", f"{fields['wav'].shape[-1]} samples make no frame of {self.n_fft}")
        fields["feat"] = feat


def _check_rate(rate: int) -> None:
    if rate != SAMPLE_RATE:
        raise DataError(
            "wrong_rate", f"log_mel_spectrogram needs 16000 Hz, not {rate}; put .resample(16_000) before it"
        )
