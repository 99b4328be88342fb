"""scripts/double_names.py finds names of types that stand in two modules; the package has none that is public."""

from pathlib import Path

import command

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
