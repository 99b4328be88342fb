"""Utterances as they are stored: their files of audio or features, and what else is known of them.

Audio files are cut without torch. Audio that decodes itself (of cuts, arrays, some channels of a file) and features are
made by the stages that training has.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uio_pipes.audio.containers import DECLARED, TRIMMED
from uio_pipes.audio.recording import Recording
from uio_pipes.base.errors import DataError
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.naming import TEXTLESS
from uio_pipes.formats.tar.reader import seen_in
from uio_pipes.io.references import Ref
from uio_pipes.sources.touchdataset.folder import Pcm
from uio_pipes.tools.data.reading import Bad, Utterance
from uio_pipes.tools.data.writing.cutting import Audio, CutResult, cut_recording, failure_of

if TYPE_CHECKING:
    from uio_pipes.tools.data.placement import PackSettings

Placed = tuple[str, Utterance | Bad]  # shard and utterance
TASK = 64  # utterances that a process makes at a time, at least: a recording is not divided
IN_TARS = frozenset(["speaker"])  # fields that have a member of their own
_OF_AUDIO = frozenset(["wav", "feat", "start", "end", "duration", "sample_rate", "key", "txt", DECLARED, TRIMMED])


@dataclass
class Made:
    """An utterance as it is stored. ``file``: where its audio was; ``more``: fields that can be written as JSON;
    ``dropped``: the names of those that cannot, or have no place."""

    key: str
    file: str
    txt: str | None
    audio: Audio
    more: dict[str, Any]
    dropped: list[str]


def tasks_of(placed: Iterable[Placed]) -> Iterator[list[Placed]]:
    """Yield tasks of whole recordings with about ``TASK`` utterances."""
    task: list[Placed] = []
    for _, recording in itertools.groupby(placed, key=_source):
        task += recording
        if len(task) >= TASK:
            yield task
            task = []
    if task:
        yield task


def _source(placed: Placed) -> Any:
    one = placed[1]
    return one.source if isinstance(one, Utterance) else id(one)


def make_task(task: list[Placed], settings: PackSettings) -> list[Any]:
    """Return for each utterance of a task what a part stores, or its failure."""
    made = list[Any]()
    for _, recording in itertools.groupby(task, key=_source):
        given = [one for _, one in recording]
        failed = [_unread(one, settings.needs_text) for one in given]
        sound: list[Any] = [one for one, failure in zip(given, failed, strict=True) if failure is None]
        found = iter(_made(sound, settings) if sound else ())
        made += [next(found) if failure is None else failure for failure in failed]
    return made


def _unread(one: Utterance | Bad, needs_text: bool) -> Bad | None:
    """Return the failure of what was not read, or lacks its text; None for anything else."""
    if isinstance(one, Bad):
        return one
    if one.txt is not None or not needs_text:
        return None
    hint = named_otherwise("txt", seen_in(one.fields))
    return failure_of(one, DataError("missing_text", f"the utterance has no text: {hint}; {TEXTLESS}"))


def _made(recording: list[Utterance], settings: PackSettings) -> list[Any]:
    wav = recording[0].wav
    plain = isinstance(wav, (str, bytes, bytearray, Ref)) and (not isinstance(wav, Recording) or isinstance(wav, Pcm))
    if settings.to == "cuts":
        from uio_pipes.tools.data.writing.references import refer  # only here: it needs torch

        return [refer(one, settings) for one in recording]
    if settings.features is not None or not plain:
        from uio_pipes.tools.data.writing.features import compute  # only here: it needs torch

        return [compute(one, settings) for one in recording]
    cut = cut_recording(wav, recording, settings.sample_rate, settings.form)
    return [described(one, audio, one.fields, settings) for one, audio in zip(recording, cut, strict=True)]


def described(one: Utterance, audio: CutResult, fields: Mapping[str, Any], settings: PackSettings) -> Made | Bad:
    """Return an utterance with all that is stored of it, or its failure. ``fields``: of its source."""
    if isinstance(audio, Bad):
        return audio
    more, dropped = dict[str, Any](), list[str]()
    try:
        for name, value in fields.items():
            if name in _OF_AUDIO:
                continue
            if settings.to == "shards" and name not in IN_TARS:
                dropped.append(name)
                continue
            if isinstance(value, Ref) and not isinstance(value, Recording):
                from uio_pipes.sources.lhotse.stored import StoredArray  # only here: it needs torch

                value = value if isinstance(value, StoredArray) else value.read()
            try:
                text = value.decode() if isinstance(value, bytes) else value
                more[name] = json.loads(json.dumps(text, allow_nan=False))
            except (TypeError, ValueError):
                dropped.append(name)
        name = "txt"
        txt: Any = one.txt.read() if isinstance(one.txt, Ref) else one.txt
    except DataError as error:
        return failure_of(one, error.within(f"the field {name}"))
    return Made(one.key, one.file, txt, audio, more, dropped)
