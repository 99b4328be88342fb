"""Frames of a time span, whatever the container, read from no more than its part of the file."""

import io
import itertools
from typing import Any

import numpy as np
import pytest
from video_files import SHAPE, near, video

from uio_pipes.audio.video import decode_video
from uio_pipes.base.errors import DataError

FORMS = {
    "mp4": ("mp4", "libx264"),
    "mkv": ("matroska", "libx264"),
    "webm": ("webm", "libvpx"),
    "avi": ("avi", "mpeg4"),
    "ts": ("mpegts", "libx264"),
}
COUNT = 100  # four seconds


def frames(data: bytes, *span: Any, fps: float | None = None, shape: Any = None) -> np.ndarray:
    start, end = span or (None, None)
    return decode_video(lambda at, size: data[at : at + size], len(data), start, end, fps, shape)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {name: video(COUNT, *form) for name, form in FORMS.items()}


@pytest.mark.parametrize("name", list(FORMS))
def test_all_frames_in_their_order(name: str, files: dict[str, bytes]) -> None:
    made = frames(files[name])
    assert made.dtype == np.uint8
    assert made.shape == (COUNT, 3, *SHAPE)
    assert near(made, list(range(COUNT)))


@pytest.mark.parametrize("name", list(FORMS))
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1.0, 2.0, range(25, 50)), (0.28, 0.36, (7, 8)), (3.5, 4.0, range(88, 100)), (None, 0.2, range(5)),
        (3.8, None, range(95, 100)), (1.01, 1.02, (25,)), (3.99, 4.0, (99,)), (0.0, 9.0, range(100)),
    ],
)  # fmt: skip
def test_frames_that_begin_within_the_span_or_else_the_one_that_is_shown(
    name: str, start: float | None, end: float | None, expected: Any, files: dict[str, bytes]
) -> None:
    assert near(frames(files[name], start, end), list(expected))


@pytest.mark.parametrize("name", list(FORMS))
def test_spans_side_by_side_give_each_frame_once(name: str, files: dict[str, bytes]) -> None:
    bounds = [0.0, 0.13, 1.0, 1.999, 2.34, 4.0]
    made = [frames(files[name], a, b) for a, b in itertools.pairwise(bounds)]
    assert np.array_equal(np.concatenate(made), frames(files[name]))


@pytest.mark.parametrize(
    ("span", "fps", "expected"),
    [
        ((0.5, 1.5), 5.0, [12, 17, 22, 27, 32]),
        ((0.0, 0.2), 50.0, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
        ((1.0, 1.1), 1.0, [25]),
        ((3.8, None), 10.0, [95, 97]),
        ((3.9, 4.2), 10.0, [97, 99, 99]),
    ],
)
def test_a_rate_of_its_own_gives_the_frame_shown_at_each_time(
    span: Any, fps: float, expected: list[int], files: dict[str, bytes]
) -> None:
    assert near(frames(files["mp4"], *span, fps=fps), expected)


def test_frames_are_scaled(files: dict[str, bytes]) -> None:
    made = frames(files["mp4"], 1.0, 1.2, shape=(20, 30))
    assert made.shape == (5, 3, 20, 30)
    assert near(made, list(range(25, 30)))


def test_only_the_part_with_the_span_is_read() -> None:
    import av

    rng, data = np.random.default_rng(0), io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt, stream.gop_size = 180, 240, "yuv420p", 25
        stream.options = {"preset": "ultrafast", "bf": "3"}
        for i in range(250):
            frame = av.VideoFrame.from_ndarray(rng.integers(0, 256, (180, 240, 3), np.uint8), format="rgb24")
            frame.pts = i
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    stored, taken = data.getvalue(), []

    def read(at: int, size: int) -> bytes:
        taken.append(size)
        return stored[at : at + size]

    assert decode_video(read, len(stored), 5.0, 5.4, None, None).shape == (10, 3, 180, 240)
    assert sum(taken) < len(stored) / 4


DAMAGE = {
    "empty": (lambda d: b"", "bad_video"),
    "no_video": (lambda d: b"RIFF" + b"\x00" * 500, "bad_video"),
    "cut_mp4": (lambda d: d[: len(d) // 2], "bad_video"),
}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_what_is_no_video_is_an_error(name: str, files: dict[str, bytes]) -> None:
    hurt, reason = DAMAGE[name]
    with pytest.raises(DataError) as raised:
        frames(hurt(files["mp4"]))
    assert raised.value.reason == reason


@pytest.mark.parametrize("name", ["mkv", "webm", "avi"])
@pytest.mark.parametrize("span", [(None, None), (3.0, 4.0)])
def test_a_file_that_was_cut_off_is_noticed(name: str, span: Any, files: dict[str, bytes]) -> None:
    cut = files[name][: len(files[name]) // 2]
    with pytest.raises(DataError) as raised:
        frames(cut, *span)
    assert raised.value.reason == "truncated_video" or (name == "avi" and span[0])
    assert near(frames(cut, 0.2, 0.4), list(range(5, 10))), "what is before the cut is there"


def test_audio_alone_is_no_video() -> None:
    import av

    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(DataError, match="contains no video"):
        frames(out.getvalue())


def test_a_span_after_the_end(files: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"begins at 4\.5 s, but the video ends at 4\.000 s") as raised:
        frames(files["mp4"], 4.5, 5.0)
    assert raised.value.reason == "bad_segment"


def test_an_error_of_the_file_is_the_error(files: dict[str, bytes]) -> None:
    def read(at: int, size: int) -> bytes:
        raise DataError("truncated", "gone")

    with pytest.raises(DataError) as raised:
        decode_video(read, 1000, None, None, None, None)
    assert raised.value.reason == "truncated"
