"""Write uio_pipes/pipeline.pyi, from which editors and type checkers learn the methods of ``Pipeline``.

Run ``.venv/bin/python scripts/stubs.py`` when the parameters or the docstring of a stage have changed; with ``--check``
it only reports whether the stub is current. It writes the methods that ``functional(…)`` makes, with signature and
documentation, and copies the rest of the class without its bodies. Methods that only raise (``-> NoReturn``) are left
out, so that type checkers refuse ``for x in pipeline``.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "uio_pipes" / "pipeline.py"
STUB = SOURCE.with_suffix(".pyi")
HEAD = '"""Made by scripts/stubs.py from pipeline.py and the stages; not to be edited."""'


def main() -> None:
    sys.path.insert(0, str(ROOT))
    current = stub()
    if sys.argv[1:] != ["--check"]:
        STUB.write_text(current)
    elif not STUB.exists() or STUB.read_text() != current:
        sys.exit(f"{STUB.relative_to(ROOT)} is not current: run .venv/bin/python scripts/stubs.py")


def stub() -> str:
    """Return the text that the stub should have."""
    tree = ast.parse(SOURCE.read_text())
    known = imports(tree)
    shown = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Pipeline")
    shown.body = [new for node in shown.body for new in members(node, known)]
    used = {node.id for node in ast.walk(shown) if isinstance(node, ast.Name)}
    needed = sorted({known[name] for name in used - {shown.name} if name in known})
    return formatted("\n".join([HEAD, "", *needed, "", '__all__ = ["Pipeline"]', "", ast.unparse(shown)]))


def members(node: ast.stmt, known: dict[str, str]) -> Iterator[ast.stmt]:
    """Yield the statements of the stub for one statement of the class."""
    if isinstance(node, ast.FunctionDef):
        if ast.unparse(node.returns or ast.Constant(None)) != "NoReturn":
            document = node.body[:1] if ast.get_docstring(node) else []
            node.body = [*document, ast.Expr(ast.Constant(...))]
            yield node
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        (made,) = node.value.args
        yield method(ast.unparse(node.targets[0]), ast.unparse(made), known)
    else:
        yield node


def method(name: str, stage: str, known: dict[str, str]) -> ast.stmt:
    """Return the method that adds the stage with the class ``stage``; ``known`` gets the imports of its annotations."""
    source = known[stage].split()[1]
    kind = getattr(import_module(source), stage)
    for base in getattr(kind, "__mro__", [kind]):
        if base.__module__.startswith("uio_pipes."):
            for annotated, line in names_of(base.__module__).items():
                known.setdefault(annotated, line)
    signature = inspect.signature(kind)
    given = [str(p.replace(annotation=p.empty, default=p.empty)) for p in signature.parameters.values()]
    text = f"def {name}(self, {', '.join(given)}) -> Pipeline: ..."
    made = ast.parse(text).body[0]
    assert isinstance(made, ast.FunctionDef)
    return described(made, signature, inspect.getdoc(kind) or "")


def described(made: ast.FunctionDef, signature: inspect.Signature, documentation: str) -> ast.FunctionDef:
    """Return ``made`` with the annotations and defaults of ``signature``, and with documentation."""
    star, stars = made.args.vararg, made.args.kwarg
    for arg in [*made.args.args[1:], *made.args.kwonlyargs, *filter(None, (star, stars))]:
        arg.annotation = ast.parse(signature.parameters[arg.arg].annotation, mode="eval").body
    for arg in made.args.args[1:]:
        default = signature.parameters[arg.arg].default
        if default is not inspect.Parameter.empty:
            made.args.defaults.append(ast.parse(repr(default), mode="eval").body)
    text = documentation if "\n" not in documentation else indent(documentation, " " * 8).strip() + "\n" + " " * 8
    made.body = [ast.Expr(ast.Constant(text)), ast.Expr(ast.Constant(...))]
    return made


def names_of(module: str) -> dict[str, str]:
    """Return the names that annotations in ``module`` may use, each with its import."""
    tree = ast.parse(Path(inspect.getfile(import_module(module))).read_text())
    own = [n.targets[0] if isinstance(n, ast.Assign) else n for n in tree.body]
    defined = [n.id if isinstance(n, ast.Name) else n.name for n in own if isinstance(n, (ast.Name, ast.ClassDef))]
    return {name: f"from {module} import {name}" for name in defined} | imports(tree)


def imports(tree: ast.Module) -> dict[str, str]:
    """Return each imported name with its import, also those for type checkers only, but not those inside functions."""
    guarded = [n for node in tree.body if isinstance(node, ast.If) for n in node.body]
    found = {}
    for node in [*tree.body, *guarded]:
        if isinstance(node, ast.Import):
            found.update({alias.name: f"import {alias.name}" for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found.update({alias.name: f"from {node.module} import {alias.name}" for alias in node.names})
    return found


def formatted(text: str) -> str:
    """Return ``text`` in the format that ``scripts/check`` demands."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(SOURCE.with_suffix(".pyi")), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    main()
