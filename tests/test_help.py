"""Texts that ``help``, editors and completion show: every parameter is explained where it is written."""

import ast
import inspect
import pydoc
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import uio_pipes as uio

PIPELINE = uio.from_shard_list("none.list")
STAGES = [name for name, method in vars(uio.Pipeline).items() if hasattr(method, "__wrapped__") and name[0] != "_"]
OWN = ["as_datapipe", "as_dataset", "build", "fingerprint", "peek", "plot", "stages"]
NOT_MADE_BY_USERS = {"Sample", "Lengths"}  # nor its constructor documented
SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n)*)", re.MULTILINE)  # attributes: of what is not called
ENTRY = re.compile(r"^    ([\w*][\w*, ]*): (.*(?:\n     .*)*)", re.MULTILINE)
DEFAULT = re.compile(r'\bDefault: (\([^()]*\)|"[^"]*"|-?\d[\d.,]*\d|\d|True|False|None)')


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


def methods() -> Iterator[tuple[str, Any]]:
    """The public methods of the classes that users meet, but for those of a pipeline."""
    for name in uio.__all__:
        for method, function in vars(getattr(uio, name)).items() if inspect.isclass(getattr(uio, name)) else ():
            if inspect.isfunction(function) and not method.startswith("_") and name != "Pipeline":
                yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "thing"), list(documented()), ids=[name for name, _ in documented()])
def test_every_parameter_is_explained_with_its_default(name: str, thing: Any) -> None:
    explained = entries(inspect.getdoc(thing) or "")
    parameters = {n: p for n, p in inspect.signature(thing).parameters.items() if n != "self"}
    assert list(explained) == list(parameters)
    for parameter in parameters.values():
        if parameter.default is not parameter.empty and not str(parameter.default).startswith("<"):
            said = DEFAULT.findall(explained[parameter.name])
            assert len(said) == 1, f"{parameter.name}: its default must be told once, as in 'Default: 5.'"
            value = ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3})", "", said[0]))
            assert (value, type(value)) == (parameter.default, type(parameter.default)), parameter.name


@pytest.mark.parametrize(("name", "function"), list(methods()), ids=[name for name, _ in methods()])
def test_a_method_says_what_its_parameters_are(name: str, function: Callable[..., Any]) -> None:
    documentation = inspect.getdoc(function) or ""
    assert documentation
    if not documentation.startswith("As :meth:"):
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


def test_help_explains_shuffle() -> None:
    shown = pydoc.plain(pydoc.render_doc(uio.Pipeline.shuffle))
    assert "shuffle(self, shuffle_size: int = 1500) -> Pipeline" in shown
    assert "shuffle_size: how many utterances to hold, at least 1. Default: 1,500." in shown


def test_help_of_the_class_lists_the_stages_as_methods() -> None:
    shown = pydoc.plain(pydoc.render_doc(uio.Pipeline))
    for stage in STAGES:
        assert re.search(rf"^ \|  {stage}\(self.* -> Pipeline", shown, re.MULTILINE), stage


def test_completion_lists_what_is_for_users() -> None:
    assert [name for name in dir(PIPELINE) if not name.startswith("_")] == sorted([*STAGES, *OWN])


def test_the_source_of_a_method_is_that_of_its_stage() -> None:
    assert inspect.getsource(PIPELINE.shuffle).startswith("@dataclass(frozen=True)\nclass Shuffle(Flow):")
