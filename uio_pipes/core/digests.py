"""Hashes of what a result depends on: functions with their code, arguments of stages, and the fields of an utterance.

What is equal has the same hash in every process. Audio that has not been read is known by its file, with size and time
of change or ETag, and by its place there; what cannot be known so, by its bytes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from dis import get_instructions
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uio_pipes.audio.length import StoredFeatures
from uio_pipes.base.hashing import module_name
from uio_pipes.core.schedule import show
from uio_pipes.core.stage import IDENTITY
from uio_pipes.formats.stored_fields import raw
from uio_pipes.io.command import Piped
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opened_ahead import LocalPath
from uio_pipes.io.opening import Coming, identity, is_local
from uio_pipes.io.references import Ref

if TYPE_CHECKING:
    from typing_extensions import Self

_AS_SHOWN = (str, int, float, bool, complex, type(None), np.generic, torch.dtype, torch.device, range, ModuleType)
_PASSING = frozenset(["head", "_file", "_job", "_begun", "_first", "_frames"])  # they only speed up reading
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object, in its repr
_FILLING = frozenset(["add", "append", "extend", "insert", "setdefault", "update"])
FileVersion = Callable[[str], Any]  # of the file at a path or URL


class Digest:
    """A hash of what is added to it. ``version``: gives that of a file. Methods raise DataError as reading does."""

    def __init__(self, version: FileVersion = identity) -> None:
        self._parts, self._version = list[str](), version
        self._seen: dict[int, tuple[int, Any]] = {}  # objects that were met, with their numbers

    def made(self) -> bytes:
        """Return its 16 bytes."""
        return _hash("\n".join(self._parts).encode("utf-8", "surrogatepass"))

    def add(self, *values: Any) -> Self:
        """Add values."""
        for value in values:
            self._add(value)
        return self

    def file(self, file: Any, *places: Any) -> Self:
        """Add a file, by path or opened, with its version and ``places`` in it."""
        path = file if isinstance(file, str) else file.path
        if (local := is_local(path)) is not None:
            return self._text(os.path.abspath(local), self._version(path), *places)
        return self._text(path, self._version(path) if isinstance(file, str) else file.stamp, *places)

    def _text(self, *texts: object) -> Self:
        self._parts.append(repr(texts))
        return self

    def _add(self, value: Any) -> None:
        kind = "str" if isinstance(value, LocalPath) else type(value).__name__
        if isinstance(value, _AS_SHOWN):
            self._text(kind, value)
            return
        if type(value) in (Ref, Coming):
            self.file(value.file, value.offset, value.size, value.crc, value.info)
            return
        self._text(kind)
        if isinstance(value, (bytes, bytearray)):
            self._text(_hash(value))
        elif isinstance(value, torch.Tensor):
            self._text(value.dtype, tuple(value.shape), _hash(raw(value.cpu())))
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._text(value.dtype.str, value.shape, _hash(np.ascontiguousarray(value).reshape(-1).view("u1").data))
        elif isinstance(value, Mapping):
            self._text(len(value)).add(*value.keys(), *value.values())
        elif isinstance(value, (list, tuple)):
            self._text(len(value)).add(*value)
        elif isinstance(value, (set, frozenset)):
            self.add(sorted(value, key=repr))
        elif isinstance(value, (Ref, StoredFeatures)):
            self._reference(value)
        elif isinstance(value, LocalFile) or hasattr(value, "read_upto"):
            self.file(value)
        elif id(value) in self._seen:
            self._text(self._seen[id(value)][0])
        else:
            self._seen[id(value)] = len(self._seen), value
            self._object(value)

    def _reference(self, value: Ref | StoredFeatures) -> None:
        names = dict.fromkeys(name for base in type(value).__mro__ for name in getattr(base, "__slots__", ()))
        known = {
            name: getattr(value, name, None)
            for name in names
            if name not in _PASSING and not isinstance(getattr(type(value), name, None), property)
        }
        if isinstance(value, Piped) or not all(map(_is_plain, known.values())):
            self.add(value.load() if isinstance(value, StoredFeatures) else value.read())
            return
        self.add(known)
        if "file" not in known and isinstance(value, Ref):
            self.file(value.file)

    def _object(self, value: Any) -> None:
        if isinstance(value, MethodType):
            self.add(value.__func__, value.__self__)
        elif isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            self._text(module_name(value.__module__), value.__qualname__)._code(value.__code__, value.__globals__)
            self.add(value.__defaults__, value.__kwdefaults__, cells)
        elif isinstance(value, partial):
            self.add(value.func, value.args, value.keywords)
        elif isinstance(value, BuiltinFunctionType):
            self._text(value.__module__, value.__qualname__)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, torch.nn.Module):
            self.add(value.state_dict())
            for name, part in value.named_modules():
                self.add(name, type(part), _settings(part))
        elif hasattr(value, "__wrapped__"):  # as functools.lru_cache has
            self.add(value.__wrapped__)
        elif is_dataclass(value):
            for f in fields(value):
                if f.metadata.get(IDENTITY, True):
                    given = getattr(value, f.name)
                    named = isinstance(given, (str, os.PathLike)) and os.path.isfile(given)
                    self.file(os.fspath(given)) if named else self.add(given)
            self.add(type(value))
        else:
            shown = _ADDRESS.sub("", show(value, stable=True))
            self.add(shown, getattr(value, "__dict__", None), type(value))

    def _class(self, kind: type) -> None:
        """Take in a class, and of one that no installed package has its functions and settings, too."""
        self._text(module_name(kind.__module__), kind.__qualname__)
        for base in filter(_is_own, kind.__mro__):
            for name, member in sorted(vars(base).items()):
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, FunctionType) or _is_setting(name, function):
                    self.add(name, function)

    def _code(self, code: CodeType, names: Mapping[str, Any]) -> None:
        """Take in code, with what it names: functions and classes of the same package or of other files that are not
        installed, models, values that stay."""
        self._text(code.co_code, code.co_names, code.co_varnames)
        for constant in code.co_consts:
            self._code(constant, names) if isinstance(constant, CodeType) else self.add(constant)
        home = module_name(str(names.get("__name__"))).partition(".")[0]
        for found in _named(code, names):
            near = module_name(str(getattr(found, "__module__", None))).partition(".")[0] == home or _is_own(found)
            if isinstance(found, (torch.Tensor, torch.nn.Module)) or _is_setting("", found):
                self.add(found)
            elif near:  # of an object its class: what it holds may change from call to call
                self.add(found if hasattr(found, "__qualname__") else type(found))


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what code names, but for a counter that it sets itself: globals, and in their place what it takes of those
    that are modules and not installed, as ``f`` of ``module.f``."""
    steps = list(get_instructions(code))
    counters, module = {one.argval for one in steps if one.opname == "STORE_GLOBAL"}, None
    for one in steps:
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = names.get(one.argval) if one.argval not in counters else None
        else:
            found = getattr(module, str(one.argval), None) if one.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        module = found if isinstance(found, ModuleType) and _is_own(found) else None
        if found is not None and module is None:
            yield found


def _hash(data: Any) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _is_own(thing: Any) -> bool:
    """Return whether a class, a function, an object's class or a module is written in a project, which may change it,
    and not in a package that is installed."""
    name = thing.__name__ if isinstance(thing, ModuleType) else str(getattr(thing, "__module__", None))
    home, file = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None) or ""
    installed = home in sys.stdlib_module_names or home in ("uio_pipes", "None") or "site-packages" in file
    return not installed and "dist-packages" not in file


def _is_setting(name: str, value: Any) -> bool:
    """Return whether an attribute or variable is a value that code goes by: neither Python's nor private, nor a list or
    dict, as calls are counted in these."""
    if isinstance(value, (tuple, frozenset)):
        return not name.startswith("_") and all(_is_setting("", one) for one in value)
    plain = isinstance(value, (*_AS_SHOWN, bytes, np.ndarray)) and not isinstance(value, ModuleType)
    return plain and not name.startswith("_")


def _settings(model: torch.nn.Module) -> dict[str, Any]:
    """Return what a part of a model goes by beside its weights, and does not set itself while it runs."""
    own = [member for base in filter(_is_own, type(model).__mro__) for member in vars(base).values()]
    codes = [one.__code__ for one in own if isinstance(one, FunctionType) and one.__name__ != "__init__"]
    stored = {one.argval for code in codes for one in get_instructions(code) if one.opname == "STORE_ATTR"}
    stored |= vars(torch.nn.Module()).keys() - {"training"}
    filled = set[str]()  # names in code that may put something into a list or dict
    for code in codes:
        if not _FILLING.isdisjoint(code.co_names) or any(x.opname == "STORE_SUBSCR" for x in get_instructions(code)):
            filled.update(code.co_names)
    given = {name: value for name, value in vars(model).items() if name not in stored}
    return _kept({n: v for n, v in given.items() if not (n in filled and isinstance(v, (list, dict, set)))}, True)


def _kept(given: Mapping[Any, Any], private: bool = False, depth: int = 3) -> dict[str, Any]:
    """Return those of the named values that are settings, also in lists, dicts and objects of settings: dataclasses,
    objects of the project's own classes, and Hugging Face's configurations."""
    found = dict[str, Any]()
    for name, value in given.items():
        hidden = str(name).startswith("_")
        inside: Any = None
        if _is_setting("", value):
            found |= {str(name): value} if private or not hidden else {}
        elif hidden or not depth or isinstance(value, (torch.Tensor, torch.nn.Module, type, FunctionType)):
            continue
        elif isinstance(value, Mapping):
            inside = value
        elif isinstance(value, (list, tuple)):
            inside = dict(enumerate(value))
        elif hasattr(value, "to_dict"):
            inside = value.to_dict()
        elif is_dataclass(value) or _is_own(value):
            inside = getattr(value, "__dict__", None)
        if isinstance(inside, Mapping):
            found[str(name)] = _kept(inside, depth=depth - 1)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (*_AS_SHOWN, bytes, Ref, LocalFile)) or hasattr(value, "read_upto")
