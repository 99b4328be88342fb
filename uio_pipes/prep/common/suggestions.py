"""Suggestions for a mistyped path or URL."""

from __future__ import annotations

import os
from difflib import get_close_matches

import fsspec

from uio_pipes.io.opening import is_local

USUAL = ("http", "https", "s3", "oss", "gs")


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


def meant(url: str) -> str:
    """Return ``; is s3:// meant?``, or the usual protocols, for one that fsspec does not know; else ``""``."""
    protocol, separator, _ = url.partition("://")
    known = fsspec.available_protocols()
    if not separator or protocol in known:
        return ""
    found = get_close_matches(protocol, known, 1) or get_close_matches(protocol, USUAL, 1, 0.5)
    return f"; is {found[0]}:// meant?" if found else f"; usual are {', '.join(f'{one}://' for one in USUAL)}"
