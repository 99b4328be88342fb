"""Utterances that are lines of JSONL files, of which the text counts."""

from __future__ import annotations

from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.formats.lists.json_records import JsonRecords, key_of


class JsonlTable(JsonRecords):
    """Utterances with ``txt`` and whatever else their lines have. The key is ``key``, ``id``, or FILE:LINE."""

    def parse(self, line: dict[str, Any], place: str) -> dict[str, Any]:
        key, txt = key_of(line, place), line.get("txt")
        if txt is None:
            theirs = dict(self._names)
            names = ", ".join(theirs.get(name, name) for name in line)
            what = f"{'null' if 'txt' in line else 'nothing'} as {theirs.get('txt', 'txt')!r}, its text"
            message = f"the line has {what} (its names: {names}): choose another with text=…"
            raise DataError("missing_text", message, url=place, member=key)
        if not isinstance(txt, str):
            message = f"the text is {txt!r:.40}, not a string: choose another name with text=…"
            raise DataError("bad_text", message, url=place, member=key)
        return {**line, "key": key, "txt": txt}
