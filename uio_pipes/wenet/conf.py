"""Reads a ``dataset_conf``: checks keys and values by the table, and fills in defaults."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.wenet.older_keys import NEVER_READ, RENAMED, UNUSED
from uio_pipes.wenet.table import KEYS

logger = logging.getLogger("uio_pipes")

_BLOCKS = {name.split(".")[0] for name in (*KEYS, *RENAMED, *UNUSED) if "." in name}


def read_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every key in the table, given or default. Keys that WeNet never reads are named in the log.

    Raises: PipelineError if a key is unknown, given twice or no longer applied, or has a value of the wrong kind.
    """
    if not isinstance(conf, Mapping):
        raise PipelineError(f"conf must be the dataset_conf block of a WeNet YAML, as a dict, not {conf!r}")
    values = {name: key.default for name, key in KEYS.items()}
    given: dict[str, str] = {}
    for name, value in _flat(conf):
        if name in NEVER_READ:
            if value:
                logger.warning("dataset_conf.%s: %r is ignored, as WeNet does; %s", name, value, NEVER_READ[name])
            continue
        unused = next((u for pattern, u in UNUSED.items() if fnmatchcase(name, pattern)), None)
        if unused is not None:
            if value is not None and value not in unused.allowed:
                raise PipelineError(f"dataset_conf.{name}: {value!r} is not applied any more; {unused.remedy}")
            continue
        target = RENAMED.get(name, name)
        if target not in KEYS:
            raise PipelineError(_unknown(name, conf))
        if target in given:
            raise PipelineError(f"dataset_conf has both {given[target]} and {name}, which mean the same; keep {target}")
        given[target] = name
        kind = KEYS[target].kind
        if not kind.fits(value):
            raise PipelineError(f"dataset_conf.{name} must be {kind.what}, not {value!r}{_hint(value)}")
        values[target] = value
    return values


def _hint(value: object) -> str:
    """Return a hint if ``value`` was meant as a number: for YAML 1.1, 1e-3 is a text."""
    try:
        number = float(value) if isinstance(value, str) and "e" in value.lower() else None
    except ValueError:
        number = None
    return "" if number is None else "; YAML takes it for a text: write it with a point, as in 1.0e-3"


def _flat(conf: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield keys with their blocks (``fbank_conf.dither``), and their values. A known block may be empty."""
    for name, value in conf.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", v) for inner, v in value.items())
            if name not in _BLOCKS and not value:
                yield str(name), value
        elif name not in _BLOCKS:
            yield str(name), value
        elif value is not None:
            inner = [known.split(".")[1] for known in KEYS if known.startswith(f"{name}.")]
            raise PipelineError(f"dataset_conf.{name} must be a block of keys ({', '.join(inner)}), not {value!r}")


def _unknown(name: str, conf: Mapping[str, Any]) -> str:
    if "dataset_conf" in conf:
        return "conf is a whole WeNet YAML; pass its block conf['dataset_conf']"
    likeness = {known: _likeness(name, known) for known in (*KEYS, *RENAMED, *NEVER_READ)}
    best = max(likeness.values())
    nearest = dict.fromkeys(RENAMED.get(known, known) for known, alike in likeness.items() if alike == best)
    return f"dataset_conf has no key {name}; the nearest is {' or '.join(nearest)}"


def _likeness(name: str, known: str) -> float:
    """Return how alike the whole names are, or their keys without the blocks if these are more alike."""
    whole = SequenceMatcher(None, name, known).ratio()
    return max(whole, SequenceMatcher(None, name.split(".")[-1], known.split(".")[-1]).ratio() - 0.05)
