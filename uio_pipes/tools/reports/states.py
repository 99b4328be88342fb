"""Finds and reads saved loader states."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import warnings
import zipfile
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, BinaryIO

from uio_pipes.audio.containers import sniff
from uio_pipes.base.errors import StateError
from uio_pipes.base.hashing import unpack
from uio_pipes.base.json_text import parse_json
from uio_pipes.core.statistics import Stats
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.run.state import LaneState, Meta, lanes_in, read_lane, read_meta

DEPTH = 12  # levels of dicts that are searched
MOST = 1 << 28  # bytes of a JSON file
REMEDY = "Save loader.state_dict() (or uio.gather_state(loader)) in the checkpoint"
_REFUSED = re.compile(r"(?:GLOBAL|class|function|type) (?:<class ')?([\w.]*\w)")


def find_state(path: str) -> tuple[str, dict[str, str]]:
    """Find the state in a file of ``torch.save`` or ``json.dump``; return the path of keys to it, and the state.

    Raises: StateError if there is none, if there are several, or if the file cannot be read safely.
    """
    found = list(_states(_read(path), (), DEPTH))
    if not found:
        raise StateError(
            f"{path} holds no state of a uio_pipes loader: no dict with meta and lane_000000, … under any key. {REMEDY}"
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
        head = file.read(512)
        file.seek(0)
        if not head.strip():
            raise StateError(f"{path} is empty: the checkpoint was not written completely; use an older one")
        if head.lstrip()[:1] in (b"{", b"["):
            if (size := file.seek(0, os.SEEK_END)) > MOST:
                raise StateError(f"{path} has {size} bytes: no state of a loader is that large")
            file.seek(0)
            text = file.read()
            try:
                return parse_json(text, halves=True)
            except ValueError as error:
                with contextlib.suppress(ValueError):
                    parse_json(text.split(b"\n", 1)[0], halves=True)  # a state has no line end
                    raise StateError(f"{path} is no state of a loader: it seems to be JSON lines. {REMEDY}") from None
                raise StateError(f"{path} is damaged JSON ({str(error)[:120]}); use an older checkpoint") from error
        if kind := _kind(head):
            raise StateError(f"{path} is no state of a loader: it seems to be {kind}. {REMEDY}")
        return _read_torch(path, file)


def _kind(head: bytes) -> str:
    """Return what a file seems to be by its first bytes, if that can be no checkpoint."""
    if (form := sniff(head)) is not None:
        return f"audio ({form})"
    if head[257:262] == b"ustar":
        return "a tar archive"
    text = getincrementaldecoder("utf-8")("replace").decode(head)
    return "text" if all(c.isprintable() or c.isspace() for c in text) and "\ufffd" not in text else ""


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
        first = shorten(str(error).split("\n")[0].partition(". ")[0], 120, placeholder=" …")
        raise StateError(
            f"{path} is neither JSON nor an intact file of torch.save with weights only ({first}); "
            "use an older checkpoint, or save the loader's state in a file of its own"
        ) from error


def _states(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    if not isinstance(value, Mapping) or not depth:
        return
    if isinstance(value.get("meta"), str) and all(isinstance(k, str) for k in value):
        if any(k.startswith("lane_") for k in value):
            yield keys, {k: v for k, v in value.items() if k == "meta" or k.startswith("lane_")}
        return
    for key, inner in value.items():
        yield from _states(inner, (*keys, str(key)), depth - 1)


@dataclass(frozen=True)
class LaneView:
    """One lane: its position, its counts, and the shard that it has open.

    In a graph with buffers, ``url`` and ``offset`` are those of the oldest utterance that they hold. A state does not
    contain the place up to which they have read since, only the number of utterances.
    """

    lane: int
    k: int
    pass_: int
    done: bool
    stats: Stats
    url: str = ""
    offset: int | None = None
    held: int = 0  # utterances in the last buffer of the graph; a state does not contain those of earlier ones
    since: int = 0  # utterances read since that place, except for those still in earlier buffers
    exhausted: bool = False  # all of the lane has been read


@dataclass(frozen=True)
class StateView:
    """A whole state. ``missing``: lanes that are not in it, as they belong to other ranks."""

    meta: Meta
    lanes: list[LaneView]
    missing: list[int] = field(default_factory=list)

    @property
    def stats(self) -> Stats:
        total = Stats()
        for lane in self.lanes:
            total.add(vars(lane.stats) | {"waited_us": int(lane.stats.waited * 1e6)})
        return total

    @property
    def done(self) -> int:
        return sum(lane.done for lane in self.lanes)

    @property
    def over(self) -> str:
        """Whether the epoch is over, as far as the state says: it may not know that its last batch was the last."""
        whole = self.meta.stream is None and not self.missing
        if self.meta.ended or (whole and self.done == self.meta.lanes):
            return "yes"
        ends = all(lane.done or (lane.exhausted and not lane.held + lane.since) for lane in self.lanes)
        return "yes, or nearly: all has been read, and buffers are empty" if whole and ends else "no"


def view(state: Mapping[str, str]) -> StateView:
    """Read a state. Raises: StateError if it is damaged."""
    meta = read_meta(state)
    present = sorted(lanes_in(state, meta.lanes))
    missing = [lane for lane in range(min(meta.lanes, 1 << 20)) if lane not in set(present)]
    try:
        return StateView(meta, [_lane_view(lane, read_lane(state, lane)) for lane in present], missing)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StateError(f"the state is damaged ({type(error).__name__}: {error}); use an older checkpoint") from error


def _lane_view(number: int, saved: LaneState) -> LaneView:
    stats = Stats()
    stats.add(saved.counts)
    nodes = saved.node_states
    opened = next((n for n in _nested(nodes) if isinstance(n.get("url"), str)), {})
    at = opened.get("at")
    offset = at[0] if isinstance(at, list) and at and isinstance(at[0], int) else None
    buffers = [n for n in _nested(nodes, within=False) if "window" in n]
    return LaneView(
        number, saved.k, saved.pass_, saved.done, stats, opened.get("url", ""), offset,
        held=sum(len(unpack(n["held"])) for n in buffers),
        since=sum(n["window"] for n in _nested(nodes) if "window" in n),
        exhausted=bool(buffers) and all(n["exhausted"] for n in buffers),
    )  # fmt: skip


def _nested(nodes: Any, depth: int = 64, *, within: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the states of nodes, the last node's first; ``within``: also of those before a buffer, which are older."""
    if isinstance(nodes, dict) and depth:
        yield nodes
        if within or "window" not in nodes:
            for value in nodes.values():
                yield from _nested(value, depth - 1, within=within)
    elif isinstance(nodes, list) and depth:
        for value in nodes:
            yield from _nested(value, depth - 1, within=within)
