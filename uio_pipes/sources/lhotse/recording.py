"""A recording from its Lhotse manifest: one or several files or URLs, with the manifest's transforms, not read yet."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from uio_pipes.audio.containers import check_channel, check_claims, check_longest, is_trimmed, sniff_codec, tolerated
from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.length import audio_info
from uio_pipes.audio.recording import InFile, decoded
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import inside
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.opened_ahead import LocalPath, settled
from uio_pipes.io.opening import PrefetchedRef, RemoteFileRef, beside, is_local, reference
from uio_pipes.io.references import AudioInfo, Ref
from uio_pipes.sources.format import RowPlace
from uio_pipes.sources.lhotse.transforms import (
    Span,
    check_transforms,
    rate_before,
    resampled,
    samples_in,
    transforms_of,
)

if TYPE_CHECKING:
    import torch


RecordingSource = str | Ref | bytes
_LISTED = "listed"  # in a source whose path is relative: the list that has it
_KINDS = frozenset(["file", "url", "memory", "command"])


def check_readable(manifest: Mapping[str, Any], allow_pipes: bool) -> None:
    """Raises: DataError ``unsupported_cut``, ``unsupported_transform``, ``pipe_not_allowed`` or ``bad_cut``."""
    for one in manifest["sources"]:
        kind, source = one["type"], one["source"]
        if kind == "shar":
            message = "the audio is in a Shar, and this is only its manifest: read the folder by from_lhotse_shar"
            raise DataError("unsupported_cut", message)
        if kind == "command" and not allow_pipes:
            message = f"the recording is the output of a command ({source:.80}): if you trust it, set allow_pipes=True"
            raise DataError("pipe_not_allowed", message)
        if kind not in _KINDS:
            raise DataError(
                "unsupported_cut", f"recordings of the type {kind!r} are not supported: save files with Lhotse"
            )
        if not isinstance(source, str):
            raise DataError("bad_cut", f"the recording's source is {source!r:.80}, no path or URL: write it again")
    check_transforms(manifest)


def with_places(manifest: Mapping[str, Any], root: str | None, at: RowPlace) -> Mapping[str, Any]:
    """Return a manifest whose relative paths start at ``root`` or, without one, at the file of the row ``at``:
    that is looked for when they are opened."""
    sources = manifest["sources"]
    for number, one in enumerate(sources):
        if _is_relative(one):
            place = {_LISTED: at.file} if root is None else {"source": inside(root, one["source"])}
            sources = [*sources[:number], {**one, **place}, *sources[number + 1 :]]
    return manifest if sources is manifest["sources"] else {**manifest, "sources": sources}


def _is_relative(source: Mapping[str, Any]) -> bool:
    path = source["source"]
    return source["type"] == "file" and path[:1] not in ("/", "~") and "://" not in path


def _found(source: Mapping[str, Any]) -> str:
    path: str = source["source"]
    return beside(path, source[_LISTED]) if _LISTED in source else path


def opened(source: Mapping[str, Any], access: Access) -> RecordingSource:
    """Return the audio of a source: a path, a reference to a remote file, or bytes. Raises: DataError."""
    if source["type"] == "memory":
        return from_base64(source["source"])
    if source["type"] == "command":
        return Piped(source["source"], shared=True).read()
    return reference(source["source"], access, source.get(_LISTED, ""))


def from_base64(text: str) -> bytes:
    """Return the bytes encoded in a line of JSON. Raises: DataError ``bad_cut``."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        message = f"what is kept in memory must stand in the manifest as base64 ({error}): write files instead"
        raise DataError("bad_cut", message) from error


_TOLERANCE = 0.025  # seconds that a file may be longer or shorter than its manifest says, as in Lhotse
_WHOLE = 0.001  # seconds: by less than that, a cut is all of its recording


class Window(NamedTuple):
    """A part of a recording, in samples."""

    first: int
    samples: int


def is_whole(samples: int, total: int, rate: int) -> bool:
    """Return whether so many samples are the whole recording."""
    return abs(samples - total) < _WHOLE * rate


def window_of(manifest: Mapping[str, Any], start: float, duration: float | None) -> Window | None:
    """Return the part of a recording in a cut; None for the whole recording."""
    rate, samples = manifest["sampling_rate"], manifest["num_samples"]
    first = samples_in(start, rate) if start else 0
    count = samples - first if duration is None else samples_in(duration, rate)
    if first == 0 and is_whole(count, samples, rate):
        return None
    if count <= 0:
        raise DataError("bad_segment", f"the cut, {duration} s from {start} s on, is empty")
    return Window(first, count)


def times(window: Window | None, rate: int) -> dict[str, float]:
    """Return ``start`` and ``end`` of a window in seconds; none of a whole recording."""
    return {} if window is None else {"start": window.first / rate, "end": (window.first + window.samples) / rate}


def bounds(span: Span, rate: int) -> tuple[float | None, float | None]:
    """Return begin and end of a span in seconds, those of whole samples; None: not cut there."""
    begin, duration = span
    first = samples_in(begin, rate)
    if duration is None:
        return (first / rate if first else None), None
    return first / rate, (first + samples_in(duration, rate)) / rate


def fitted(waveform: torch.Tensor, count: int, rate: int) -> torch.Tensor:
    """Return ``count`` samples: cut off if there are more, mirrored if there are fewer; fewer, too, where audio that
    differs is trimmed. Raises: DataError."""
    more = count - waveform.shape[1]
    if more == 0:
        return waveform
    if not fits(waveform.shape[1], count, rate) or more < 0:
        return waveform[:, :count]
    import torch

    return torch.nn.functional.pad(waveform[None], (0, more), mode="reflect")[0]


def fits(samples: int, declared: int, rate: int) -> bool:
    """Return whether audio has the length in its manifest, but for 25 ms or what is tolerated; False if it is trimmed.

    Raises: DataError ``length_mismatch``.
    """
    fitting = abs(samples - declared) <= ceil(tolerated(_TOLERANCE) * rate) and 2 * samples > declared
    if not fitting and not is_trimmed(abs(samples - declared) / rate):
        message = f"the audio has {samples} samples, but the manifest says {declared}: recreate the manifest"
        raise DataError("length_mismatch", f'{message}, or give its source tolerance=… or longer="trim"')
    return fitting


class Recorded(InFile, PrefetchedRef):
    """The ``channels`` of a recording (None: all), or only the ``window`` of it. Nothing is opened to make one.

    ``sources``: its audio, if that is not what the manifest says. Raises: DataError ``bad_cut`` or ``no_such_channel``.
    """

    __slots__ = ("_sources", "access", "channels", "manifest", "window")
    info: AudioInfo

    def __init__(
        self,
        manifest: Mapping[str, Any],
        channels: Any,
        access: Access,
        window: Window | None = None,
        sources: list[RecordingSource] | None = None,
    ) -> None:
        samples, rate = manifest["num_samples"], manifest["sampling_rate"]
        if type(samples) is not int or samples <= 0 or type(rate) is not int:
            message = f"the recording is said to have {samples!r} samples at {rate!r} Hz: write its manifest again"
            raise DataError("bad_cut", message)
        check_claims(rate)
        files = manifest["sources"]
        offered = [*files[0]["channels"]] if len(files) == 1 else [one for file in files for one in file["channels"]]
        wanted = offered if channels is None else channels if isinstance(channels, list) else [channels]
        self.manifest, self.access, self.window, self._sources = manifest, access, window, sources
        self.channels = wanted if wanted == offered else [channel for channel in offered if channel in wanted]
        if not self.channels or len(self.channels) < len(wanted):
            raise DataError("no_such_channel", f"the cut wants channel {channels}, but the recording has {offered}")
        self.info = AudioInfo(samples if window is None else window.samples, rate, len(self.channels))
        self.offset, self.head, self.crc = 0, b"", None

    @property
    def sources(self) -> list[RecordingSource]:
        """The audio files: paths, references to remote files, or bytes. Raises: DataError ``bad_cut``."""
        return [settled(one) for one in self._opened]

    @property
    def _opened(self) -> list[RecordingSource]:
        if self._sources is None:
            self._sources = [opened(source, self.access) for source in self.manifest["sources"]]
        return self._sources

    @property
    def local_paths(self) -> list[LocalPath]:
        kinds = {one["type"] for one in self.manifest["sources"]}  # what commands make is no file
        return [one for one in self._opened if isinstance(one, LocalPath)] if kinds == {"file"} and not self.far else []

    def absolute(self) -> dict[str, Any]:
        """Return its manifest with absolute paths, which are the same for any list and working directory."""
        sources = [{n: v for n, v in source.items() if n != _LISTED} for source in self.manifest["sources"]]
        for one, source in zip(sources, self.manifest["sources"], strict=True):
            one["source"] = os.path.abspath(_found(source)) if _is_relative(source) else one["source"]
        return {**self.manifest, "sources": sources}

    @property
    def stored(self) -> RecordingSource:
        """The first of its files."""
        return self.sources[0]

    @property
    def is_a_file(self) -> bool:
        """True if it is one whole audio file, with all of its channels and unchanged."""
        sources = self.manifest["sources"]
        plain = len(sources) == 1 and not self.manifest.get("transforms") and self.window is None
        return plain and self.channels == sources[0]["channels"]

    def read(self) -> bytes:
        """Return the bytes of an audio file: the recording's own, or a float wav of what is wanted of it."""
        if not self.is_a_file:
            return super().read()
        if isinstance(first := self.stored, bytes):
            return first
        return first.read() if isinstance(first, Ref) else (file := self.file).read(0, file.size)

    @property
    def far(self) -> bool:
        for source in self.manifest["sources"]:
            if source["type"] in ("file", "url") and is_local(source["source"]) is None:
                return True
        return False

    def fetch_early(self) -> int:
        return sum(source.fetch_early() for source in self._opened if isinstance(source, RemoteFileRef))

    def compare(self) -> None:
        """Compare the headers of its files with the manifest, which tells nothing of what transforms change.

        Raises: DataError ``wrong_rate``, ``length_mismatch``, and if a file cannot be read.
        """
        first, *others = [audio_info(source, {}) for source in self.sources]
        if first is None or others or self.manifest.get("transforms"):
            return
        rate = self.manifest["sampling_rate"]
        if first.sample_rate != rate:
            raise _other_rate(rate, first.sample_rate)
        fits(first.samples, self.manifest["num_samples"], rate)

    def whole(self) -> Recorded:
        """Return the whole recording that contains this part."""
        return self if self.window is None else self._with(None)

    def between(self, start: float, end: float) -> Recorded:
        first = samples_in(start, self.info.sample_rate)
        return self._with(Window(first, samples_in(end - start, self.info.sample_rate)))

    def of_channels(self, wanted: list[int]) -> Recorded:
        """Return these channels of the recording; of a recording that has only one, that one, as Lhotse does.

        Raises: DataError ``no_such_channel``.
        """
        if sum(len(source["channels"]) for source in self.manifest["sources"]) == 1:
            return self
        return Recorded(self.manifest, wanted, self.access, self.window, self._sources)

    def of_first(self, supervisions: Any) -> Any:
        """Return those supervisions that are of the first of the channels, as of audio that has no other one."""
        alone = sum(len(source["channels"]) for source in self.manifest["sources"]) == 1
        found = []
        for said in supervisions:
            named = said.get("channel")
            if named is None or alone or self.channels[0] in (named if isinstance(named, list) else [named]):
                found.append(said if named is None else {**said, "channel": 0})
        return found

    def _with(self, window: Window | None) -> Recorded:
        return Recorded(self.manifest, self.channels, self.access, window, self._sources)

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        """Return the seconds from ``start`` to ``end``, sample by sample what Lhotse loads. Raises: DataError."""
        samples, rate, channels = self.info
        check_channel(channel, channels)
        wanted = self.channels if channel is None else [self.channels[channel]]
        first, last = (0, samples) if start is None and end is None else sample_range(samples, rate, start, end)
        check_longest(last - first, rate)
        if self.window is not None:
            first, last = first + self.window.first, last + self.window.first
        count = last - first
        rate, total = self.info.sample_rate, self.manifest["num_samples"]
        span: Span = first / rate, None if is_whole(count, total, rate) else count / rate
        changes = transforms_of(self.manifest)
        for change in reversed(changes):
            span = change.before(span, rate)
        waveform = self._stored(span, wanted)
        for change in changes:
            waveform = change.apply(waveform, rate)
        return fitted(waveform, count, rate), rate

    def _stored(self, span: Span, channels: list[int]) -> torch.Tensor:
        """Return a span of these channels as they are stored."""
        import torch

        rate = rate_before(self.manifest)
        start, end = bounds(span, rate)
        found = []
        for source, stored in zip(self.manifest["sources"], self.sources, strict=True):
            rows = [row for row, channel in enumerate(source["channels"]) if channel in channels]
            if rows:
                try:
                    waveform, own = decoded(stored, None, start, end)
                except DataError as error:
                    raise error.within(f"the recording {self.manifest.get('id')}") from error
                if max(rows) >= len(waveform):
                    raise DataError("no_such_channel", f"the file has {len(waveform)} channels, not {max(rows) + 1}")
                found.append(self._at_rate(waveform[rows], own, rate, stored))
        if len({waveform.shape[1] for waveform in found}) > 1:
            raise DataError(
                "length_mismatch", "the files of the recording's channels differ in length: create them again"
            )
        return found[0] if len(found) == 1 else torch.cat(found)

    def _at_rate(self, waveform: torch.Tensor, own: int, rate: int, stored: RecordingSource) -> torch.Tensor:
        """Raises: DataError ``wrong_rate``, but for Opus, which has no rate of its own."""
        if own == rate:
            return waveform
        head = self.read_at(0, 64) if not isinstance(stored, bytes) else stored[:64]
        if sniff_codec(head) != "opus":
            raise _other_rate(rate, own)
        return resampled(waveform, own, rate)

    def __repr__(self) -> str:
        return f"Recorded({self.manifest.get('id')!r}, channels={self.channels}, window={self.window})"


def _other_rate(declared: int, own: int) -> DataError:
    return DataError("wrong_rate", f"the manifest says {declared} Hz, the audio has {own}: correct one of them")


class Unaligned(Recorded):
    """A recording with a time of its own, which is not cut along with the utterance."""

    __slots__ = ()

    def between(self, start: float, end: float) -> Unaligned:
        return self


def placed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return ``fields`` with the whole recording as ``wav``, and ``start`` and ``end`` of what is wanted of it."""
    wav = fields.get("wav")
    if isinstance(wav, Recorded) and wav.window is not None:
        fields |= {"wav": wav.whole(), **times(wav.window, wav.info.sample_rate)}
    return fields
