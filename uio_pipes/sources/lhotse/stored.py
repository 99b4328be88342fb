"""Arrays and features by their Lhotse manifests: NumPy and lilcom files, chunks of lilcom archives, Kaldi's arks."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import bytes_in, kept
from uio_pipes.base.urls import is_named
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary, open_file
from uio_pipes.io.references import Payload, Ref
from uio_pipes.sources.kaldi.ark import ArkMatrix, parse_pointer
from uio_pipes.sources.kaldi.tables import KaldiLines
from uio_pipes.sources.lhotse.recording import from_base64
from uio_pipes.sources.lhotse.transforms import frames_in, steps_in

AnyArray = npt.NDArray[Any]
RowRange = tuple[int, int | None]  # first, and the one after the last; None: to the end
RowLoader = Callable[[RowRange], AnyArray]
Unpack = Callable[[bytes], AnyArray]
CHUNK = 500  # rows in a chunk of lilcom_chunky, as Lhotse fixes it


class CutFeatures(StoredFeatures):
    """The features of a cut, as ``load`` reads them: ``wanted`` frames from ``first`` on.

    Like Lhotse, it repeats the last frame where only that one is missing.
    """

    __slots__ = ("_load", "first", "stored", "wanted")

    def __init__(self, cut: Mapping[str, Any], manifest: Mapping[str, Any], load: RowLoader) -> None:
        shift, rate = float(manifest["frame_shift"]), int(manifest["sampling_rate"])
        self.first = frames_in(max(0.0, float(cut.get("start") or 0) - float(manifest["start"])), shift, rate)
        self.stored = int(manifest["num_frames"]) - self.first
        duration = cut.get("duration")
        self.wanted = self.stored if duration is None else frames_in(duration, shift, rate)
        if self.wanted <= 0 or self.stored <= 0:
            raise DataError(
                "bad_features", f"the cut begins after the last of its {manifest['num_frames']} frames: write it again"
            )
        self._load = load

    @property
    def frames(self) -> int:
        return self.wanted if self.stored >= self.wanted - 1 else self.stored

    def load(self) -> AnyArray:
        found = self._load((self.first, self.first + self.wanted))
        if len(found) < min(self.wanted, self.stored):
            message = f"{len(found)} frames are stored, the manifest says {self.stored}: compute the features again"
            raise DataError("bad_features", message)
        return np.concatenate([found, found[-1:]]) if len(found) == self.wanted - 1 else found


class StoredArray(Ref):
    """An array that is read when the field is accessed: a custom field of a cut, such as a speaker embedding."""

    __slots__ = ("_load",)

    def __init__(self, load: RowLoader) -> None:
        super().__init__(None, 0, 0)  # type: ignore[arg-type]
        self._load = load

    def read(self) -> Any:
        """Return the array. Raises: DataError."""
        return self._load((0, None))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class TimedArray(StoredArray):
    """An array along time, such as an alignment of frames. ``span``: what the utterance has of it, in seconds."""

    __slots__ = ("manifest", "span")

    def __init__(self, load: RowLoader, manifest: Mapping[str, Any], span: tuple[float, float]) -> None:
        super().__init__(load)
        self.manifest, self.span = manifest, span

    def between(self, start: float, end: float) -> TimedArray:
        return TimedArray(self._load, self.manifest, (start, end))

    def read(self) -> Any:
        shift, axis = self.manifest["frame_shift"], int(self.manifest["temporal_dim"])
        begin, end = self.span
        first = steps_in(max(0.0, begin - self.manifest["start"]), shift)
        last = first + steps_in(end - begin, shift)
        if axis == 0:
            return self._load((first, last))
        return self._load((0, None))[(slice(None),) * axis + (slice(first, last),)]


def loader(manifest: Mapping[str, Any], access: Access) -> RowLoader:
    """Return a reader of the rows of an array or of features. Raises: DataError ``unsupported_features``."""
    kind = manifest["storage_type"]
    if kind not in _READERS:
        if kind == "shar":
            message = "the data are in a Shar beside this file: read the folder by from_lhotse_shar"
            raise DataError("unsupported_cut", message)
        known = ", ".join(_READERS)
        message = f"stored as {kind}; {known} can be read: copy them by Lhotse (copy_feats with LilcomChunkyWriter)"
        raise DataError("unsupported_features", message)
    read, path, key = _READERS[kind], manifest.get("storage_path") or "", manifest["storage_key"]
    return lambda rows: _checked(lambda: read(path, key, rows, access), f"{path}/{key}" if path else kind)


def member_loader(payload: Payload, suffix: str) -> RowLoader:
    """Return a reader of the rows of a member of a Shar. Raises: DataError ``bad_features``."""
    if suffix not in ("npy", "llc"):
        raise DataError("bad_features", f"features in the form .{suffix} are not supported: save lilcom or numpy")
    unpack = _npy if suffix == "npy" else _unpacked

    def read(rows: RowRange) -> AnyArray:
        data = payload.read() if isinstance(payload, Ref) else payload
        return _checked(lambda: unpack(data)[slice(*rows)], "")

    return read


def _checked(read: Callable[[], AnyArray], place: str) -> AnyArray:
    try:
        return read()
    except (ValueError, RuntimeError, EOFError, IndexError, MemoryError, OSError) as error:
        raise DataError("bad_features", f"cannot be read: {error}", url=place) from error


def _npy(data: bytes) -> AnyArray:
    found: AnyArray = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def _unpacked(data: bytes) -> AnyArray:
    try:
        import lilcom
    except ImportError as error:
        message = "packed by lilcom: pip install lilcom, or have Lhotse write numpy"
        raise DataError("missing_codec", message) from error
    return np.asarray(lilcom.decompress(data))


def _file(unpack: Unpack, path: str, key: str, rows: RowRange, access: Access) -> AnyArray:
    with open_binary(f"{path.rstrip('/')}/{key.lstrip('/')}", access) as file:
        return unpack(file.read())[slice(*rows)]


def _memory(unpack: Unpack, path: str, key: str, rows: RowRange, access: Access) -> AnyArray:
    return unpack(from_base64(key))[slice(*rows)]


def _lilcom_chunky(path: str, key: str, rows: RowRange, access: Access) -> AnyArray:
    """The key is ``offset,size,size,…`` of the chunks. Only those that have ``rows`` are read."""
    first, last = rows
    chunks = list(pairwise(accumulate(map(int, key.split(",")))))
    begin, file = first // CHUNK, open_file(path, access)
    wanted = chunks[begin : None if last is None else -(-last // CHUNK)]
    if not wanted:
        raise ValueError(f"rows from {first} on are needed, but there are {len(chunks)} chunks of {CHUNK}")
    found = np.concatenate([_unpacked(file.read(at, end - at)) for at, end in wanted])
    return found[first - begin * CHUNK : None if last is None else last - begin * CHUNK]


def _kaldiio(path: str, key: str, rows: RowRange, access: Access) -> AnyArray:
    """The path is an scp whose line ``key`` points into an ark, or such a pointer itself."""
    if is_named(path, ".scp"):
        table = _table(path, access)
        if (line := table.number_of(key.encode())) < 0:
            raise ValueError(f"the scp has no line {key!r}")
        path = table.value(line)
    pointer = parse_pointer(path)
    return ArkMatrix(open_file(pointer.path, access), pointer).load()[slice(*rows)]


@kept("tables of features", 8, bytes_in)
def _table(path: str, access: Access) -> KaldiLines:
    return KaldiLines([path], 1, access=access)


_READERS: dict[str, Callable[[str, str, RowRange, Access], AnyArray]] = {
    "numpy_files": partial(_file, _npy),
    "lilcom_files": partial(_file, _unpacked),
    "lilcom_url": partial(_file, _unpacked),
    "lilcom_chunky": _lilcom_chunky,
    "kaldiio": _kaldiio,
    "memory_npy": partial(_memory, _npy),
    "memory_lilcom": partial(_memory, _unpacked),
}
