"""The filter bank of :mod:`uio_pipes.dsp.fbank` as a module, for batches of waveforms on any device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import FLOOR, PREEMPHASIS, SCALE, Fbank
from uio_pipes.dsp.feature_modules import RowPlaces


class FbankModule(nn.Module):
    """Compute log mel energies of padded or packed waveforms on the GPU, as ``.fbank(…)`` does in the loader.

    Leave out ``.fbank`` then, so that the loader pads or packs waveforms, and let the model begin with this module.
    Without dither the features equal those of the loader to 1e-3 on the CPU; another Fourier transform rounds
    differently, which shows in bins far below a frame's peak. Dither is drawn from ``generator`` (or torch's own), in
    training mode only, and so depends on the batch. ``torch.compile`` accepts the module; it has nothing to train and
    nothing in its state dict. It computes in float32, under ``torch.autocast`` and in a model that is ``half`` or
    ``bfloat16`` too.

    Args:
        num_mel_bins: mel bands, which is F of the result. Default: 23.
        sample_rate: rate of all waveforms in Hz. Default: 16,000.
        frame_length: length of a window in ms. Default: 25.0.
        frame_shift: step from one window to the next in ms. Default: 10.0.
        dither: standard deviation of the noise that is added while training, on the scale of 16-bit samples.
            Default: 0.0.
        window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".

    Raises:
        PipelineError: a value cannot be used.
    """

    def __init__(
        self,
        num_mel_bins: int = 23,
        sample_rate: int = 16_000,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        dither: float = 0.0,
        window_type: str = "povey",
    ) -> None:
        super().__init__()
        kernel = Fbank(num_mel_bins, frame_length, frame_shift, dither, window_type)
        frames = kernel.frames(sample_rate)
        self.num_mel_bins, self.sample_rate, self.dither = num_mel_bins, sample_rate, dither
        self.shift, self.padded = frames.shift, 2 * frames.half
        self.register_buffer("window", torch.from_numpy(frames.window), persistent=False)
        self.register_buffer("bank", torch.from_numpy(kernel.bank(sample_rate).T.copy()), persistent=False)
        self.window: torch.Tensor  # (W,)
        self.bank: torch.Tensor  # (padded // 2, F)

    def forward(
        self, pcm: torch.Tensor, pcm_length: torch.Tensor, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``feats`` (B, T, F) float32, padded by 0, and ``feats_lengths`` (B,) int32.

        An utterance shorter than a window has 0 frames.

        Args:
            pcm: padded waveforms (B, S), floats in [-1, 1].
            pcm_length: their lengths in samples (B,).
            generator: where dither is drawn from. Default: None, torch's own.

        Raises:
            PipelineError: ``pcm`` has another shape or type.
        """
        self._check(pcm, 2, "(B, S)")
        # Energies exceed float16. (The meta device has no autocast.)
        with nullcontext() if pcm.is_meta else torch.autocast(pcm.device.type, enabled=False):
            energies = self._energies(pcm.float(), generator)
        lengths = self.lengths(pcm_length).clamp_max(energies.shape[1])  # an error would make the host wait
        beyond = torch.arange(energies.shape[1], device=pcm.device) >= lengths[:, None]
        return energies.masked_fill(beyond[:, :, None], 0.0), lengths

    def packed(
        self, pcm: torch.Tensor, pcm_lengths: torch.Tensor, cu_seqlens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute the features of a batch of waveforms that ``.pack(max_frames=…)`` made.

        Returns ``feats`` (S // step, F) float32, ``feats_lengths`` (N,) int32, and ``cu_seqlens`` (M + 1,) int32, where
        each utterance begins in them. The row or two between its last frame and the next utterance are 0. The host does
        not wait for the device, and shapes follow from those of the arguments.

        Args:
            pcm: waveforms one after the other (S,), floats in [-1, 1].
            pcm_lengths: their lengths in samples (N,).
            cu_seqlens: where each segment begins, and the end (M + 1,); those from N on are padding.

        Raises:
            PipelineError: ``pcm`` has another shape or type, or a window is shorter than the step between windows.
        """
        self._check(pcm, 1, "(S,)")
        if len(self.window) < self.shift:
            raise PipelineError("FbankModule: packed waveforms need frame_length ≥ frame_shift; raise frame_length")
        begins = cu_seqlens.div(self.shift, rounding_mode="floor").to(torch.int32)
        lengths = self.lengths(pcm_lengths)
        places = RowPlaces(len(pcm) // self.shift, lengths, begins)
        first = cu_seqlens[places.owner] + places.within * self.shift
        samples = nn.functional.pad(pcm.float(), (0, len(self.window)))  # rows that are padding read beyond the end
        with torch.autocast(pcm.device.type, enabled=False):
            energies = self._energies(samples, None, first)
        return energies.masked_fill(places.padding[:, None], 0.0), lengths, begins

    def _check(self, pcm: torch.Tensor, dimensions: int, shape: str) -> None:
        if pcm.dim() != dimensions or not pcm.is_floating_point():
            raise PipelineError(
                f"FbankModule: pcm must be floats in [-1, 1] of shape {shape}, not {pcm.dtype} of {tuple(pcm.shape)}; "
                "divide 16-bit samples by 32768"
            )

    def _energies(
        self, samples: torch.Tensor, generator: torch.Generator | None, first: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute log mel energies (…, T, F), those of the padding included; ``first``: the first samples of frames."""
        if samples.shape[-1] < len(self.window):
            return samples.new_zeros(len(samples), 0, self.num_mel_bins)
        if self.dither and self.training:  # the window has the scale of 16-bit samples
            noise = torch.randn(samples.shape, generator=generator, device=samples.device, dtype=samples.dtype)
            samples = samples + self.dither / SCALE * noise
        frames = samples.unfold(-1, len(self.window), self.shift if first is None else 1)
        frames = frames if first is None else frames[first]
        frames = frames - frames.mean(-1, keepdim=True)
        previous = torch.cat((frames[..., :1], frames[..., :-1]), -1)  # the first sample is its own predecessor
        windowed = (frames - PREEMPHASIS * previous) * self.window
        spectrum = torch.fft.rfft(windowed, self.padded)
        power = spectrum.real.square() + spectrum.imag.square()
        energies: torch.Tensor = power[..., : len(self.bank)] @ self.bank
        return energies.clamp_min(FLOOR).log()

    def lengths(self, pcm_length: torch.Tensor) -> torch.Tensor:
        """Return the number of frames, (B,) int32, of waveforms of ``pcm_length`` (B,) samples."""
        whole = (pcm_length - len(self.window)).div(self.shift, rounding_mode="floor") + 1
        return whole.clamp_min(0).to(torch.int32)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Move with the model, but stay in float32 if it becomes ``half`` or ``bfloat16``."""
        return super()._apply(lambda buffer: buffer.to(fn(buffer).device), recurse)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"num_mel_bins={self.num_mel_bins}, sample_rate={self.sample_rate}, dither={self.dither}"
