"""``from_lhotse_shar``: the cuts of a Lhotse Shar with their recordings or features, read without Lhotse."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError, ListError, StateError
from uio_pipes.base.json_text import parse_json
from uio_pipes.core.buffer import OR_RESTART, reopening, taken
from uio_pipes.core.features import Loaded
from uio_pipes.core.items import Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.pulse import Taken
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import OBJECT, Kind, listed, whole
from uio_pipes.formats.lhotse.cut import Pairs, WantedFields
from uio_pipes.formats.shar.fields import as_fields
from uio_pipes.formats.shar.reader import SharCut, SharReader
from uio_pipes.formats.shar.streams import is_lines
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opening import stamp

_NUMBERS = listed(whole(1 << 60))


@dataclass(frozen=True)
class LoadFromShar(Stage):
    """The cuts of a Lhotse Shar as utterances. All files of a shard are read in step."""

    name: ClassVar[str] = "load_from_shar"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "sample"

    fields: Pairs = ()
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; fingerprints name the fields only if some are renamed or left out."""
        return f"{self.name}()" if stable and not self.fields else super().describe(stable=stable)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SharNode(source, lane, self)


class _SharNode(Node):
    """State: the source's from before the current shard, and where in each of its files the next cut begins."""

    def __init__(self, source: Node, lane: Lane, stage: LoadFromShar) -> None:
        super().__init__(source)
        self.lane, self.access, self.wanted = lane, stage.access, WantedFields(stage.fields)
        self.loaded = Loaded(lane)
        self.reader: SharReader | None = None

    def start(self) -> None:
        self._close()
        self.item: Item | None = None
        self.before: dict[str, Any] = {}
        self.taken = Taken(self.lane.pulse)
        self.stamps: dict[str, str] = {}

    def next(self) -> Sample:
        while True:
            try:
                if self.reader is None:
                    self._open_next()
                assert self.reader is not None
                sample = self._sample(self.reader.next())
            except StopIteration:
                if self.reader is None:
                    raise
                self._close()
            except DataError as error:
                self._fail(error)
            else:
                self.lane.ledger.fine(LoadFromShar.name)
                return sample

    def _fail(self, error: DataError) -> None:
        self.lane.ledger.fail(error, LoadFromShar.name)

    def _open_next(self) -> None:
        self.before = self.source.get_state()
        self.item = self.source.next()
        self.taken = Taken(self.lane.pulse)
        self._open(None)

    def _open(self, at: dict[str, list[int]] | None) -> None:
        assert self.item is not None
        self.stamps = {}
        self.reader = SharReader(_files(self.item), self.access, self._fail, at)

    def _close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def _sample(self, cut: SharCut) -> Sample:
        assert self.item is not None
        place = f"{self.item.place}, line {cut.line}"
        try:
            fields = as_fields(cut.content, cut.values, self.wanted)
        except DataError as error:
            key = str(cut.content.get("id", ""))
            raise DataError(error.reason, error.message, url=place, member=key) from error
        return self.loaded.sample(fields, self.item.origin._replace(offset=cut.line), place)

    def _stamps(self) -> dict[str, str]:
        assert self.item is not None
        return {name: stamp(url, self.access) for name, url in _files(self.item).items()}

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.item is None:
            return {"source": self.source.get_state()}
        self.stamps = self.stamps or self._stamps()
        state = {"source": self.before, "at": self.reader.tell(), "stamps": dict(self.stamps)}
        return state | self.taken.saved()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(None if initial_state is None else self.read_state(initial_state, "source", OBJECT))
        if initial_state is None or len(initial_state) == 1:
            return
        self.before = self.source.get_state()
        self.item = taken(self.source, LoadFromShar.name)
        files = _files(self.item)
        at = self.read_state(initial_state, "at", Kind(f"positions by {sorted(files)}", partial(_are_positions, files)))
        old = self.read_state(initial_state, "stamps", OBJECT)
        with reopening():
            new = self._stamps()
            if new != old:
                name = next(name for name in sorted({*new, *old}) if new.get(name) != old.get(name))
                rule = f"{name} of {self.item.place} changed since the state was saved"
                raise StateError(f"{rule}: {old.get(name)} then, {new.get(name)} now. Restore it, {OR_RESTART}")
            self._open({name: list(position) for name, position in at.items()})
        self.taken = Taken(self.lane.pulse, initial_state)
        self.stamps = dict(old)


def _are_positions(files: dict[str, str], value: Any) -> bool:
    """True if ``value`` can be the position of a reader of these files: lines, or offset and damage."""
    numbers = isinstance(value, dict) and value.keys() == files.keys() and all(map(_NUMBERS.fits, value.values()))
    return numbers and all(len(at) == (1 if is_lines(name, files[name]) else 2) for name, at in value.items())


def _files(item: Item) -> dict[str, str]:
    try:
        found: dict[str, str] = parse_json(item.text)
    except ValueError as error:
        raise ListError(f"{item.place} is not a shard of a Lhotse Shar: use from_lhotse_shar") from error
    return found
