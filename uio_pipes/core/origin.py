"""The origin of an utterance, and errors that name it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from uio_pipes.base.errors import DataError, LeftOut, UioError, raised_in
from uio_pipes.base.urls import redact
from uio_pipes.io.local import LocalFile
from uio_pipes.io.references import Ref

MAKERS = {"wav": ".decode_audio()", "sample_rate": ".decode_audio()", "feat": ".fbank(…)", "label": ".tokenize(…)"}


class Origin(NamedTuple):
    """The origin of a sample. It never changes with ranks, workers or the order of the epoch.

    Attributes:
        item: its number in the unshuffled list.
        offset: its byte offset in the shard, or its line. Default: 0.
        sub: its number among the results of each ``flat_map``, outermost first. Default: ().
        pass_: how often the source had begun again. Default: 0.
        source: path of the source in the graph, where several are mixed. Default: "".
    """

    item: int
    offset: int = 0
    sub: tuple[int, ...] = ()
    pass_: int = 0
    source: str = ""


class HasPlace(Protocol):
    """An object with a place in a list, which is looked up only for messages."""

    @property
    def place(self) -> str: ...


def describe_error(error: Exception, stage: str, key: str, url: str, origin: Origin, audio: Any) -> UioError:
    """Return ``error`` of the stage ``stage`` as a ``DataError`` that says where; errors of the run unchanged.

    ``url``: the line of a list, or the shard, in which the utterance ``key`` is; ``audio``: what it has as such, which
    may be a path.
    """
    if isinstance(error, LeftOut):
        return error
    if isinstance(error, DataError):
        if error.reason != "hung":  # or this would hang, too
            error = _changed(audio) or error
        message, offset = error.message, origin.offset if error.offset is None else error.offset
        if not error.url and isinstance(audio, str):  # the utterance is known by its list, which names this file
            message = f"{redact(audio)}: {message}"
        if (place := redact(url)) not in redact(error.url or url) + redact(message):  # the line that names the file
            message = f"{message} (named in {place})"
        found = DataError(error.reason, message, url=error.url or url, member=error.member or key, offset=offset)
        found.stage = error.stage or stage
    elif isinstance(error, UioError):
        return error
    else:
        text = f"{type(error).__name__}: {error}{raised_in(error)}"
        if isinstance(error, KeyError) and error.args and error.args[0] in MAKERS:
            text += f" (is {MAKERS[error.args[0]]} missing before {stage}?)"
        found = DataError(f"{stage}_failed", text, url=url, member=key, offset=origin.offset)
        found.stage = stage
    found.key, found.item = key, origin.item
    return found


def _changed(audio: Any) -> DataError | None:
    """Return the error of a file that was written to since it was opened: why its bytes are no audio any more."""
    try:
        if isinstance(audio, Ref) and isinstance(file := getattr(audio, "file", None), LocalFile):
            file.look()
    except UioError as error:
        return error if isinstance(error, DataError) and error.reason == "changed_file" else None
    return None
