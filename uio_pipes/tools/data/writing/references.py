"""Cuts, as Lhotse writes them, whose audio stays where it is, or is written beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uio_pipes.audio.length import audio_info
from uio_pipes.base.errors import DataError
from uio_pipes.io.opening import RemoteFileRef, is_local
from uio_pipes.io.references import AudioInfo, Ref
from uio_pipes.io.relative_paths import RelativeRef
from uio_pipes.sources.lhotse.recording import Recorded
from uio_pipes.sources.lhotse.transforms import samples_in
from uio_pipes.tools.data.reading import Bad, Utterance
from uio_pipes.tools.data.writing.cutting import Audio, failure_of, frames_of
from uio_pipes.tools.data.writing.features import compute
from uio_pipes.tools.data.writing.making import Made, described
from uio_pipes.tools.data.writing.parts import RawPart

if TYPE_CHECKING:
    from uio_pipes.tools.data.placement import PackSettings

_IN_SHAR = "shar"
OF_SPEECH = ("speaker", "language", "gender")
_NOT_CUSTOM = frozenset(["supervisions", *OF_SPEECH])


@dataclass
class Referred(Made):
    """An utterance whose audio stays where it is: from ``first`` on, ``samples`` of the recording of a manifest."""

    recording: dict[str, Any]
    channels: list[int]
    first: int
    samples: int


def refer(one: Utterance, settings: PackSettings) -> Made | Bad:
    """Return an utterance with a reference to its audio file, or decoded if it has none or another rate is wanted; or
    its failure."""
    try:
        found = _file_of(one) if settings.sample_rate is None else None
    except DataError as error:
        return failure_of(one, error)
    if found is None:
        return compute(one, settings)
    recording, channels, info = found
    first = samples_in(one.start or 0.0, info.sample_rate)
    last = info.samples if one.end is None else min(info.samples, samples_in(one.end, info.sample_rate))
    known = described(one, Audio(b"", "", frames_of(last - first, info.sample_rate)), one.fields, settings)
    return (
        known
        if isinstance(known, Bad)
        else Referred(**vars(known), recording=recording, channels=channels, first=first, samples=last - first)
    )


def _file_of(one: Utterance) -> tuple[dict[str, Any], list[int], AudioInfo] | None:
    """Return the manifest of an utterance's audio file; None if it has none of its own, or only decoding shows its
    length. Raises: DataError."""
    wav = one.wav
    if isinstance(wav, Recorded):
        own = all(source["type"] != _IN_SHAR for source in wav.manifest["sources"])
        return (wav.absolute(), wav.channels, wav.info) if own else None
    if not isinstance(wav, (str, RemoteFileRef, RelativeRef)) or (info := audio_info(wav, dict(one.fields))) is None:
        return None
    path = wav.file.path if isinstance(wav, Ref) else wav
    return _manifest(is_local(path) or path, is_local(path) is not None, info), [0], info


def _manifest(path: str, local: bool, info: AudioInfo) -> dict[str, Any]:
    """Return the manifest of a recording, as Lhotse writes it; a local file by its absolute path, since Lhotse looks
    for others in the working directory."""
    channels = list(range(info.channels))
    kind, source = ("file", os.path.abspath(path)) if local else ("url", path)
    return {
        "id": path,
        "sources": [{"type": kind, "channels": channels, "source": source}],
        "sampling_rate": info.sample_rate,
        "num_samples": info.samples,
        "duration": info.samples / info.sample_rate,
        "channel_ids": channels,
    }


def _cut_of(one: Referred) -> dict[str, Any]:
    """Return the cut of an utterance, as Lhotse writes it: without supervisions if nobody knows what is said, or by
    whom."""
    recording, more = one.recording, one.more
    duration = one.samples / (rate := recording["sampling_rate"])
    channel: Any = one.channels[0] if len(one.channels) == 1 else one.channels
    spoken = {} if one.txt is None else {"text": one.txt}
    spoken |= {name: more[name] for name in OF_SPEECH if isinstance(more.get(name), str)}
    whole = {"recording_id": recording["id"], "start": 0.0, "duration": duration, "channel": channel}
    said = more.get("supervisions") or ([{"id": one.key, **whole, **spoken}] if spoken else [])
    theirs = {name for each in said for name in each.get("custom") or ()}
    custom = {name: value for name, value in more.items() if name not in _NOT_CUSTOM | theirs}
    return {
        "id": one.key,
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

    def store(self, one: Made) -> None:
        if not isinstance(one, Referred):
            info = AudioInfo(one.audio.samples, one.audio.sample_rate, 1)
            recording = _manifest(self.write_audio(one), self.out.path is not None, info)
            one = Referred(**vars(one), recording=recording, channels=[0], first=0, samples=info.samples)
        self.write_line(_cut_of(one))
