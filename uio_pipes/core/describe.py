"""Arguments of stages as text, for people and for fingerprints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from uio_pipes.base.redact import redact

_LONG = 300  # characters; longer texts are shown by their beginning


def show(value: object, *, stable: bool = False) -> str:
    """Return an argument as a short text, functions as ``name @ file:line`` (``stable``: as ``module.name``)."""
    if isinstance(value, partial):
        inner = [show(v, stable=stable) for v in value.args]
        inner += [f"{k}={show(v, stable=stable)}" for k, v in value.keywords.items()]
        return f"partial({', '.join([show(value.func, stable=stable), *inner])})"
    if inspect.isfunction(value) or inspect.ismethod(value):
        code = value.__code__
        if stable:
            return _place(value)
        return f"{value.__qualname__} @ {code.co_filename}:{code.co_firstlineno}"
    if inspect.isclass(value):
        return _place(value) if stable else value.__qualname__
    if isinstance(value, (list, tuple)):
        if len(value) == 1 and not stable:
            return show(value[0])
        inner = [show(v, stable=stable) for v in (value if stable else value[:4])]
        inner += [f"… {len(value)} in all"] if len(value) > len(inner) else []
        return f"[{', '.join(inner)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {show(v, stable=stable)}" for k, v in value.items()) + "}"
    if hasattr(value, "shown"):
        return str(value.shown(stable=stable))
    if isinstance(value, str) and len(value) > _LONG and not stable:
        return f"{redact(repr(value[:60]))}…"
    text = redact(repr(value))
    if type(value).__repr__ is object.__repr__:  # its address would change from run to run
        text = _place(type(value))
    return text


def _place(value: Any) -> str:
    """Return ``module.name``; names of this package without the module within it, which may change between versions."""
    module = "uio_pipes" if value.__module__.startswith("uio_pipes.") else value.__module__
    return f"{module}.{value.__qualname__}"


def wants(function: Callable[..., Any], parameter: str) -> bool:
    """True if ``function`` has a parameter of this name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
