"""The exports of the package: explicit, typed, documented, and no public name of a type stands twice."""

import importlib
import pkgutil
from pathlib import Path

import command

import uio_pipes


def modules() -> list[str]:
    return [m.name for m in pkgutil.walk_packages(uio_pipes.__path__, "uio_pipes.")]


def test_all_is_sorted_and_exists() -> None:
    assert list(uio_pipes.__all__) == sorted(uio_pipes.__all__)
    assert [name for name in uio_pipes.__all__ if not hasattr(uio_pipes, name)] == []


def test_every_module_has_a_docstring_and_its_exports_exist() -> None:
    for name in modules():
        module = importlib.import_module(name)
        assert module.__doc__, name
        assert [x for x in getattr(module, "__all__", []) if not hasattr(module, x)] == [], name


def test_package_is_marked_as_typed() -> None:
    assert (Path(uio_pipes.__file__).parent / "py.typed").exists()


SCRIPT = Path(__file__).parents[1] / "scripts" / "double_names.py"


def test_no_public_name_of_a_type_stands_twice() -> None:
    assert "twice: 0 public" in command.programs(SCRIPT)


def test_classes_and_aliases_are_found_and_private_ones_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Row: ...\nclass _Node: ...\nMOST = 3\nT = 1\nPaths = list[str]\n")
    (tmp_path / "b.py").write_text(
        "Row = tuple[int]\nclass _Node: ...\nMOST = 3\nT = 1\nif True:\n    class Paths: ...\n"
    )
    done = command.FORKS.run([str(SCRIPT), str(tmp_path)], tmp_path, {})
    assert done.returncode == 1
    found = [line.split(":")[:2] for line in done.stdout.splitlines()[:3]]
    assert found == [["public", " Paths ×2"], ["public", " Row ×2"], ["private", " _Node ×2"]]
