"""What semantic versioning covers here (docs/versions.md) is what tests/versions.txt lists, and changes only knowingly.

``python tests/test_versions.py`` writes the list anew. A line that goes or changes there, other than by one more
argument at its end, needs a new major version.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pages
import typer

import uio_pipes as uio
from uio_pipes.run.state import SCHEMA
from uio_pipes.tools.cli.main import app

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("versions.txt")
DAMAGE = ROOT / "docs" / "integrity.md"


def parameters(made: Any) -> str:
    """``(paths, *, shuffle=False)``: names, order and defaults, as far as these are written alike everywhere."""
    try:
        signature = inspect.signature(made)
    except ValueError:  # of a class of the standard library's
        return ""
    plain = []
    for each in signature.parameters.values():
        default = each.default
        if default is not each.empty and re.search(r" at 0x|<", repr(default)):
            default = ...
        plain.append(each.replace(annotation=each.empty, default=default))
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def members(name: str, made: Any) -> Iterator[str]:
    """Of a class: what it and its bases in this package have for users."""
    found: dict[str, Any] = {}
    for base in reversed(made.__mro__):
        if base.__module__.startswith("uio_pipes"):
            found |= dict.fromkeys(inspect.get_annotations(base))
            found |= vars(base)
    for member, value in sorted(found.items()):
        if not member.startswith("_"):
            function = getattr(value, "__func__", value)
            yield f"{name}.{member}{parameters(function) if inspect.isfunction(function) else ''}"


def commands(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
            continue
        options = sorted(max(p.opts, key=len) if p.opts[0].startswith("-") else p.name.upper() for p in command.params)
        yield f"{path} {name} {' '.join(options)}"


def imported() -> Iterator[str]:
    """What pages import from modules of the package: users copy these lines."""
    for page in [*pages.PAGES, ROOT / "CONTRIBUTING.md"]:
        for block in pages.blocks(page):
            for module, names in re.findall(r"^from (uio_pipes\.[\w.]+) import (.+)$", block.code, re.MULTILINE):
                for name in names.split(", "):
                    made = getattr(import_module(module), name, None) or import_module(f"{module}.{name}")
                    used = re.findall(rf"\b{name}\.(\w+)\(", block.code) if inspect.ismodule(made) else []
                    yield from (f"{module}.{name}.{one}{parameters(getattr(made, one))}" for one in used)
                    if not inspect.ismodule(made):
                        yield f"{module}.{name}{parameters(made) if f'{name}(' in block.code else ''}"


def named_reasons() -> Iterator[str]:
    """Those of the tables of what happens to which damage."""
    rows = [line.split("|")[2] for line in DAMAGE.read_text(encoding="utf-8").split("\n") if line.startswith("| ")]
    yield from (reason for row in rows for reason in re.findall(r"`([a-z_0-9]+)`(?!\])", row))


def made_reasons() -> Iterator[str]:
    """Those that the code gives to a ``DataError``, literally or one of two; ``retry`` is only logged."""
    for path in Path(uio.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "DataError" and call.args:
                first = call.args[0]
                either = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                yield from (one.value for one in either if isinstance(one, ast.Constant) and one.value != "retry")


def covered() -> list[str]:
    """All that is promised, a line each."""
    lines = []
    for name in uio.__all__:
        made = getattr(uio, name)
        lines.append(f"uio.{name}{parameters(made) if callable(made) else ''}")
        if inspect.isclass(made):
            lines += members(f"uio.{name}", made)
    lines += sorted(set(imported()))
    lines += commands(typer.main.get_command(app), "uio")
    lines += [f"reason {reason}" for reason in sorted({*named_reasons(), *made_reasons()})]
    return [*lines, f"state {SCHEMA}"]


def test_names_arguments_commands_and_reasons_change_only_knowingly() -> None:
    before = LIST.read_text(encoding="utf-8").splitlines()
    now = covered()
    assert now == before, "if this is meant, run python tests/test_versions.py, and see docs/versions.md"


def test_what_is_listed_is_what_a_user_sees() -> None:
    lines = covered()
    assert len(lines) == len(set(lines))
    for told in ("uio.Loader.state_dict(self)", "reason bad_audio", "reason no_row", "reason over_budget", "state 1"):
        assert told in lines
    assert any(line.startswith("uio.from_raw_list(paths, *, ") for line in lines)
    assert any(line.startswith("uio.Pipeline.bucket_batch(self, ") for line in lines)
    assert any(line.startswith("uio pack ") and "--jobs" in line for line in lines)


if __name__ == "__main__":
    sys.stdout.write("writing " + str(LIST) + "\n")
    LIST.write_text("".join(f"{line}\n" for line in covered()), encoding="utf-8")
