"""The compiled kernel, NumPy in its place, and other compilers and CPUs: the same bits from all of them."""

import os
import pickle
import shutil
import struct
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes.dsp
from uio_pipes.dsp import frames
from uio_pipes.dsp.fbank import Fbank, window_of
from uio_pipes.dsp.frames import FilterBank
from uio_pipes.dsp.spectra import Mfcc, slaney_mel_bank

FLOAT = np.float32


def wave(samples: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Noise whose bits depend on no library: 16-bit numbers of a linear congruential generator."""
    state, found = seed, []
    for _ in range(samples):
        state = (state * 1_103_515_245 + 12_345) % (1 << 31)
        found.append((state >> 15) - (1 << 15))
    return np.array(found, np.int16).astype(FLOAT) / FLOAT(32768)


def kinds() -> dict[str, FilterBank]:
    whisper = slaney_mel_bank(80, 400).astype(FLOAT)
    return {
        "fbank": Fbank(80).frames(16_000),
        "mfcc": Mfcc(23, num_ceps=13).frames(16_000),
        "log_mel": FilterBank(window_of("hanning", 400, periodic=True), 160, 400, whisper, 1e-10),
    }


def test_the_kernel_is_compiled_here() -> None:
    assert frames.kernel is not None, "gcc is here, but the extension was not built"


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 5), st.sampled_from([0.0, -11.5]))
def test_16_bit_samples_fill_a_row_by_the_kernel_as_by_numpy(count: int, more: int, at: int, padding: float) -> None:
    samples = np.random.default_rng(count).integers(-(1 << 15), 1 << 15, count, np.int16)
    room = np.full((2, at + count + more + 3), np.nan, FLOAT)
    frames.put_pcm(samples, room[0, at : at + count + more], padding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "kernel", None)
        frames.put_pcm(samples, room[1, at : at + count + more], padding)
    assert room[0].tobytes() == room[1].tobytes()
    assert np.isnan(room[0, :at]).all()
    assert np.isnan(room[0, at + count + more :]).all()


def test_samples_never_go_beyond_their_row() -> None:
    with pytest.raises(ValueError, match="shorter than the samples"):
        frames.kernel.put_row(np.zeros(5, np.int16), np.zeros(4, FLOAT), 0.0)
    strided = np.arange(20, dtype=np.int16)[::2]
    frames.put_pcm(strided, row := np.zeros(10, FLOAT), 0.0)
    assert np.array_equal(row * 32768, strided)


@st.composite
def cases(draw: st.DrawFn) -> tuple[FilterBank, npt.NDArray[np.float32], tuple[Any, ...], float]:
    size = 2 * draw(st.integers(1, 60) | st.sampled_from([128, 200, 256, 231]))
    width, shift, bands = draw(st.integers(1, size)), draw(st.integers(1, size)), draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    bank = np.where(random.random((bands, size // 2 + 1)) < 0.3, random.random((bands, size // 2 + 1)), 0).astype(FLOAT)
    cosines = random.standard_normal((bands, 3)).astype(FLOAT) if draw(st.booleans()) else None
    emphasis = draw(st.sampled_from([None, 0.97, 0.0]))
    made = FilterBank(random.random(width).astype(FLOAT), shift, size, bank, 1e-7, emphasis, cosines)
    samples = random.standard_normal(draw(st.integers(0, 3 * size))).astype(FLOAT)
    noise = tuple(random.standard_normal((draw(st.integers(0, 2)), len(samples))).astype(FLOAT))
    return made, samples, noise, 0.1 if noise else 0.0


@given(cases())
@settings(max_examples=60, deadline=None)
def test_numpy_and_vectors_of_any_width_have_the_same_bits(case: Any) -> None:
    made, samples, noise, dither = case
    results = [made(samples, noise, dither, lanes) for lanes in (4, 8, 16)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "kernel", None)
        results.append(made(samples, noise, dither))
    assert len({each.tobytes() for each in results}) == 1
    assert results[0].shape == (max(0, (len(samples) - len(made.window)) // made.shift + 1), made.outputs)


@pytest.mark.parametrize("kind", kinds())
def test_equal_to_the_formulas_in_float64(kind: str) -> None:
    made, samples = kinds()[kind], wave(16_000)
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 400)[::160].copy()
    if made.emphasis is not None:
        windows -= windows.mean(1, keepdims=True)
        windows = windows - made.emphasis * np.concatenate([windows[:, :1], windows[:, :-1]], 1)
    power = abs(np.fft.rfft(windows * made.window, 2 * made.half)) ** 2
    bank = np.zeros((len(made.spans), made.half + 1))
    for row, (first, end), weights in zip(bank, made.spans, made.weights, strict=True):
        row[first:end] = 4 * weights
    expected = np.log(np.maximum(power @ bank.T, float(made.floor)))
    if made.cosines is not None:
        expected = expected @ made.cosines
    difference = abs(made(samples) - expected)
    assert difference.max() < 1e-3
    assert difference.mean() < 2e-5


@pytest.mark.parametrize("kind", kinds())
def test_samples_of_16_bits_are_taken_as_they_are(kind: str) -> None:
    made, samples = kinds()[kind], wave(4_000)
    whole = (samples * 32768).astype(np.int16)
    assert made(whole).tobytes() == made(samples).tobytes()


# Made on x86 with AVX2; hashes of other machines must be the same.
HASHES = {
    "fbank": "829cc3fea8e9e4de",
    "mfcc": "bef2a9e36bf02b66",
    "log_mel": "b83d39e24529cc5c",
}


@pytest.mark.parametrize("kind", kinds())
def test_the_bits_are_those_of_every_machine(kind: str) -> None:
    assert sha256(kinds()[kind](wave(16_000)).tobytes()).hexdigest()[:16] == HASHES[kind]


@pytest.mark.parametrize("kind", ["float64", "float16", "int32", "int8", ">f4", ">i2"])
def test_samples_of_other_types_are_computed_with_as_float32(kind: str) -> None:
    """The kernel reads memory by its address: it must never take one type for another."""
    made, samples = kinds()["fbank"], wave(4_000)
    given = (samples * 100).astype(kind) if "i" in kind else samples.astype(kind)
    pcm16 = kind == ">i2"
    assert (made(given) == made(given.astype(np.int16 if pcm16 else FLOAT))).all()
    assert (made(samples[::-1]) == made(samples[::-1].copy())).all(), "nor go beyond its end"
    noise = samples.astype(np.float64) if "f" in kind else samples[::-1]
    assert (made(samples, (noise,), 0.5) == made(samples, (noise.astype(FLOAT),), 0.5)).all()


@pytest.mark.parametrize("noise", [[wave(3_999)], [wave(4_000)] * 3], ids=["short", "too many"])
def test_noise_that_does_not_fit_is_refused(noise: Any) -> None:
    with pytest.raises(ValueError, match="at most two arrays of"):
        kinds()["fbank"](wave(4_000), noise, 0.5)


@pytest.mark.skipif(frames.kernel is None, reason="the kernel is not compiled")
def test_the_kernel_never_reads_beyond_an_array() -> None:
    made, samples = kinds()["fbank"], wave(4_000)
    out = np.empty((23, 80), FLOAT)
    frames.kernel.features(made._plan, samples, False, samples, None, 0.5, out, 16)
    for more in ({0: samples[:3_900]}, {2: samples[1:]}, {3: samples[:-1]}, {5: np.empty((24, 80), FLOAT)}):
        given = [more.get(n, value) for n, value in enumerate([samples, False, samples, None, 0.5, out])]
        with pytest.raises(ValueError, match="do not fit each other"):
            frames.kernel.features(made._plan, *given, 16)
    with pytest.raises(ValueError, match="the plan is not packed"):
        frames.kernel.features(made._plan[:-1], samples, False, None, None, 0.5, out, 16)


def test_what_is_not_a_number_stays_that() -> None:
    samples = wave(4_000)
    samples[2_000] = np.nan
    made = kinds()["fbank"](samples)
    of_nan = np.isnan(made).any(1)
    assert of_nan.tolist() == [f * 160 <= 2_000 < f * 160 + 400 for f in range(len(made))]


def test_a_pickled_one_points_to_its_own_arrays() -> None:
    made, samples = kinds()["mfcc"], wave(2_000)
    before, sent = made(samples).tobytes(), pickle.dumps(made)
    del made
    assert pickle.loads(sent)(samples).tobytes() == before


# Other compilers, flags and CPUs

BUILDS = [
    ("gcc", "-O0", ""),
    ("gcc", "-O2 -mno-avx", ""),
    ("gcc", "-O3 -march=native", ""),
    ("gcc", "-O2 -DSPLIT", ""),
    ("gcc", "-O1 -fsanitize=undefined -fno-sanitize-recover", ""),
    ("aarch64-linux-gnu-gcc", "-O3 -static", "qemu-aarch64"),
    ("aarch64-linux-gnu-gcc", "-O0 -static", "qemu-aarch64"),
    ("aarch64-linux-gnu-gcc", "-O2 -DSPLIT -static", "qemu-aarch64"),
]


def alone(made: FilterBank, samples: npt.NDArray[np.float32], noise: Any, dither: float, count: int) -> bytes:
    """Return the file that ``kernel_alone.c`` reads."""
    arrays = b"".join(struct.pack("q", each.nbytes) + each.tobytes() for each in made._arrays)
    rest = b"".join(each.tobytes() for each in (samples, *noise))
    numbers = made._plan[struct.calcsize("8P") :]
    return arrays + numbers + struct.pack("q", len(samples)) + rest + struct.pack("=fq", dither, count)


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "flags", "runner"), BUILDS)
def test_other_builds_have_the_same_bits(compiler: str, flags: str, runner: str, tmp_path: Path) -> None:
    for tool in filter(None, (compiler, runner)):
        if shutil.which(tool) is None:
            give_up = pytest.fail if "UIO_REQUIRE_ALL" in os.environ else pytest.skip
            give_up(f"{tool} is not installed (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)")
    source = Path(__file__).parents[1] / "helpers/kernel_alone.c"
    folder = Path(uio_pipes.dsp.__file__).parent
    program = tmp_path / "alone"
    command = [
        compiler,
        *flags.split(),
        "-ffp-contract=off",
        "-Wno-psabi",
        f"-I{folder}",
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    samples = wave(8_000)
    noise = (wave(8_000, 1), wave(8_000, 2))
    for made in kinds().values():
        expected = made(samples, noise, 0.25)
        (tmp_path / "in").write_bytes(alone(made, samples, noise, 0.25, len(expected)))
        for lanes in (4, 8, 16):
            run = [*filter(None, [runner]), str(program), str(tmp_path / "in"), str(tmp_path / "out"), str(lanes)]
            subprocess.run(run, check=True)
            assert (tmp_path / "out").read_bytes() == expected.tobytes()
