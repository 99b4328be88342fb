"""The exports of the package: explicit, typed and documented."""

import importlib
import inspect
import pkgutil
from pathlib import Path

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


def test_everything_public_is_documented() -> None:
    for name in uio_pipes.__all__:
        assert inspect.getdoc(getattr(uio_pipes, name)), name


def test_functional_names_show_their_parameters() -> None:
    pipeline = uio_pipes.from_shard_list("x.list")
    parameters = inspect.signature(pipeline.dynamic_batch).parameters
    assert list(parameters)[:2] == ["max_frames", "max_samples"]
    assert pipeline.dynamic_batch.__doc__ is not None


def test_package_is_marked_as_typed() -> None:
    assert (Path(uio_pipes.__file__).parent / "py.typed").exists()
