"""The parts of paths and URLs that names are read from. A URL may have a query, a signature for example; a path not."""

from __future__ import annotations

import os
import re

AnyPath = str | os.PathLike[str]  # what a user gives as the place of a file or folder

# What follows a ? or # up to the end. The rest of a file's name is none: part-?.tar, take#2.wav.
_QUERY = re.compile(r"[?#](?!(?:[^=&/]*/.*|[^=&]*)\.\w{1,5}$).*", re.DOTALL)


def path_of(url: str) -> str:
    """Return a URL without its query and fragment; a path as it is."""
    return _QUERY.sub("", url) if "://" in url else url


def is_named(url: str, suffixes: str | tuple[str, ...]) -> bool:
    """Return whether the file's name ends in one of the ``suffixes``."""
    return path_of(url).endswith(suffixes)


def name_of(url: str) -> str:
    """Return the file's name, without folders: ``a.tar``."""
    return path_of(url).rpartition("/")[2]


def suffix_of(url: str) -> str:
    """Return the suffix of the file's name in lower case, without the dot; "" if it has none."""
    return name_of(url).rpartition(".")[2].lower() if "." in name_of(url).lstrip(".") else ""


def beside(url: str, suffix: str) -> str:
    """Return the path or URL of the file that has ``suffix`` appended to its name."""
    path = path_of(url)
    return path + suffix + url[len(path) :]


def inside(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder."""
    path = path_of(folder)
    return f"{path.rstrip('/')}/{name}{folder[len(path) :]}" if folder else name


def folder_of(url: str) -> str:
    """Return the path or URL of the folder that a file is in; "" for the working directory."""
    path = path_of(url)
    folder = path.rpartition("/")[0]
    return folder + url[len(path) :] if folder else ""
