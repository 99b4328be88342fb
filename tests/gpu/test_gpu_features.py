"""``FbankModule`` on a GPU: the features of the CPU, under autocast, compiled and of packed waveforms, too."""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def unwaited(device: torch.device) -> Iterator[None]:
    """Within it, a host that waits for its GPU is an error."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def test_packed_audio_becomes_the_features_of_the_cpu(
    device: torch.device, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Features, normalization and SpecAugment of a packed batch, with room between utterances and at its end."""
    pcm, lengths = batch
    rooms = (lengths.long().cpu() + 1279) // 1280 * 1280
    roomy = torch.nn.functional.pad(pcm, (0, 1280))
    waves = torch.cat([*(row[:room] for row, room in zip(roomy, rooms.tolist(), strict=True)), roomy[0, -1280:]])
    begins = torch.nn.functional.pad(torch.cat([rooms, torch.tensor([1280])]).cumsum(0), (1, 0)).int()
    stats = {"mean_stat": [1_500.0] * 80, "var_stat": [24_000.0] * 80, "frame_num": 100}
    packed: list[tuple[torch.Tensor, ...]] = []
    for place in (device, torch.device("cpu")):
        fbank, cmvn, spec_aug = module(place), uio.CmvnModule(stats).to(place), uio.SpecAugModule().to(place)
        given = waves.to(place), lengths.to(place), begins.to(place)
        warm = fbank.packed(*given)  # the first call of a kernel may wait
        spec_aug(cmvn(*warm), *warm[1:])
        with unwaited(place):
            found = fbank.packed(*given)
            normal = cmvn(*found)
            masked = spec_aug(normal, *found[1:])
        packed.append((*found, normal, masked))
    found, wanted = packed
    assert {one.device.type for one in found} == {device.type}
    feats, counts, at, normal, masked = (one.cpu() for one in found)
    torch.testing.assert_close(feats, wanted[0], **CLOSE)
    assert (torch.equal(counts, wanted[1]), at.tolist()) == (True, (begins // 160).tolist())
    torch.testing.assert_close(normal, wanted[3], **CLOSE)
    padded, _ = module(device)(*batch)
    for i, (first, count) in enumerate(zip(at.tolist(), counts.tolist(), strict=False)):
        torch.testing.assert_close(feats[first : first + count], padded[i, :count].cpu(), **CLOSE)
        assert not normal[first + count : at[i + 1]].any(), "between utterances there is nothing"
    kept = masked != 0
    assert torch.equal(masked[kept], normal[kept])
    assert 0 < (~kept).sum() - (normal == 0).sum() < normal.numel() / 2, "some spans are masked"
