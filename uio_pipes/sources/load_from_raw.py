"""``load_from_raw``: utterances of WeNet's raw lists, one JSON object per line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.core.items import Item
from uio_pipes.core.lane import Lane
from uio_pipes.core.stage import added, names
from uio_pipes.formats.lists.raw_line import parse
from uio_pipes.formats.naming import names_of, transcript
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.sources.loading import Loading


@dataclass(frozen=True)
class LoadFromRaw(Loading):
    """Read the utterances of a raw list: one JSON object per line, ``{"key": …, "wav": path or URL, "txt": …}``.

    A line may also have ``start`` and ``end`` (seconds: the utterance is that segment of the recording),
    ``duration`` (seconds: the audio's header is then not read to plan), ``speaker``, ``feat`` (path of a .npy array
    (T, F), instead of ``wav``), and any other name: all are kept as fields.

    Args:
        fields: our names of fields whose names in the lines are others, as in ``{"wav": "audio", "txt": "text"}``.
            Default: None, all have ours.
        text: name that holds the transcript; None if utterances need none: ``txt`` is then there where a line has it.
            Default: "txt".
    """

    name: ClassVar[str] = "load_from_raw"
    takes: ClassVar[tuple[str, ...]] = ("item",)

    fields: Mapping[str, str] | None = names()
    text: str | None = added("txt")

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.text is None or (isinstance(self.text, str) and bool(self.text))
        require(ok, self.name, "text must be the name of the transcript, or None", self.text, 'as in text="sentence"')
        names_of(self.name, self._names)

    @property
    def textless(self) -> bool:  # type: ignore[override]
        return self.text is None

    @cached_property
    def _names(self) -> dict[str, str]:
        """Our names of fields, with those in the lines."""
        theirs = transcript(self.name, self.text, self.fields)
        return {**(self.fields or {}), **({} if theirs == "txt" else {"txt": theirs})}

    def loader(self, lane: Lane) -> Callable[[Item], dict[str, Any]]:
        return partial(self.load, needs_text=lane.needs_text)

    def load(self, item: Item, needs_text: bool = True) -> dict[str, Any]:
        try:
            fields = parse(item.text, item.place, self._names, needs_text and not self.textless)
        except ListError as error:
            if not item.origin.item:  # the first line: a list of another kind
                raise
            raise DataError("bad_line", f"not a JSON object: {item.text[:80]!r}", url=item.place) from error
        for name in ("wav", "feat"):
            value = fields.get(name)
            if isinstance(value, str) and is_local(value) is None:
                fields[name] = Whole(open_file(value, item.access))
        return fields

    def key(self, item: Item, error: DataError) -> str:
        return error.member
