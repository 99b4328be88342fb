"""Conversations, one a line: all lanes of a process share one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.formats.conversations.turns import SpokenPart, read_turns, tags_of
from uio_pipes.formats.lists.json_records import key_of
from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.nemo.audio import audio_file
from uio_pipes.formats.nemo.paths import ManifestGroup
from uio_pipes.formats.nemo.table import Manifests, cut
from uio_pipes.io.access import Access

TAGS = ("<sound>", "<speech>", "<audio>")
_TIMES = ("start", "end", "duration")


class ConversationTable(Manifests):
    """The conversations of all manifests, in their order. ``tags``: what stands for audio in texts; ``root``: where
    relative paths start, by default at the manifest's folder.

    Raises: ListError, as other manifests.
    """

    wanted: ClassVar[str] = 'a conversation is {"messages": […]} or {"conversations": […]}, one a line'

    def __init__(
        self,
        manifests: tuple[ManifestGroup, ...],
        tars: tuple[ManifestGroup, ...] | None,
        access: Access,
        names: FieldNames = (),
        tags: tuple[str, ...] = TAGS,
        root: str | None = None,
    ) -> None:
        super().__init__(manifests, tars, access, names)
        self._tag, self._root = tags_of(tags), root

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of a conversation, nothing opened. Raises: LeftOut ``skipme``, DataError."""
        line, place = self.line(number), self.place(number)
        custom, key = line.get("custom"), key_of(line, place)
        if isinstance(custom, dict) and custom.get("_skipme"):
            raise LeftOut("skipme", "the line is marked with _skipme", url=place, member=key)
        try:
            messages, spoken = read_turns(line, self._tag)
            audio = [self.recording(line, str(one.path), number) for one in spoken]
            times = [_times(one, at) for at, one in enumerate(spoken, 1)]
        except DataError as error:
            raise DataError(error.reason, error.message, url=place, member=key) from error
        line |= {"key": key, "messages": messages, "audio": audio}
        for name in _TIMES:
            values = [one.get(name) for one in times]
            if any(value is not None for value in values) if name != "duration" else values and None not in values:
                line[f"audio_{name}"] = values
        return line

    def beside(self, path: str, number: int) -> Any:
        return super().beside(path, number) if self._root is None else audio_file(path, f"{self._root}/", self.access)


def recordings_of(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each recording of a conversation as the fields of an utterance; nothing of others."""
    for number, wav in enumerate(fields["audio"] if "messages" in fields else ()):
        times = {name: fields[f"audio_{name}"][number] for name in _TIMES if f"audio_{name}" in fields}
        yield {"key": fields["key"], "wav": wav, **times}


def _times(spoken: SpokenPart, number: int) -> dict[str, Any]:
    try:
        row = {"offset": spoken.time("offset"), "duration": spoken.time("duration")}
        cut(row)
    except DataError as error:
        raise error.within(f"recording {number}") from error
    return row
