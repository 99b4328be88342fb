"""Finds the state of a loader in a file, without executing anything in it: JSON, or ``torch.load`` of weights only."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, BinaryIO

from uio_pipes.base.errors import StateError
from uio_pipes.base.json_text import parse_json
from uio_pipes.io.opening import is_local, open_binary

DEPTH = 12  # levels of dicts that are searched
MOST = 1 << 28  # bytes of a JSON file
_REFUSED = re.compile(r"(?:GLOBAL|class|function|type) (?:<class ')?([\w.]*\w)")


def find_state(path: str) -> tuple[str, dict[str, str]]:
    """Find the state in a file of ``torch.save`` or ``json.dump``; return the path of keys to it, and the state.

    Raises: StateError if there is none, if there are several, or if the file cannot be read safely.
    """
    found = list(_states(_read(path), (), DEPTH))
    if not found:
        raise StateError(
            f"{path} holds no state of a uio_pipes loader: no dict with meta and lane_000000, … under any key. Save "
            "loader.state_dict() (or uio.gather_state(loader)) in the checkpoint"
        )
    if len(found) > 1:
        names = ", ".join(".".join(keys) or "(top)" for keys, _ in found)
        raise StateError(f"{path} holds several states ({names}): save the one that you mean in a file of its own")
    keys, state = found[0]
    return ".".join(keys), state


def find_states(paths: Sequence[str]) -> list[dict[str, str]]:
    """Find the states in several files. Of a local folder, all files below it are taken that hold one.

    Raises: StateError as :func:`find_state`, or if a folder holds none.
    """
    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(find_state(path)[1])
            continue
        before = len(found)
        for file in sorted(Path(path).rglob("*")):
            if file.is_file():
                with contextlib.suppress(StateError):
                    found.append(find_state(str(file))[1])
        if len(found) == before:
            raise StateError(f"no file in the folder {path} holds the state of a uio_pipes loader")
    return found


def _read(path: str) -> Any:
    if os.path.isdir(path):
        raise StateError(f"{path} is a folder; name the checkpoint file in it")
    with _open(path) as file:
        head = file.read(64)
        file.seek(0)
        if not head.strip():
            raise StateError(f"{path} is empty: the checkpoint was not written completely; use an older one")
        read = _read_json if head.lstrip()[:1] in (b"{", b"[") else _read_torch
        return read(path, file)


def _open(path: str) -> BinaryIO:
    """Open a file for reading and seeking; a remote one is read as a whole."""
    local = is_local(path)
    if local is not None:
        return open(local, "rb")
    with open_binary(path) as stream:
        return io.BytesIO(stream.read())


def _read_torch(path: str, file: BinaryIO) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings say the same as the message below
            mapped = isinstance(file, io.BufferedReader) and zipfile.is_zipfile(file)  # tensors are not read then
            file.seek(0)
            return torch.load(path if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        found = _REFUSED.search(str(error))
        what = f" (weights_only refused {found[1]})" if found else ", or is not a file of torch.save"
        raise StateError(
            f"{path} holds more than tensors, numbers and strings{what}; it is not loaded, as it could run code. "
            "Save the loader's state in a file of its own"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, OSError) as error:
        raise StateError(
            f"{path} is neither JSON nor an intact file of torch.save with weights only ({_first_sentence(error)}); "
            "use an older checkpoint, or save the loader's state in a file of its own"
        ) from error


def _first_sentence(error: Exception) -> str:
    return shorten(str(error).split("\n")[0].partition(". ")[0], 120, placeholder=" …")


def _read_json(path: str, file: BinaryIO) -> Any:
    if (size := file.seek(0, os.SEEK_END)) > MOST:
        raise StateError(f"{path} has {size} bytes: no state of a loader is that large")
    file.seek(0)
    try:
        return parse_json(file.read())
    except ValueError as error:
        raise StateError(f"{path} is damaged JSON ({str(error)[:120]}); use an older checkpoint") from error


def _states(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    if not isinstance(value, Mapping) or not depth:
        return
    if isinstance(value.get("meta"), str) and all(isinstance(k, str) for k in value):
        if any(k.startswith("lane_") for k in value):
            yield keys, {k: v for k, v in value.items() if k == "meta" or k.startswith("lane_")}
        return
    for key, inner in value.items():
        yield from _states(inner, (*keys, str(key)), depth - 1)
