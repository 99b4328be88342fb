"""The folders of TouchDatasets, as data lists name them: audio without headers, utterances' JSON, tokens, other
modalities.

A line is ``FOLDER audio+metainfo``; other words name other pairs, ``NAME.bin`` and ``NAME.idx``. ``metainfo`` alone is
text, ``texttoken`` alone the ids of tokens, ``audio+video+metainfo`` has the bytes of a video file beside the audio.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.containers import check_channel, check_claims, check_finite, check_longest
from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.recording import Recording
from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import inside, is_named, redact
from uio_pipes.formats.expressions import lookup
from uio_pipes.formats.lists.json_lines import as_seconds, check_segment, numbers_as_text
from uio_pipes.formats.lists.table import ItemTable, expand
from uio_pipes.formats.naming import LOOKED_AT, TEXTLESS, Renames, renamed
from uio_pipes.formats.touchdataset import DTYPES, IndexedFile, StoredRecord
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local
from uio_pipes.io.references import AudioInfo, RandomFile, Ref
from uio_pipes.sources.kaldi.tables import is_folder
from uio_pipes.sources.seen import Seen, exists

if TYPE_CHECKING:
    import torch


LISTS = (".list", ".lst", ".txt")  # a URL that ends so is a data list; any other one is a folder
AUDIO, METAINFO, TOKENS = "audio", "metainfo", "texttoken"
_OURS = frozenset(["key", "txt", "wav", "feat", "label", "start", "end", "duration", "sample_rate"])


class FolderEntry(NamedTuple):
    """A folder; the name of its metadata, "" if it has none; the names of the other pairs that are read."""

    folder: str
    metainfo: str
    others: tuple[str, ...] = (AUDIO,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all pairs, audio first, as a data list has them."""
        audio = tuple(name for name in self.others if name == AUDIO)
        rest = tuple(name for name in self.others if name != AUDIO)
        return (*audio, *((self.metainfo,) if self.metainfo else ()), *rest)


def folders(entries: tuple[str, ...], metainfo: str | None, access: Access) -> Iterator[FolderEntry]:
    """Yield each folder with what is read of it; ``metainfo``: another name of the metadata. Raises: ListError."""
    for name in (name for entry in entries for name in expand(entry, access)):
        path = is_local(name)
        if names_folder(name) and not os.path.exists(path or ""):
            yield parse_entry(name, repr(name), metainfo)
        elif os.path.isfile(path or "") or (path is None and is_named(name, LISTS)):
            table = ItemTable((name,), access)
            yield from (parse_entry(table[i], table.place(i), metainfo) for i in range(len(table)))
        elif path is not None and not os.path.isdir(path):
            raise ListError(f"there is neither a folder nor a data list {name}; a TouchDataset is made by: uio convert")
        else:
            yield unnamed(name, metainfo)


def unnamed(folder: str, metainfo: str | None = None) -> FolderEntry:
    """Return what is read of a folder by default: audio and metadata, or in a local folder without audio
    the metadata or the tokens that are there."""
    pairs = pairs_of(folder)
    if pairs and not {f"{AUDIO}.bin", f"{AUDIO}.idx"} & set(os.listdir(is_local(folder) or ".")):
        if (metainfo or METAINFO) in pairs:
            return FolderEntry(folder, metainfo or METAINFO, ())
        if TOKENS in pairs:
            return FolderEntry(folder, "", (TOKENS,))
    return FolderEntry(folder, metainfo or METAINFO)


def with_all_pairs(folder: str) -> str:
    """Return the line of a data list that names all pairs in a local folder, of the metadata only the usual one."""
    entry = unnamed(folder)
    rest = (n for n in pairs_of(folder) if n not in entry.names and n not in _OURS and not n.startswith(METAINFO))
    return f"{folder} {'+'.join((*entry.names, *rest))}"


def pairs_of(folder: str) -> list[str]:
    """Return the names of all pairs of files in a local folder; of remote ones nothing is known."""
    path = is_local(folder)
    names = set(os.listdir(path)) if path is not None and os.path.isdir(path) else set()
    pairs = sorted(name.removesuffix(".idx") for name in names if name.endswith(".idx") and not name.startswith("."))
    return [name for name in pairs if f"{name}.bin" in names]


def names_folder(line: str) -> bool:
    """Return whether a line names the folder of a TouchDataset with the pairs that are read as its last word."""
    return not line.startswith("{") and "." not in (word := _split(line)[1]) and bool(word)


def is_touchdataset(seen: Seen) -> bool:
    """Return whether this is the folder of a TouchDataset, a line that names one, or a list of such lines.

    Raises: ListError if it cannot be read.
    """
    if seen.is_folder:
        return any(f"{name}.{end}" in seen.names for name in (METAINFO, TOKENS) for end in ("idx", "bin"))
    return names_folder(seen.path) or any(map(names_folder, seen.entries[:1]))


def names_touchdataset(url: str) -> bool:
    """Return whether this is the folder of a TouchDataset, which may be a remote one, or a list of such."""
    try:
        if is_local(url) is None and is_folder(url):
            return any(exists(f"{url.rstrip('/')}/{name}.idx") for name in (METAINFO, TOKENS))
        return is_touchdataset(Seen(url))
    except ListError:  # it cannot be found out, and who reads it as something else has a better message
        return False


def _split(line: str) -> tuple[str, str]:
    """Return the folder, and the last word if it names pairs of files."""
    folder, *words = line.rsplit(None, 1)
    word = words[0] if words else ""
    named = "/" not in word and ("+" in word or word in (AUDIO, TOKENS) or word.startswith(METAINFO))
    return (folder, word) if named or (word and word in pairs_of(folder)) else (line.strip(), "")


def parse_entry(line: str, place: str, metainfo: str | None = None) -> FolderEntry:
    """Parse a line of a data list, ``FOLDER NAME+NAME`` or only ``FOLDER``. Raises: ListError.

    The metadata is the pair whose name begins with ``metainfo``; of ``audio+NAME`` the second, whatever its name.
    """
    folder, word = _split(line)
    if not word:
        if line.startswith("{") or is_named(line, ".tar"):
            raise ListError(f"{place} is not a folder, but {line[:80]!r}; give a list of `FOLDER audio+metainfo` lines")
        return unnamed(folder, metainfo)
    names = word.split("+")
    if not all(names) or len(set(names)) < len(names):
        raise ListError(f"{place} has {word!r}; it must list pairs of files, each once, as in audio+metainfo")
    found = [name for name in names if name.startswith(METAINFO)]
    if not found and len(names) == 2 and names[0] == AUDIO and names[1] != TOKENS:
        found = names[1:]
    others = tuple(name for name in names if name not in found)
    if len(found) > 1 or (not found and (AUDIO in names or TOKENS not in names)):
        raise ListError(
            f"{place} has {word!r}; exactly one of the names must be metadata (metainfo, metainfo_v2, …), "
            f"unless it is texttoken without audio: try {'+'.join((*others, METAINFO))}"
        )
    if wrong := _OURS.intersection(others):
        raise ListError(f"{place} says {word!r}; {min(wrong)!r} is a field of its own: give the files another name")
    return FolderEntry(folder, (metainfo or found[0]) if found else "", others)


class Pcm(StoredRecord, Recording):
    """Mono samples of ``dtype`` at an offset of a file. Integers are PCM of their width, floats are in [-1, 1].

    Raises: DataError ``bad_audio`` for a rate that no audio has.
    """

    __slots__ = ("dtype",)
    info: AudioInfo

    early: ClassVar[bool] = True

    def __init__(
        self, file: RandomFile, offset: int, size: int, dtype: np.dtype[Any], sample_rate: int, crc: int | None = None
    ) -> None:
        check_claims(sample_rate)
        self.file, self.offset, self.size, self.head, self.crc, self.dtype = file, offset, size, b"", crc, dtype
        self.info = AudioInfo(size // dtype.itemsize, sample_rate, 1)

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        """Return the seconds from ``start`` to ``end`` as float32 (1, S), and the rate. Only their bytes are read.

        Raises: DataError as ``decode``.
        """
        import torch  # not before: dictionaries are made of metadata alone

        total, rate, _ = self.info
        whole = start is None and end is None and total > 0
        first, last = (0, total) if whole else sample_range(total, rate, start, end)
        check_longest(last - first, rate)
        check_channel(channel, 1)
        width = self.dtype.itemsize
        if whole and self.crc is not None:
            data = self._compared(self.file.read(self.offset, self.size))
        else:
            self.compare()
            data = self.file.read(self.offset + first * width, (last - first) * width)
        samples = _to_float(np.frombuffer(data, self.dtype))
        if self.dtype.kind == "f":
            check_finite(samples)
        return torch.from_numpy(samples[None]), rate

    def reading(self, bytes_: Ref) -> Pcm:
        return Pcm(_Fetched(bytes_), self.offset, self.size, self.dtype, self.info.sample_rate, self.crc)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or being fetched."""
        return self.size if isinstance(self.file, _Fetched) else 0

    def read(self) -> bytes:
        """Return the bytes of a wav file, for functions that need an audio file."""
        data, dtype = self._compared(self.read_at(0, self.size)), self.dtype
        if dtype.str not in _WAV:
            data, dtype = _to_float(np.frombuffer(data, dtype)).tobytes(), np.dtype("<f4")
        rate, width = self.info.sample_rate, dtype.itemsize
        form = struct.pack("<HHIIHH", _WAV[dtype.str], 1, rate, rate * width, width, 8 * width)
        head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
        return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


class _Fetched:
    """Bytes that were fetched early, in place of the file that they came from."""

    __slots__ = ("path", "ref", "size", "stamp")

    def __init__(self, ref: Ref) -> None:
        self.ref, self.path, self.size, self.stamp = ref, ref.file.path, ref.file.size, ref.file.stamp

    def read(self, offset: int, size: int) -> bytes:
        return self.ref.read_at(offset - self.ref.offset, size)

    read_upto = read


_WAV = {"|u1": 1, "<i2": 1, "<i4": 1, "<f4": 3, "<f8": 3}  # format tags


def _to_float(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert to float32 in new memory. (Two passes within the cache: NumPy's mixed multiplication takes longer.)"""
    out: npt.NDArray[np.float32] = samples.astype(np.float32)
    scale, offset = _SCALES[samples.dtype.str]
    if offset:
        out -= offset
    if scale != 1:
        out *= scale
    return out


def _scale(dtype: np.dtype[Any]) -> tuple[np.float32, np.float32]:
    half = 2.0 ** (8 * dtype.itemsize - 1)
    scale = 1 / half if dtype.kind in "iu" else 1.0
    return np.float32(scale), np.float32(half if dtype.kind == "u" else 0)


_SCALES = {dtype.str: _scale(dtype) for dtype in DTYPES.values()}

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
        self.names = entry.names
        self.path, self._texts, self._names = entry.folder.rstrip("/"), texts, names
        opened = {name: IndexedFile(inside(self.path, name), access) for name in entry.names}
        self.files = list(opened.values())
        self.name = inside(self.path, entry.metainfo or TOKENS)
        self.audio, self.metainfo, self.tokens = (opened.pop(n, None) for n in (AUDIO, entry.metainfo, TOKENS))
        self.others: dict[str, IndexedFile] = {
            name: file for name, file in renamed(opened, names).items() if isinstance(file, IndexedFile)
        }
        first, *rest = entry.names
        for name, file in zip(rest, self.files[1:], strict=True):
            if len(file) != len(self):
                raise ListError(
                    f"{self.path}: {first}.idx has {len(self)} utterances, {name}.idx {len(file)}; they do not belong "
                    "together: fetch both again, or write the metadata again (uio_pipes.tools.data.metainfo)"
                )
        if self.tokens is not None and self.tokens.dtype.kind not in "iu":
            raise ListError(
                f"{self.path}/{TOKENS}.idx: ids of tokens are integers, not {self.tokens.dtype}: write them again"
            )
        self.far = is_local(self.path) is None

    def __len__(self) -> int:
        return len(self.files[0])

    def first(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of the first utterances, as far as they can be read."""
        for number in range(min(LOOKED_AT, len(self))):
            with suppress(DataError, ValueError):
                data = b"{}" if self.metainfo is None else self.metainfo.read(number)
                yield {"key": "", **dict.fromkeys(self.names, ""), **parse_json(data)}

    def fields(self, number: int, fetch: Fetch | None = None) -> dict[str, Any]:
        """Return the metadata of utterance ``number``, its tokens as ``label``, and its audio as ``wav`` and other
        modalities under their names, not read. ``fetch``: keeps what is far. Raises: DataError."""
        return self.parsed(number, _read(self.metainfo, number, fetch), fetch)

    def parsed(self, number: int, data: bytes | None, fetch: Fetch | None = None) -> dict[str, Any]:
        """Like :meth:`fields`, from ``data``, the bytes of the utterance's metadata, if any. Raises: DataError."""
        if self.metainfo is None or data is None:
            fields: dict[str, Any] = {"key": self._place(number)}
        else:
            offset, url = self.metainfo.span(number)[0], self.metainfo.data.path
            default = None if self.audio is not None else self._place(number)
            texts = () if self.tokens is not None else self._texts
            fields = parse_metainfo(data, url, offset, texts, default, self._names)
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

    def _add_audio(self, fields: dict[str, Any], number: int, audio: IndexedFile) -> None:
        assert self.metainfo is not None
        rate = as_seconds(fields.get("sample_rate"))  # TouchNet reads numbers that are written as text
        if is_number(rate) and rate == int(rate):
            rate = fields["sample_rate"] = int(rate)
        if type(rate) is not int or rate <= 0:
            offset, url = self.metainfo.span(number)[0], self.metainfo.data.path
            message = (
                f"the metadata must give the sample_rate in Hz, not {rate!r}; uio_pipes.tools.data.metainfo adds it"
            )
            raise DataError("missing_sample_rate", message, url=url, member=fields["key"], offset=offset)
        at, length = audio.span(number)
        if not length:
            message = "the audio has 0 samples; remove it"
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
            raise ValueError(f"expected an object, not {data[:40]!r}")
    except ValueError as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=url, offset=offset) from error
    fields: dict[str, Any] = renamed(parsed, names) if names else parsed
    if not (type(fields.get("key")) is str and type(fields.get("txt")) is str and fields["key"]):
        numbers_as_text(fields, "key", *(texts or DEFAULT))
        if default is not None:
            fields.setdefault("key", default)
        known = bool(fields.get("key")) and isinstance(fields["key"], str)
        if not known or (texts and not any(isinstance(lookup(fields, name), str) for name in texts)):
            reason, what = ("missing_text", " or ".join(texts)) if known else ("missing_key", "key")
            remedy = f"; {TEXTLESS.replace('text', 'texts', 1)}" if known else ""
            message = f"the metadata has no {what}: write it again (uio_pipes.tools.data.metainfo){remedy}"
            raise DataError(reason, message, url=url, member=str(fields.get("key", "")), offset=offset)
    if "start" in fields or "end" in fields:
        check_segment(fields, url, fields["key"])
    return fields
