"""One folder of a TouchDataset: ``audio.bin`` and ``.idx``, and utterances' JSON in ``metainfo.bin`` and ``.idx``."""

from __future__ import annotations

import json
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.raw_line import check_segment
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.pcm import Pcm
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local

WHOLE = 64 << 20  # bytes of a remote metainfo.bin that is fetched in one piece


class IndexedFolder:
    """The utterances of a folder, by number. Raises: ListError if it cannot be used."""

    def __init__(self, path: str, metainfo: str, access: Access) -> None:
        self.path = path.rstrip("/")
        self.audio = IndexedFile(f"{self.path}/audio", access)
        self.metainfo = IndexedFile(f"{self.path}/{metainfo}", access)
        self.name = f"{self.path}/{metainfo}"
        if len(self.audio) != len(self.metainfo):
            raise ListError(
                f"{self.path}: audio.idx has {len(self.audio)} utterances, {metainfo}.idx {len(self.metainfo)}; they "
                "do not belong together: fetch both again, or write the metadata again (uio_pipes.prep.metainfo)"
            )
        self.far = is_local(path) is None and self.metainfo.data.size <= WHOLE

    def __len__(self) -> int:
        return len(self.audio)

    def fields(self, number: int, texts: bytes | None = None) -> dict[str, Any]:
        """Return the metadata of utterance ``number``, with its audio as ``wav`` (not read). ``texts``: all of
        metainfo.bin, if it has been fetched. Raises: DataError."""
        if texts is None:
            return self.parsed(number, self.metainfo.read(number))
        offset, size = self.metainfo.span(number)
        data = texts[offset : offset + size]
        self.metainfo.check(number, data)
        return self.parsed(number, data)

    def parsed(self, number: int, data: bytes) -> dict[str, Any]:
        """As :meth:`fields`, from ``data``, the bytes of the utterance's metadata. Raises: DataError."""
        offset, url = self.metainfo.span(number)[0], self.metainfo.data.path
        fields = parse_metainfo(data, url, offset)
        rate = fields.get("sample_rate")
        if type(rate) is not int or rate <= 0:
            message = f"the metadata must give the sample_rate in Hz, not {rate!r}: add it by uio_pipes.prep.metainfo"
            raise DataError("missing_sample_rate", message, url=url, member=fields["key"], offset=offset)
        at, length = self.audio.span(number)
        if not length:
            message = "the audio has 0 samples; leave it out"
            raise DataError("empty_audio", message, url=self.audio.data.path, member=fields["key"], offset=at)
        fields["wav"] = Pcm(self.audio.data, at, length, self.audio.dtype, rate, self.audio.crc(number))
        fields.pop("duration", None)  # the index knows better
        return fields


def parse_metainfo(data: bytes, url: str, offset: int) -> dict[str, Any]:
    """Parse the metadata. Raises: DataError ``bad_line``, ``missing_key``, ``missing_text``, ``bad_segment``."""
    try:
        fields: Any = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError(f"no object, but {data[:40]!r}")
    except (ValueError, RecursionError) as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=url, offset=offset) from error
    if type(fields.get("key")) is str and type(fields.get("txt")) is str and fields["key"]:
        if "start" in fields or "end" in fields:
            check_segment(fields, url, fields["key"])
        return fields
    for name, reason in (("key", "missing_key"), ("txt", "missing_text")):
        value = fields.get(name)
        if isinstance(value, (int, float)):
            value = fields[name] = str(value)
        if not isinstance(value, str) or (not value and name == "key"):
            message = f"the metadata has no {name}: write it again (uio_pipes.prep.metainfo)"
            raise DataError(reason, message, url=url, member=str(fields.get("key", "")), offset=offset)
    check_segment(fields, url, fields["key"])
    return fields
