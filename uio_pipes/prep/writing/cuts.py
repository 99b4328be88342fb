"""Cuts as Lhotse writes them: their audio stays where it is, or is written beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

from uio_pipes.io.local import AudioInfo, Ref
from uio_pipes.io.opening import is_local
from uio_pipes.prep.writing.cutting import frames_of
from uio_pipes.prep.writing.shards import Converted, RawPart

OF_SPEECH = ("speaker", "language", "gender")
_NOT_CUSTOM = frozenset(["key", "wav", "txt", "sample_rate", "supervisions", *OF_SPEECH])


class Referred(NamedTuple):
    """An utterance whose audio stays where it is: from ``first`` on, ``samples`` of the recording of a manifest."""

    metadata: dict[str, Any]
    dropped: list[str]
    recording: dict[str, Any]
    channels: list[int]
    first: int
    samples: int

    @property
    def frames(self) -> int:
        return frames_of(self.samples, int(self.recording["sampling_rate"]))


def recording_of(wav: str | Ref, info: AudioInfo | None) -> tuple[dict[str, Any], list[int], AudioInfo] | None:
    """Return the manifest of an audio file; None if only decoding shows its length."""
    if info is None:
        return None
    path = wav.file.path if isinstance(wav, Ref) else wav
    return _manifest(is_local(path) or path, is_local(path) is not None, info), [0], info


def _manifest(path: str, local: bool, info: AudioInfo) -> dict[str, Any]:
    """Return the manifest of a recording, as Lhotse writes it."""
    channels = list(range(info.channels))
    return {
        "id": path,
        "sources": [{"type": "file" if local else "url", "channels": channels, "source": path}],
        "sampling_rate": info.sample_rate,
        "num_samples": info.samples,
        "duration": info.samples / info.sample_rate,
        "channel_ids": channels,
    }


def _cut_of(one: Referred) -> dict[str, Any]:
    """Return the cut of an utterance, as Lhotse writes it: without supervisions if nobody knows what is said, or by
    whom."""
    known, recording = one.metadata, one.recording
    rate = recording["sampling_rate"]
    duration = one.samples / rate
    channel: Any = one.channels[0] if len(one.channels) == 1 else one.channels
    spoken = {"text": known["txt"]} if "txt" in known else {}
    spoken |= {name: known[name] for name in OF_SPEECH if isinstance(known.get(name), str)}
    whole = {"recording_id": recording["id"], "start": 0.0, "duration": duration, "channel": channel}
    said = known.get("supervisions") or ([{"id": known["key"], **whole, **spoken}] if spoken else [])
    theirs = {name for one in said for name in one.get("custom") or ()}
    custom = {name: value for name, value in known.items() if name not in _NOT_CUSTOM | theirs}
    return {
        "id": known["key"],
        "start": one.first / rate,
        "duration": duration,
        "channel": channel,
        "supervisions": said,
        "recording": recording,
        **({"custom": custom} if custom else {}),
        "type": "MonoCut" if len(one.channels) == 1 else "MultiCut",
    }


class CutsPart(RawPart):
    """A folder of audio files, as far as they are not elsewhere, and the lines of the manifest of cuts."""

    def store(self, one: Converted | Referred) -> None:
        if isinstance(one, Converted):
            info = AudioInfo(len(one.samples), int(one.metadata["sample_rate"]), 1)
            recording = _manifest(self.write_audio(one), self.out.path is not None, info)
            one = Referred(one.metadata, one.dropped, recording, [0], 0, info.samples)
        self.write_line(_cut_of(one))
