"""What GitHub reads fits its schemas, and runs only what is there: nothing of it can run here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

pytest.importorskip("check_jsonschema")
ROOT = Path(__file__).parents[1]
SCHEMAS = {
    "github-workflows": sorted(ROOT.glob(".github/workflows/*.yml")),
    "github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
    "github-issue-forms": sorted(ROOT.glob(".github/ISSUE_TEMPLATE/[!c]*.yml")),
    "citation-file-format": [ROOT / "CITATION.cff"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schemas(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, len(SCHEMAS[schema]) > 0) == (0, True), done.stdout + done.stderr


def workflows() -> str:
    return "\n".join(path.read_text() for path in SCHEMAS["github-workflows"])


def test_workflows_run_scripts_that_are_there() -> None:
    named = set(re.findall(r"scripts/\w+", workflows() + (ROOT / ".pre-commit-config.yaml").read_text()))
    assert {"scripts/check", "scripts/test", "scripts/torch_leg", "scripts/docs"} <= named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_python_is_tested_that_the_package_allows() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    allowed = SpecifierSet(re.search(r'requires-python = "(.+)"', project)[1])  # type: ignore[index]
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    tested = [Version(one) for one in jobs["test"]["strategy"]["matrix"]["python"]]
    assert all(one in allowed for one in tested)
    assert Version("3.9") not in allowed, "the oldest one is tested"
    said = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert [str(one) for one in tested][: len(said)] == said, "newer ones are tried before the package says them"


def test_templates_ask_for_what_the_commands_print() -> None:
    asked = "".join(path.read_text() for path in SCHEMAS["github-issue-forms"])
    assert {"inspect", "state", "bench"} <= {
        " ".join(c.split()) for c in re.findall(r"`uio ([a-z ]+?)(?= [A-Z]| t)", asked)
    }
