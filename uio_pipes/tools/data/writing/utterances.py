"""One utterance from one form to the other: decoded, its file as it is, or a reference to it, in cuts as Lhotse writes
them: their audio stays where it is, or is written beside them."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any, NamedTuple

from uio_pipes.audio.length import audio_info
from uio_pipes.audio.recording import Recording
from uio_pipes.base.errors import DataError
from uio_pipes.core.realize import compute
from uio_pipes.core.sample import Sample
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.naming import TEXTLESS
from uio_pipes.formats.tar.reader import seen_in
from uio_pipes.io.local import AudioInfo, Ref, open_data
from uio_pipes.io.nearby import Nearby
from uio_pipes.io.opening import Whole, is_local
from uio_pipes.sources.lhotse.recording import Recorded
from uio_pipes.sources.lhotse.stored import StoredArray
from uio_pipes.sources.lhotse.transforms import samples_in
from uio_pipes.tools.data.writing.cutting import frames_of, to_int16, whole_file
from uio_pipes.tools.data.writing.shards import Converted, Kept, RawPart, TarPart

_OF_AUDIO = frozenset(["wav", "start", "end", "duration", "sample_rate", "key", "txt"])
_IN_SHAR = "shar"
_DATA = (Recording, StoredArray)  # which no form has a place for, except as the utterance's own audio


def decode_utterance(
    sample: Sample, *, needs_text: bool = True, keeps: frozenset[str] | None = None
) -> Converted | DataError:
    """Decode an utterance of a pipeline that ends with ``decode_audio``; return it, or its failure.

    ``keeps``: fields that its form has a place for (None: all); no others are read.
    """
    wav = sample.fields.get("wav")
    where = wav if isinstance(wav, str) else wav.file.path if isinstance(wav, Ref) else sample.url
    try:
        if isinstance(wav, Recorded) and "supervisions" in sample.fields:
            sample.fields["supervisions"] = wav.of_first(sample.fields["supervisions"])
        compute(sample)
        sample.read([n for n, v in sample.fields.items() if not isinstance(v, _DATA) and (keeps is None or n in keeps)])
        metadata, dropped = _metadata_of(sample, where, sample["sample_rate"], needs_text)
        return Converted(metadata, to_int16(sample["wav"][0].numpy()), dropped)
    except Exception as error:
        return _failure_of(sample, error)


def keep_file(sample: Sample, *, needs_text: bool, sample_rate: int | None) -> Converted | Kept | DataError:
    """Return an utterance with its audio file as it is, or decoded where it is no whole file; or its failure."""
    wav, decode = sample.fields.get("wav"), partial(decode_utterance, needs_text=needs_text, keeps=TarPart.keeps)
    if isinstance(wav, Recording) or not isinstance(wav, (str, bytes, Ref)) or {"start", "end"} & sample.fields.keys():
        return decode(sample)
    try:
        audio = whole_file(wav.read() if isinstance(wav, Ref) else open_data(wav).read(), sample.url, sample_rate)
        if audio is None:
            return decode(sample)
        sample.read([name for name in sample.fields.keys() & TarPart.keeps if name != "wav"])
        metadata, dropped = _metadata_of(sample, sample.url, 0, needs_text)
    except Exception as error:
        return _failure_of(sample, error)
    return Kept(metadata, audio, dropped)


def _failure_of(sample: Sample, error: Exception) -> DataError:
    """Return an error of one utterance; raise any other one."""
    failure = sample.failure(error, "convert")
    if not isinstance(failure, DataError):
        raise failure from error
    return failure


def _metadata_of(sample: Sample, where: str, sample_rate: int, needs_text: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of a :class:`Converted`, and the names of the fields that have no place in it.

    Raises: DataError ``missing_text``, if a text is needed.
    """
    said, dropped = sample.fields.get("txt"), []
    if needs_text and not isinstance(said, str):
        told = named_otherwise("txt", seen_in(sample.fields))
        raise DataError("missing_text", f"the utterance has no text: {told}; {TEXTLESS}")
    text_or_none = {"txt": said} if isinstance(said, str) else {}
    known: dict[str, Any] = {"key": sample.key, "wav": where, **text_or_none, "sample_rate": sample_rate}
    for name, value in sample.fields.items():
        if name not in _OF_AUDIO:
            try:
                text = value.decode() if isinstance(value, bytes) else value
                known[name] = json.loads(json.dumps(text, allow_nan=False))
            except (TypeError, ValueError):
                dropped.append(name)
    return known, dropped


def refer_to_file(sample: Sample) -> Converted | Referred | DataError:
    """Return an utterance with a reference to its audio file, or decoded if it has none; or its failure."""
    try:
        wav, fields = sample.fields.get("wav"), sample.fields
        if isinstance(wav, Recorded):
            own = all(source["type"] != _IN_SHAR for source in wav.manifest["sources"])
            found = (wav.absolute(), wav.channels, wav.info) if own else None
        elif isinstance(wav, (str, Whole, Nearby)):
            found = recording_of(wav, audio_info(wav, dict(fields)))
        else:
            found = None
        if found is None:
            return decode_utterance(sample, needs_text=False)
        recording, channels, info = found
        first = samples_in(fields.get("start") or 0.0, info.sample_rate)
        end = fields.get("end")
        last = info.samples if end is None else min(info.samples, samples_in(end, info.sample_rate))
        metadata, dropped = _metadata_of(sample, recording["id"], info.sample_rate, needs_text=False)
    except Exception as error:
        return _failure_of(sample, error)
    return Referred(metadata, dropped, recording, channels, first, last - first)


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
