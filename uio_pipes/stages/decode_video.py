"""``decode_video``: the frames of a video, of an utterance's time span only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from uio_pipes.audio.video import ReadBytes, decode_video
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.formats.touch.record import StoredRecord
from uio_pipes.io.local import Ref
from uio_pipes.io.opening import open_file


@dataclass(frozen=True)
class DecodeVideo(PerUtterance):
    """Decode a video to RGB frames, uint8 of shape (T, C, H, W), when the batch is made.

    The video is the bytes of a file (mp4, mkv, webm, …: what FFmpeg reads) in a TouchDataset's record, a shard's
    member, or a path or URL. If the utterance has ``start`` and ``end`` (seconds), only the frames of that span are
    decoded, from the last key frame before it on, and only the bytes that this takes are read. Lengths are planned by
    the audio alone. ``pad`` delivers the frames if it is told to: ``pad(keep=["video"])``. Needs
    ``pip install 'uio_pipes[video]'``.

    Failures: ``missing_video``, ``bad_video``, ``truncated_video``, ``bad_segment``, ``missing_codec``.

    Args:
        fps: frames per second; each is the one that is shown at its time, so that a span has as many as its length
            says. Default: None, all frames that begin within the span.
        size: (height, width) in pixels, to which frames are scaled. Default: None, their own size.
        field: name of the field with the video, in whose place the frames come. Default: "video".
    """

    name: ClassVar[str] = "decode_video"

    fps: float | None = None
    size: Sequence[int] | None = None
    field: str = "video"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fps is None or self.fps > 0, self.name, "fps must be above 0", self.fps, "try 25")
        pair = self.size is None or (len(self.size) == 2 and all(is_whole(n) and n > 0 for n in self.size))
        require(pair, self.name, "size must be (height, width) in pixels, above 0", self.size, "try (96, 96)")
        object.__setattr__(self, "size", None if self.size is None else tuple(self.size))
        require(bool(self.field), self.name, "field must name a field", self.field, 'try "video"')

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset([self.field, "start", "end"])

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset([self.field])

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        video: Any = fields.get(self.field)
        if isinstance(video, str):
            file = open_file(video)
            video = Ref(file, 0, file.size)
        if isinstance(video, StoredRecord):
            video.compare()
        if not isinstance(video, (Ref, bytes)):
            what = "no" if video is None else f"{type(video).__name__} for"
            raise DataError("missing_video", f"the utterance has {what} {self.field} to decode: name its field")
        read, size = (video.read_at, video.size) if isinstance(video, Ref) else (_slices(video), len(video))
        shape = None if self.size is None else (self.size[0], self.size[1])
        frames = decode_video(read, size, fields.get("start"), fields.get("end"), self.fps, shape)
        fields[self.field] = torch.from_numpy(frames)


def _slices(data: bytes) -> ReadBytes:
    return lambda offset, count: data[offset : offset + count]
