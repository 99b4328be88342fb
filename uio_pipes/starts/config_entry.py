"""The entries of a data configuration: mappings of YAML under our names, with the places that errors name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.marked_yaml import parse_yaml, place_of
from uio_pipes.base.near_names import nearest
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary

GROUP = "group"
_TYPES = {  # NeMo's names, and ours
    "nemo_tarred": "nemo",
    "lhotse": "lhotse_cuts",
    "txt": "text",
    "multimodal_conversation": "conversations",
    "share_gpt": "conversations",
}
NEMOS = {  # NeMo's keys, and ours
    "input_cfg": "sources",
    "reweight_temperature": "temperature",
    "manifest_filepath": "manifest",
    "tarred_audio_filepath": "tarred_audio",
    "tarred_audio_filepaths": "tarred_audio",
    "cuts_path": "paths",
    "shar_path": "source",
    "audio_placeholders": "audio_tag",
}


class ConfigEntry:
    """One mapping of the configuration, and if it is a group, those within it.

    Attributes:
        values: its values by our names.
        sources: the entries of a group; None for a source.

    Raises: PipelineError naming file and line, ListError if a file cannot be read.
    """

    def __init__(self, marked: Any, place: str, access: Access, files: tuple[str, ...], root: bool = False) -> None:
        self._marked, self._place, self._files = marked, place, files  # the last one is its own, others lead to it
        if not isinstance(marked, Mapping):
            raise PipelineError(f"{place}: a mapping of keys and values is wanted here, not {marked!r:.80}")
        self._keys: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        for key, value in marked.items():
            name = NEMOS.get(str(key), str(key))
            if name in self.values:
                self.fail(name, f"{self._keys[name]} and {key} mean the same: keep one of them")
            self._keys[name], self.values[name] = str(key), value
        kind = self.values.setdefault("type", GROUP if root else None)
        if not isinstance(kind, str):
            self.fail("type", f"type must be the name of a source, not {kind!r}")
        self.type: str = _TYPES.get(kind, kind)
        self.sources = self._within(access) if self.type == GROUP else None

    def _within(self, access: Access) -> list[ConfigEntry]:
        sources, files, place = self.values.get("sources"), self._files, self.place("sources")
        if isinstance(sources, str):
            if sources in files:
                self.fail("sources", f"{sources} is within itself")
            sources, files, place = read(sources, access), (*files, sources), sources
        if not isinstance(sources, Sequence) or not sources or isinstance(sources, str):
            self.fail("sources", f"a group needs its sources, a list, not {sources!r:.80}")
        lines = getattr(sources, "lines", None)
        places = (
            [f"{files[-1]}, line {line}" for line in lines] if lines else [f"{place}[{i}]" for i in range(len(sources))]
        )
        return [ConfigEntry(one, at, access, files) for one, at in zip(sources, places, strict=True)]

    def place(self, key: str) -> str:
        """Return the place of a key for messages: ``data.yaml, line 7``."""
        if hasattr(self._marked, "lines"):
            return place_of(self._marked, self._keys.get(key, key), self._files[-1])
        return f"{self._place}.{self._keys.get(key, key)}"

    def word(self, key: str) -> str:
        """Return a key as the file has it, where that may be NeMo's name for it."""
        return self._keys.get(key, key)

    def fail(self, key: str, message: str) -> NoReturn:
        raise PipelineError(f"{self.place(key)}: {message}")

    def fail_unknown(self, key: str, known: Iterable[str], what: str) -> NoReturn:
        """Raises: PipelineError for a key that is not ``known``; ``what`` has such keys."""
        names = sorted(known)
        near = nearest(key, names)
        self.fail(
            key if key in self.values else "type",
            f"{what} has no {self.word(key)!r}" + (f"; did you mean {near!r}?" if near else f": {', '.join(names)}"),
        )

    def levels(self) -> int:
        """Return the number of levels of groups from here on."""
        return 0 if self.sources is None else 1 + max(entry.levels() for entry in self.sources)

    def leaves(self) -> Iterator[ConfigEntry]:
        """Yield the sources within, at all levels."""
        for one in self.sources or ():
            yield from [one] if one.sources is None else one.leaves()

    def items(self, key: str) -> Iterator[tuple[str, Any]]:
        """Yield the items of a list with their places."""
        items = self.values.get(key, [])
        if not isinstance(items, Sequence) or isinstance(items, str):
            self.fail(key, f"{key} must be a list, not {items!r:.80}")
        lines = getattr(items, "lines", None)
        for number, item in enumerate(items):
            yield f"{self._files[-1]}, line {lines[number]}" if lines else f"{self.place(key)}[{number}]", item


def read(path: str, access: Access) -> Any:
    """Return what a YAML file holds. Raises: ListError, PipelineError."""
    try:
        with open_binary(path, access) as file:
            return parse_yaml(file.read(), path)
    except DataError as error:
        raise ListError(f"cannot read the configuration {path}: {error.message}") from error
