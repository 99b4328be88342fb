"""Arguments by the names that they had in an earlier version: they still count, with a warning of the new way."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from uio_pipes.base.elsewhere import unexpected
from uio_pipes.base.errors import PipelineError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Older:
    """The older names of arguments.

    Args:
        call: what takes the arguments, for messages.
        names: the name of today by the older one; ``group.part`` for a part of an argument that is a group.
        groups: the classes of these groups, by the name of the argument.
    """

    call: str
    names: Mapping[str, str]
    groups: Mapping[str, type] = field(default_factory=dict)

    def today(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by their names of today, with a warning for each that has an older one.

        None was the default of most: it counts as not given.

        Raises: PipelineError if an argument is given by both of its names.
        """
        options = {name: value for name, value in given.items() if name not in self.names}
        parts: dict[str, dict[str, Any]] = {}
        for name in (name for name in given if name in self.names):
            new, _, part = self.names[name].partition(".")
            way = f"{new}=uio.{self.groups[new].__name__}({part}=…)" if part else f"{new}=…"
            later = "the older way will go in a later version"
            warnings.warn(f"{self.call}: {name}=… is written {way} now; {later}", DeprecationWarning, _outside())
            if given[name] is None:
                continue
            if new in given:
                raise PipelineError(f"{self.call}: {name} is an older word for {way}: leave out {name}, or {new}")
            if part:
                parts.setdefault(new, {})[part] = given[name]
            else:
                options[new] = given[name]
        return options | {name: self.groups[name](**values) for name, values in parts.items()}

    def __call__(self, function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        """Decorate a function: it takes keywords by their older names, too.

        An unknown keyword is a TypeError, which says what it is here, or names the nearest known one.
        """
        known = list(signature(function).parameters)

        @wraps(function)
        def called(*args: Parameters.args, **given: Parameters.kwargs) -> Returned:
            if given.keys() - known:
                options = self.today(given)
                for name in options.keys() - known:
                    hint = unexpected(self.call, name, options[name], known)
                    raise TypeError(f"{self.call}() got an unexpected keyword argument {name!r}{hint}")
                return function(*args, **options)
            return function(*args, **given)

        return called


def _outside() -> int:
    """Return the ``stacklevel`` with which a warning of the caller names the line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "uio_pipes":
        frame, level = frame.f_back, level + 1
    return level
