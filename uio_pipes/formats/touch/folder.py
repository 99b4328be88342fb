"""One folder of a TouchDataset: audio, utterances' JSON, tokens, other modalities, each a ``NAME.bin`` and ``.idx``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.redact import redact
from uio_pipes.base.urls import inside
from uio_pipes.formats.lists.raw_line import as_seconds, check_segment, numbers_as_text
from uio_pipes.formats.naming import TEXTLESS, Renames, nested, renamed
from uio_pipes.formats.touch.entries import AUDIO, TOKENS, FolderEntry
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.pcm import Pcm
from uio_pipes.formats.touch.record import StoredRecord
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local

WHOLE = 64 << 20  # bytes of a remote .bin of metadata or tokens that is fetched in one piece
Fetch = Callable[[IndexedFile], bytes]  # all bytes of a file, which are kept
DEFAULT = ("txt",)


class IndexedFolder:
    """The utterances of a folder, by number. ``texts``: fields of which the metadata must have at least one.

    Raises: ListError if it cannot be used.
    """

    def __init__(
        self, entry: FolderEntry, access: Access, texts: tuple[str, ...] = DEFAULT, names: Renames = None
    ) -> None:
        self.path, self._texts, self._names = entry.folder.rstrip("/"), texts, names
        opened = {name: IndexedFile(inside(self.path, name), access) for name in entry.names}
        self.files = list(opened.values())
        self.name = inside(self.path, entry.metainfo or TOKENS)
        self.audio, self.metainfo, self.tokens = (opened.pop(n, None) for n in (AUDIO, entry.metainfo, TOKENS))
        self.others: dict[str, IndexedFile] = renamed(opened, names)
        first, *rest = entry.names
        for name, file in zip(rest, self.files[1:], strict=True):
            if len(file) != len(self):
                raise ListError(
                    f"{self.path}: {first}.idx has {len(self)} utterances, {name}.idx {len(file)}; they do not belong "
                    "together: fetch both again, or write the metadata again (uio_pipes.prep.metainfo)"
                )
        if self.tokens is not None and self.tokens.dtype.kind not in "iu":
            raise ListError(
                f"{self.path}/{TOKENS}.idx: ids of tokens are integers, not {self.tokens.dtype}: write anew"
            )
        self.far = is_local(self.path) is None

    def __len__(self) -> int:
        return len(self.files[0])

    def fields(self, number: int, fetch: Fetch | None = None) -> dict[str, Any]:
        """Return the metadata of utterance ``number``, its tokens as ``label``, and its audio as ``wav`` and other
        modalities under their names, not read. ``fetch``: keeps what is far. Raises: DataError."""
        return self.parsed(number, _read(self.metainfo, number, fetch), fetch)

    def parsed(self, number: int, data: bytes | None, fetch: Fetch | None = None) -> dict[str, Any]:
        """As :meth:`fields`, from ``data``, the bytes of the utterance's metadata, if it has any. Raises: DataError."""
        if self.metainfo is None or data is None:
            fields: dict[str, Any] = {"key": self._place(number)}
        else:
            fields = self._metadata(number, data, self.metainfo)
        if self.audio is not None:
            self._add_audio(fields, number, self.audio)
        else:  # the metadata may say what was made of the audio, which is not read then
            fields.pop("wav", None)
            fields.pop("feat", None)
        if self.tokens is not None:
            fields["label"] = np.frombuffer(_read(self.tokens, number, fetch) or b"", self.tokens.dtype).tolist()
        for name, file in self.others.items():
            fields[name] = StoredRecord(file.data, *file.span(number), file.crc(number))
        return fields

    def _place(self, number: int) -> str:
        return f"{redact(self.path)}:{number}"

    def _metadata(self, number: int, data: bytes, file: IndexedFile) -> dict[str, Any]:
        offset, url = file.span(number)[0], file.data.path
        default = None if self.audio is not None else self._place(number)
        texts = () if self.tokens is not None else self._texts
        return parse_metainfo(data, url, offset, texts, default, self._names)

    def _add_audio(self, fields: dict[str, Any], number: int, audio: IndexedFile) -> None:
        assert self.metainfo is not None
        rate = as_seconds(fields.get("sample_rate"))  # TouchNet reads numbers that are written as text
        if is_number(rate) and rate == int(rate):
            rate = fields["sample_rate"] = int(rate)
        if type(rate) is not int or rate <= 0:
            offset, url = self.metainfo.span(number)[0], self.metainfo.data.path
            message = f"the metadata must give the sample_rate in Hz, not {rate!r}: add it by uio_pipes.prep.metainfo"
            raise DataError("missing_sample_rate", message, url=url, member=fields["key"], offset=offset)
        at, length = audio.span(number)
        if not length:
            message = "the audio has 0 samples; leave it out"
            raise DataError("empty_audio", message, url=audio.data.path, member=fields["key"], offset=at)
        fields["wav"] = Pcm(audio.data, at, length, audio.dtype, rate, audio.crc(number))
        fields.pop("duration", None)  # the index knows better


def _read(file: IndexedFile | None, number: int, fetch: Fetch | None) -> bytes | None:
    if file is None:
        return None
    if fetch is None or file.data.size > WHOLE:
        return file.read(number)
    offset, size = file.span(number)
    data = fetch(file)[offset : offset + size]
    file.check(number, data)
    return data


def parse_metainfo(
    data: bytes,
    url: str,
    offset: int,
    texts: tuple[str, ...] = DEFAULT,
    default: str | None = None,
    names: Renames = None,
) -> dict[str, Any]:
    """Parse the metadata. ``texts``: fields of which at least one must be there; ``default``: the key of an entry that
    has none; ``names``: our names of fields, with those in the metadata.

    Raises: DataError ``bad_line``, ``missing_key``, ``missing_text``, ``bad_segment``.
    """
    try:
        parsed: Any = parse_json(data)
        if not isinstance(parsed, dict):
            raise ValueError(f"no object, but {data[:40]!r}")
    except ValueError as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=url, offset=offset) from error
    fields: dict[str, Any] = renamed(parsed, names) if names else parsed
    if not (type(fields.get("key")) is str and type(fields.get("txt")) is str and fields["key"]):
        numbers_as_text(fields, "key", *(texts or DEFAULT))
        if default is not None:
            fields.setdefault("key", default)
        known = bool(fields.get("key")) and isinstance(fields["key"], str)
        if not known or (texts and not any(isinstance(nested(fields, name), str) for name in texts)):
            reason, what = ("missing_text", " or ".join(texts)) if known else ("missing_key", "key")
            remedy = f"; {TEXTLESS.replace('text', 'texts', 1)}" if known else ""
            message = f"the metadata has no {what}: write it again (uio_pipes.prep.metainfo){remedy}"
            raise DataError(reason, message, url=url, member=str(fields.get("key", "")), offset=offset)
    if "start" in fields or "end" in fields:
        check_segment(fields, url, fields["key"])
    return fields
