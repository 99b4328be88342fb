"""Print each name of a type that more than one module of ``uio_pipes`` defines, with its places.

One word stands for one thing, so that a reader who meets a name knows what is meant. Types are classes, aliases such as
``Rows = tuple[int, int]``, and type variables. Names with an underscore are of their module only: those standing twice
are listed for a reader's judgement. Exit status 1 if a public name stands twice; ``KNOWN`` are those that may.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KNOWN = {"T": "the customary name of a type variable"}


def types_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the types that a module defines at its top, also under an ``if``, each with its line."""
    guarded = [node for block in tree.body if isinstance(block, ast.If) for node in [*block.body, *block.orelse]]
    for node in [*tree.body, *guarded]:
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and named_as_a_type(target.id):
                yield target.id, node.lineno


def named_as_a_type(name: str) -> bool:
    """Return whether a name is written as that of a type: ``FileList`` or ``T``, unlike ``file_list`` and ``MOST``."""
    bare = name.strip("_")
    return bare[:1].isupper() and (len(bare) == 1 or not bare.isupper())


def double_names(package: Path) -> dict[str, list[str]]:
    """Return the names that more than one module defines, sorted, each with its places."""
    places: dict[str, dict[Path, str]] = defaultdict(dict)
    for path in sorted(package.rglob("*.py")):
        for name, line in types_of(ast.parse(path.read_text())):
            places[name].setdefault(path, f"{path.relative_to(package.parent)}:{line}")
    return {name: list(found.values()) for name, found in sorted(places.items()) if len(found) > 1}


def main(package: Path) -> int:
    found = double_names(package)
    private = [name for name in found if name.startswith("_")]
    public = [name for name in found if name not in private and name not in KNOWN]
    for title, names in (("public", public), ("private", private)):
        for name in names:
            print(f"{title}: {name} ×{len(found[name])}: {', '.join(found[name])}")
    print(f"names of types that stand twice: {len(public)} public, {len(private)} private")
    if public:
        print("Rename all but one of each public name, or say in KNOWN of scripts/double_names.py why it stands twice.")
    return 1 if public else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "uio_pipes"))
