"""pipeline.pyi tells editors and type checkers what the class really has, and is current."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import uio_pipes as uio

ROOT = Path(__file__).parents[1]
STUB = ROOT / "uio_pipes" / "pipeline.pyi"
STAGES = {name: f for name, f in vars(uio.Pipeline).items() if hasattr(f, "__wrapped__") and name[0] != "_"}


def methods() -> dict[str, ast.FunctionDef]:
    """The methods that the stub has."""
    (pipeline,) = (node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef))
    return {node.name: node for node in pipeline.body if isinstance(node, ast.FunctionDef)}


def parameters(method: ast.FunctionDef) -> dict[str, tuple[str, Any]]:
    """Of a method of the stub, but for self: name → (annotation, default)."""
    args = method.args
    empty = inspect.Parameter.empty
    defaults = [empty] * (len(args.args) - len(args.defaults)) + [ast.literal_eval(d) for d in args.defaults]
    all_of_them = [*zip(args.args, defaults, strict=True), (args.vararg, empty), (args.kwarg, empty)]
    found = [(arg, default) for arg, default in all_of_them if arg is not None and arg.arg != "self"]
    return {arg.arg: (ast.unparse(arg.annotation) if arg.annotation else "", default) for arg, default in found}


@pytest.fixture(scope="module")
def stubs() -> ModuleType:
    """scripts/stubs.py"""
    spec = spec_from_file_location("stubs", ROOT / "scripts" / "stubs.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_current(stubs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["stubs.py", "--check"])
    stubs.main()


def test_a_stub_that_is_not_current_is_noticed_and_renewed(
    stubs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "pipeline.pyi"
    old.write_text(STUB.read_text().replace("shuffle_size: int = 1500", "shuffle_size: int = 1000"))
    for name, value in (("ROOT", tmp_path), ("STUB", old)):
        monkeypatch.setattr(stubs, name, value)
    monkeypatch.setattr(sys, "argv", ["stubs.py", "--check"])
    with pytest.raises(SystemExit, match=r"pipeline\.pyi is not current: run .*scripts/stubs\.py"):
        stubs.main()
    monkeypatch.setattr(sys, "argv", ["stubs.py"])
    stubs.main()
    assert old.read_text() == STUB.read_text()


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_in_the_stub_is_as_it_is_at_run_time(name: str) -> None:
    method, real = methods()[name], inspect.signature(STAGES[name])
    given = {p.name: (str(p.annotation).replace('"', "'"), p.default) for p in real.parameters.values()}
    assert parameters(method) == {n: p for n, p in given.items() if n != "self"}
    assert ast.unparse(method.returns or ast.Constant(None)) == "Pipeline"
    assert ast.get_docstring(method) == inspect.getdoc(STAGES[name])


def test_what_else_the_stub_has_is_there_and_what_only_raises_is_not_in_it() -> None:
    raises = {"__iter__", "__len__", "__getitem__", "__getattr__"}
    assert not raises & set(methods())
    made_by_dataclass = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"}
    functions = {n for n, f in vars(uio.Pipeline).items() if inspect.isfunction(f) or isinstance(f, property)}
    assert set(methods()) == functions - raises - made_by_dataclass


def test_type_checkers_read_it(tmp_path: Path) -> None:
    shutil.copy(STUB, tmp_path)
    lines = {
        "reveal_type(p.shuffle(3).sort())": 'Revealed type is "pipeline.Pipeline"',
        "p.shuffle('3')": 'incompatible type "str"; expected "int"',
        "p.shufle(3)": 'has no attribute "shufle"',
        "for x in p: pass": 'has no attribute "__iter__"',
        "len(p)": 'incompatible type "Pipeline"; expected "Sized"',
        "p.pad(pcm=True)": "",
    }
    (tmp_path / "user.py").write_text("\n".join(["from pipeline import Pipeline", "p: Pipeline", *lines]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--no-site-packages",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "user.py",
    ]
    env = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": ""}  # where its base class is
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=env)
    for number, says in enumerate(lines.values(), 3):
        said = [line for line in done.stdout.splitlines() if line.startswith(f"user.py:{number}: ")]
        assert len(said) == bool(says), done.stdout + done.stderr
        assert all(says in line for line in said), done.stdout


def test_jedi_finds_signature_and_documentation() -> None:
    jedi = pytest.importorskip("jedi")
    code = 'import uio_pipes as uio\np = uio.from_shard_list("x").decode_audio()\np.'
    project = jedi.Project(str(ROOT))
    completed = {c.name for c in jedi.Script(code, path=ROOT / "x.py", project=project).complete()}
    assert set(STAGES) <= completed
    assert not {"skims", "sites", "deals"} & completed
    (signature,) = jedi.Script(f"{code}shuffle(", path=ROOT / "x.py", project=project).get_signatures()
    assert signature.to_string().replace(" ", "") == "shuffle(shuffle_size:int=1500)->Pipeline"
    assert "shuffle_size: how many utterances to hold" in signature.docstring()
