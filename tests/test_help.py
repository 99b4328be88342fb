"""Texts that ``help``, editors and type checkers show: all parameters are explained, and pipeline.pyi is current."""

import ast
import inspect
import os
import pydoc
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import uio_pipes as uio

PIPELINE = uio.from_shard_list("none.list")
STAGES = {name: f for name, f in vars(uio.Pipeline).items() if hasattr(f, "__wrapped__") and name[0] != "_"}
OWN = ["as_datapipe", "as_dataset", "build", "fingerprint", "peek", "plot", "split", "stages", "then"]
NOT_MADE_BY_USERS = {
    "AccessOptions",
    "Format",
    "Lengths",
    "PackedBatch",
    "PaddedBatch",
    "RowPlace",
    "Sample",
    "Seen",
}  # nor its constructor documented
SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n)*)", re.MULTILINE)  # attributes: of what is not called
ENTRY = re.compile(r"^    ([\w*][\w*, ]*): (.*(?:\n     .*)*)", re.MULTILINE)
DEFAULT = re.compile(r'\bDefault: (\([^()]*\)|"[^"]*"|-?\d[\d.,]*\d|-?\d|True|False|None)')


def entries(documentation: str) -> dict[str, str]:
    """Return the explanation of each parameter."""
    section = SECTION.search(documentation + "\n")
    return {
        name.strip().lstrip("*"): re.sub(r"\s+", " ", said)
        for names, said in ENTRY.findall(section[1] if section else "")
        for name in names.split(",")
    }


def documented() -> Iterator[tuple[str, Any]]:
    """Everything with parameters that users call."""
    for name in (*STAGES, *(n for n in OWN if n != "stages")):
        yield f"Pipeline.{name}", getattr(uio.Pipeline, name)
    for name in uio.__all__:
        thing = getattr(uio, name)
        made = not inspect.isclass(thing) or not (issubclass(thing, Exception) or getattr(thing, "_is_protocol", False))
        if made and name not in NOT_MADE_BY_USERS:
            yield name, thing


def public_methods() -> Iterator[tuple[str, Any]]:
    """The public methods of the classes that users meet, but for those of a pipeline."""
    for name in uio.__all__:
        for method, function in vars(getattr(uio, name)).items() if inspect.isclass(getattr(uio, name)) else ():
            if inspect.isfunction(function) and not method.startswith("_") and name != "Pipeline":
                yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "thing"), list(documented()), ids=[name for name, _ in documented()])
def test_every_parameter_is_explained_with_its_default(name: str, thing: Any) -> None:
    explained = entries(inspect.getdoc(thing) or "")
    if explained.pop("access", "").endswith(":class:`AccessOptions`."):
        explained |= entries(inspect.getdoc(uio.AccessOptions) or "")
    parameters = {n: p for n, p in inspect.signature(thing).parameters.items() if n != "self"}
    assert list(explained) == list(parameters)
    for parameter in parameters.values():
        if parameter.default is not parameter.empty and not str(parameter.default).startswith("<"):
            said = DEFAULT.findall(explained[parameter.name])
            assert len(said) == 1, f"{parameter.name}: its default must be told once, as in 'Default: 5.'"
            value = ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3})", "", said[0]))
            assert (value, type(value)) == (parameter.default, type(parameter.default)), parameter.name


@pytest.mark.parametrize(("name", "function"), list(public_methods()), ids=[name for name, _ in public_methods()])
def test_a_method_says_what_its_parameters_are(name: str, function: Callable[..., Any]) -> None:
    documentation = inspect.getdoc(function) or ""
    assert documentation
    if not documentation.startswith("Like :meth:"):
        for parameter in list(inspect.signature(function).parameters)[1:]:
            assert re.search(rf"\b{parameter}\b", documentation), parameter


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("of", [uio.Pipeline, PIPELINE], ids=["class", "object"])
def test_help_shows_the_method_and_no_internals(stage: str, of: Any) -> None:
    shown = pydoc.plain(pydoc.render_doc(getattr(of, stage)))
    signature = shown.splitlines()[2]
    assert signature.startswith(f"{stage}({'self' if of is uio.Pipeline else ''}")
    assert "-> Pipeline" in signature
    assert ": '" not in signature, "annotations are shown without quotes"
    assert "dataclass" not in shown
    assert "ClassVar" not in shown
    assert "Method resolution order" not in shown


def test_completion_lists_what_is_for_users() -> None:
    assert [name for name in dir(PIPELINE) if not name.startswith("_")] == sorted([*STAGES, *OWN])


def test_the_source_of_a_method_is_that_of_its_stage() -> None:
    assert inspect.getsource(PIPELINE.shuffle).startswith("@dataclass(frozen=True)\nclass Shuffle(Flow):")


# pipeline.pyi


ROOT = Path(__file__).parents[1]
STUB = ROOT / "uio_pipes" / "pipeline.pyi"


def in_stub() -> dict[str, ast.FunctionDef]:
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


@pytest.mark.slow
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
    method, real = in_stub()[name], inspect.signature(STAGES[name])
    given = {p.name: (str(p.annotation).replace('"', "'"), p.default) for p in real.parameters.values()}
    assert parameters(method) == {n: p for n, p in given.items() if n != "self"}
    assert ast.unparse(method.returns or ast.Constant(None)) == "Pipeline"
    assert ast.get_docstring(method) == inspect.getdoc(STAGES[name])


def test_what_else_the_stub_has_is_there_and_what_only_raises_is_not_in_it() -> None:
    raises = {"__iter__", "__len__", "__getitem__", "__getattr__"}
    assert not raises & set(in_stub())
    made_by_dataclass = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"}
    functions = {n for n, f in vars(uio.Pipeline).items() if inspect.isfunction(f) or isinstance(f, property)}
    assert set(in_stub()) == functions - raises - made_by_dataclass


@pytest.mark.slow
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


@pytest.mark.slow
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
