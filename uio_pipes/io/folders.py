"""Folders whose files are written completely or not at all, locally or through fsspec."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import fsspec

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import folder_of
from uio_pipes.io.files import atomic_path, naming, read_bytes
from uio_pipes.io.opening import is_local

_USUAL = ("http", "https", "s3", "oss", "gs")


class Folder:
    """A folder by path or URL. Local files are written beside their place and moved into it; remote ones are uploaded
    whole (object stores show an object only when it is complete)."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url).rstrip("/") or "/"
        path = is_local(self.url)
        self.path = None if path is None else Path(path)
        self._fs: Any = None
        self._root = ""
        if self.path is None:
            self._fs, self._root = _filesystem(self.url)

    def join(self, name: str) -> str:
        """Return the path or URL of a file in it."""
        return f"{self.url}/{name}" if self.path is None else str(self.path / name)

    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of all files below it, by their relative names."""
        if self.path is not None:
            return dict(_sizes(self.path, "", set())) if self.path.is_dir() else {}
        with self._reached():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
        return {name[len(self._root) :].lstrip("/"): int(info["size"] or 0) for name, info in found.items()}

    def read(self, names: list[str]) -> list[bytes]:
        """Return the contents of files. Raises: FileNotFoundError for one that is missing."""
        if self.path is not None:
            return [read_bytes(self.path / name) for name in names]
        with self._reached():
            paths = [f"{self._root}/{name}" for name in names]
            found: dict[str, bytes] = self._fs.cat(paths) if paths else {}  # a dict, as a list is given
            return [found[path] for path in paths]

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        if self.path is not None:
            return (self.path / name).is_file()
        with self._reached():
            self._fs.invalidate_cache()
            return bool(self._fs.exists(f"{self._root}/{name}"))

    def write(self, name: str, data: bytes, mark: str = "") -> None:
        """Write one file; ``mark`` as of :meth:`staged`."""
        with self.staged(name, mark) as temporary:
            temporary.write_bytes(data)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        if self.path is not None:
            (self.path / name).unlink(missing_ok=True)
        elif self.exists(name):
            with self._reached():
                self._fs.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def staged(self, name: str, mark: str = "") -> Iterator[Path]:
        """Give a local path to write to; it becomes ``name`` when the block ends without an error. ``mark``: the owner
        in ``.NAME.MARK.PID.part``, which is left if the process is killed."""
        if self.path is None:
            with tempfile.TemporaryDirectory(prefix="uio-") as scratch:
                temporary = Path(scratch) / "file"
                with naming(temporary):
                    yield temporary
                with self._reached():
                    self._fs.put_file(str(temporary), f"{self._root}/{name}")
            return
        place = self.path / name
        with atomic_path(place, f".{place.name}.{mark}.{os.getpid()}.part") as temporary:
            yield temporary

    @contextlib.contextmanager
    def staged_folder(self, name: str, mark: str) -> Iterator[Path]:
        """Give a local folder to write to; its files are moved to the folder ``name`` when the block ends without an
        error, those that end in .idx last."""
        if self.path is None:
            with tempfile.TemporaryDirectory(prefix="uio-") as scratch:
                with naming(Path(scratch)):
                    yield Path(scratch)
                for path in _indexes_last(Path(scratch)):
                    with self._reached():
                        self._fs.put_file(str(path), f"{self._root}/{name}/{path.name}")
            return
        place = self.path / name
        temporary = place.with_name(f".{place.name}.{mark}.{os.getpid()}.part")
        temporary.mkdir(parents=True)
        try:
            with naming(place):
                yield temporary
            place.mkdir(exist_ok=True)
            for path in _indexes_last(temporary):
                os.replace(path, place / path.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def remove_folder(self, name: str) -> None:
        """Remove a folder if it exists."""
        if self.path is not None:
            shutil.rmtree(self.path / name, ignore_errors=True)
            return
        with self._reached(), contextlib.suppress(FileNotFoundError):
            self._fs.rm(f"{self._root}/{name}", recursive=True)

    def clean(self, mark: str) -> None:
        """Remove the files that a killed process with this ``mark`` left."""
        if self.path is not None:
            for leftover in self.path.rglob(f".*.{mark}.*.part"):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except NotImplementedError as error:
            raise ListError(
                f"{self.url} cannot be written to: name a folder, or a URL as s3://bucket/folder"
            ) from error
        except Exception as error:  # each fsspec backend raises classes of its own
            reason = f"{type(error).__name__}: {error}"
            remedy = "check the URL, the connection and the credentials"
            raise ListError(f"{self.url} cannot be used: {reason}; {remedy}") from error


def _indexes_last(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: (path.suffix == ".idx", path.name))


def write_to(url: str | os.PathLike[str], data: bytes) -> None:
    """Write one file by path or URL, completely or not at all."""
    parent, _, name = os.fspath(url).rpartition("/")
    Folder(parent or ("/" if os.fspath(url).startswith("/") else ".")).write(name, data)


def entry_of(place: str, listed: str) -> str:
    """Return how the list ``listed`` names the file or folder ``place``, which is there: so that it is found from any
    working directory. A relative path becomes one that starts at the list's folder, if it lies in it or beside it, and
    an absolute one otherwise. What is absolute, or a URL, stays."""
    folder = is_local(folder_of(listed))
    if "://" in place or os.path.isabs(place):
        return place
    if folder is not None:
        near = os.path.relpath(place, folder or ".")
        found = os.path.normpath(os.path.join(os.path.realpath(folder), near))  # a link may lead elsewhere
        if not near.startswith(("../..", "~", "{", "#")) and os.path.exists(found) and os.path.samefile(found, place):
            return near
    return os.path.realpath(place)


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ListError(f"{url}: a package for this protocol is not installed: {error}") from error
    except ValueError as error:
        raise ListError(f"{url}: {error}{meant(url)}") from error
    return filesystem, str(root).rstrip("/")


def meant(url: str) -> str:
    """Return ``; is s3:// meant?``, or the usual protocols, for one that fsspec does not know; else ``""``."""
    protocol, separator, _ = url.partition("://")
    known = fsspec.available_protocols()
    if not separator or protocol in known:
        return ""
    found = get_close_matches(protocol, known, 1) or get_close_matches(protocol, _USUAL, 1, 0.5)
    return f"; is {found[0]}:// meant?" if found else f"; usual are {', '.join(f'{one}://' for one in _USUAL)}"


def near(url: str) -> str:
    """Return ``; is data/shards.list meant?`` with the name nearest to a missing local path, or ``""``."""
    path = is_local(url)
    if path is None:
        return ""
    parent, name = os.path.split(path.rstrip("/"))
    while parent and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    try:
        found = get_close_matches(name, os.listdir(parent or "."), 1)
    except OSError:
        return ""
    return f"; is {os.path.join(parent, found[0])} meant?" if found else ""


def _sizes(folder: Path, prefix: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """Yield names and sizes of the files in a folder and below it. ``seen``: folders, as a link may lead back."""
    status = folder.stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):  # another job may be writing it, and move it any time
                continue
            if entry.is_dir():
                yield from _sizes(Path(entry.path), f"{prefix}{entry.name}/", seen)
            elif entry.is_file():
                with contextlib.suppress(FileNotFoundError):  # another process has removed it just now
                    yield prefix + entry.name, entry.stat().st_size
