"""Python files that a user names by their path."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from uio_pipes.base.errors import ListError


def module_at(path: str) -> ModuleType:
    """Return the module in a Python file, run once; other processes can import it by its name.

    Raises: ListError if there is no such file, and whatever running it raises.
    """
    if not os.path.isfile(path):
        raise ListError(f"no such file: {path}")
    name, file = os.path.splitext(os.path.basename(path))[0], os.path.abspath(path)
    if getattr(known := sys.modules.get(name), "__file__", None) == file:
        return known  # type: ignore[return-value]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # so that what is in it can be pickled
    sys.path.insert(0, os.path.dirname(file))
    spec.loader.exec_module(module)
    return module
