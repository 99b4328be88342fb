"""docs/journey.md names the files that an utterance passes today, and functions that there are."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import command
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "journey.py"
PAGE = (ROOT / "docs" / "journey.md").read_text(encoding="utf-8")


@pytest.fixture
def journey(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/journey.py"""
    spec = spec_from_file_location("journey", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "journey", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_page_names_the_files_of_today(journey: ModuleType) -> None:
    out = command.programs(SCRIPT, "--check")
    assert f"{len(journey.files_named(PAGE))} files, " in out


def test_a_page_that_is_not_current_is_noticed(journey: ModuleType) -> None:
    assert not journey.outdated(PAGE, PAGE)
    old = PAGE.replace("**`core/sample.py`**", "**`core/old_sample.py`**")
    wrong = "lacks core/sample.py, has core/old_sample.py, which is not on the way"
    assert journey.outdated(old, PAGE) == wrong


def test_functions_that_it_names_exist(journey: ModuleType) -> None:
    file, named, index = "", 0, journey.Index()
    for line in PAGE.splitlines():
        if found := re.match(r"\*\*`(.+?)`\*\*", line):
            file = found[1]
        elif found := re.match(r"- `([\w.]+)`", line):
            names = {name for one in index.of(file) for name in (one.path, one.of)}
            assert found[1] in names, f"run .venv/bin/python scripts/journey.py: {line}"
            named += 1
    assert named > 100


def test_the_way_has_all_its_parts(journey: ModuleType) -> None:
    titles = [section.title for section in journey.SECTIONS]
    assert re.findall("^## (.*)$", PAGE, re.MULTILINE) == titles
    for section in re.split("^## .*$", PAGE, flags=re.MULTILINE)[1:]:
        assert journey.files_named(section)
