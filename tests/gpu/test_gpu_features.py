"""``FbankModule`` on a GPU: the features of the CPU, under autocast and compiled, too."""

import pytest
import torch

import uio_pipes as uio

LENGTHS = [48_000, 399, 400, 17_777, 560]
CLOSE = {"atol": 1e-3, "rtol": 0.0}  # the Fourier transforms round differently


@pytest.fixture
def batch(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    inside = torch.arange(max(LENGTHS)) < lengths[:, None]
    pcm = (torch.rand(len(LENGTHS), max(LENGTHS), generator=draws) - 0.5) * inside
    return pcm.to(device), lengths.to(device)


def module(device: torch.device, dither: float = 0.0) -> uio.FbankModule:
    return uio.FbankModule(80, dither=dither).to(device)


def test_features_are_those_of_the_cpu(device: torch.device, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    feats, lengths = module(device)(*batch)
    wanted, wanted_lengths = uio.FbankModule(80)(*(tensor.cpu() for tensor in batch))
    assert (feats.device.type, lengths.device.type) == (device.type, device.type)
    assert torch.equal(lengths.cpu(), wanted_lengths)
    torch.testing.assert_close(feats.cpu(), wanted, **CLOSE)


def test_dither_comes_from_the_device_s_generator(
    device: torch.device, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    dithered = module(device, dither=1.0)

    def drawn(seed: int) -> torch.Tensor:
        return dithered(*batch, torch.Generator(device).manual_seed(seed))[0]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert (drawn(1) - module(device)(*batch)[0]).abs().mean() < 1e-2  # noise, 80 dB below the signal
    dithered.eval()
    assert torch.equal(drawn(1), module(device)(*batch)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_changes_no_bit(
    device: torch.device, batch: tuple[torch.Tensor, torch.Tensor], dtype: torch.dtype
) -> None:
    with torch.autocast(device.type, dtype=dtype):
        feats, _ = module(device)(*batch)
    assert feats.dtype is torch.float32
    assert torch.equal(feats, module(device)(*batch)[0])


def test_a_compiled_module_gives_the_same(device: torch.device, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    backend = "inductor" if device.type == "cuda" else "eager"  # of which more is in tests/dsp
    compiled = torch.compile(module(device), fullgraph=True, dynamic=True, backend=backend)
    for rows in (5, 3):
        shorter = batch[0][:rows, : 17_777 * rows // 3], batch[1][:rows].clamp_max(17_777)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            found = compiled(*shorter)
        for got, wanted in zip(found, module(device)(*shorter), strict=True):
            torch.testing.assert_close(got, wanted, **CLOSE)
