"""The cuts of Lhotse's manifests, one a line, in any order: all lanes of a process share one table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lhotse.cut import Pairs, WantedFields, check_cut, described, end_of, is_recording
from uio_pipes.formats.lhotse.recording import Recorded, Unaligned, placed
from uio_pipes.formats.lhotse.sources import check_readable
from uio_pipes.formats.lhotse.stored import CutFeatures, StoredArray, TimedArray, loader
from uio_pipes.formats.lhotse.window import window_of
from uio_pipes.formats.lists.json_records import JsonRecords
from uio_pipes.formats.lists.raw_line import parse_object
from uio_pipes.io.access import Access

_CUTS = 'cuts have {"id", "start", "duration", "recording", "supervisions", "type"} a line'


class CutTable(JsonRecords):
    """Cuts with references to their audio, features and arrays. Nothing but the manifest is opened.

    Raises: ListError if a manifest is missing, damaged, empty, or does not hold cuts.
    """

    def __init__(self, entries: tuple[str, ...], access: Access, pairs: Pairs = (), allow_pipes: bool = False) -> None:
        super().__init__(entries, access)
        self._wanted, self._pipes = WantedFields(pairs), allow_pipes
        _refuse_others(self.lines[0], self.place(0))

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of a cut. Raises: DataError."""
        line, cut = self.lines[number], dict[str, Any]()
        try:
            cut = parse_object(line, "")
            return placed(self._wanted.named(self._fields(cut)))
        except ListError as error:
            raise self._at(number, cut, "bad_line", f"not a JSON object: {line[:80]!r}") from error
        except DataError as error:
            raise self._at(number, cut, error.reason, error.message) from error
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"the cut cannot be read ({type(error).__name__}: {error}): write it again"
            raise self._at(number, cut, "bad_cut", message) from error

    def _at(self, number: int, cut: dict[str, Any], reason: str, message: str) -> DataError:
        return DataError(reason, message, url=self.place(number), member=str(cut.get("id", "")))

    def _fields(self, cut: dict[str, Any]) -> dict[str, Any]:
        start, duration = check_cut(cut)
        left_out = self._wanted.left_out
        fields = described(cut, partial(self._custom, cut, start, duration))
        if "wav" not in left_out and (manifest := cut.get("recording")) is not None:
            fields["wav"] = self._recorded(manifest, cut.get("channel"), start, duration)
        if "feat" not in left_out and (manifest := cut.get("features")) is not None:
            fields["feat"] = CutFeatures(cut, manifest, loader(manifest, self.access))
        return fields

    def _recorded(self, manifest: Mapping[str, Any], channels: Any, start: float, duration: float | None) -> Recorded:
        check_readable(manifest, self._pipes)
        return Recorded(manifest, channels, self.access, window_of(manifest, start, duration))

    def _custom(
        self, cut: dict[str, Any], start: float, duration: float | None, name: str, manifest: Mapping[str, Any]
    ) -> Any:
        """Return a custom recording or array, cut along with the cut."""
        if name in self._wanted.left_out:
            return None
        if is_recording(manifest):
            channels = cut["custom"].get(f"{name}_channel_selector")
            if cut["custom"].get(f"{name}_unaligned"):
                check_readable(manifest, self._pipes)
                return Unaligned(manifest, channels, self.access)
            return self._recorded(manifest, channels, start, duration)
        if "array" in manifest:
            return TimedArray(loader(manifest["array"], self.access), manifest, (start, end_of(start, duration)))
        return StoredArray(loader(manifest, self.access))


def _refuse_others(line: str, place: str) -> None:
    """Raises: ListError if the first line of a manifest is sound, but no cut."""
    try:
        first = parse_object(line, place)
    except DataError:
        return  # one damaged line
    except ListError as error:
        raise ListError(f"{place} is not a JSON object: {line[:80]!r}; {_CUTS}") from error
    if str(first.get("type")).endswith("Cut"):
        return
    if is_recording(first) or "recording_id" in first:
        kind = "recordings" if is_recording(first) else "supervisions or features"
        raise ListError(
            f"{place} is one of Lhotse's manifests of {kind}, not of cuts: join them by "
            'CutSet.from_manifests(recordings=…, supervisions=…).to_file("cuts.jsonl.gz")'
        )
    raise ListError(f"{place} is not a cut of Lhotse's, it has {', '.join(list(first)[:5])}: {_CUTS}")
