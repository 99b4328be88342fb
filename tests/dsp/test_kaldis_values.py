"""Features against Kaldi's own code (feature-fbank.cc, feature-mfcc.cc), as the package kaldi-native-fbank has it."""

from typing import Any

import kaldi_native_fbank as kaldi
import numpy as np
import numpy.typing as npt
import pytest
import torch
from test_fbank import FAR_BELOW, WINDOWS, signals

from uio_pipes.dsp.fbank import Fbank
from uio_pipes.dsp.spectra import Mfcc


def computed(made: Any, signal: torch.Tensor, rate: int) -> npt.NDArray[np.float32]:
    made.accept_waveform(rate, (signal * 32768).tolist())
    made.input_finished()
    return np.stack([made.get_frame(number) for number in range(made.num_frames_ready)])


def as_ours(options: Any, rate: int, bins: int, window_type: str) -> Any:
    """Set what Kaldi's programs get as arguments: no dither, energies of 0, and a floor as the bands have one."""
    options.frame_opts.samp_freq, options.frame_opts.window_type, options.frame_opts.dither = rate, window_type, 0.0
    options.mel_opts.num_bins, options.use_energy, options.energy_floor = bins, False, 0.0
    return options


@pytest.mark.parametrize("window_type", WINDOWS)
@pytest.mark.parametrize(("rate", "bins"), [(8_000, 23), (16_000, 80), (44_100, 40)])
def test_log_mel_energies_are_kaldis(rate: int, bins: int, window_type: str) -> None:
    for name, signal in signals(rate).items():
        theirs = computed(kaldi.OnlineFbank(as_ours(kaldi.FbankOptions(), rate, bins, window_type)), signal, rate)
        ours = Fbank(bins, window_type=window_type)(signal, rate, None).numpy()
        assert ours.shape == theirs.shape
        if name not in FAR_BELOW:
            assert np.abs(ours - theirs).max() < 5e-3, name


@pytest.mark.parametrize(("rate", "bins", "ceps"), [(8_000, 23, 13), (16_000, 40, 40)])
def test_cepstral_coefficients_are_kaldis(rate: int, bins: int, ceps: int) -> None:
    for name, signal in signals(rate).items():
        options = as_ours(kaldi.MfccOptions(), rate, bins, "povey")
        options.num_ceps = ceps
        theirs = computed(kaldi.OnlineMfcc(options), signal, rate)
        ours = Mfcc(bins, num_ceps=ceps)(signal, rate, None).numpy()
        assert ours.shape == theirs.shape
        if name not in FAR_BELOW:
            assert np.abs(ours - theirs).max() < 2e-2, name
