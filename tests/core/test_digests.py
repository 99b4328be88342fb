"""What is equal has the same hash, and what differs another one."""

import importlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch

from uio_pipes.core.digests import Digest
from uio_pipes.io.background import submit
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opening import Coming
from uio_pipes.io.references import Ref

FACTOR = 2.0


def made(*values: Any) -> bytes:
    return Digest().add(*values).made()


def test_bytes_on_their_way_are_those_that_were_referred_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    ref = Ref(LocalFile(str(tmp_path / "a")), 1, 3, head=b"bcd")
    coming = Coming(ref, submit(lambda _: b"abcdef"), 1)
    assert made(ref) == made(coming) == made(Ref(LocalFile(str(tmp_path / "a")), 1, 3))
    assert made(ref) != made(Ref(LocalFile(str(tmp_path / "a")), 2, 3))


def _scaled(by: float) -> Any:
    return lambda sample: sample * by * FACTOR


def test_a_function_is_its_code_and_what_it_closes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(_scaled(1.0)) == made(_scaled(1.0)) != made(_scaled(2.0))
    before = made(_scaled(1.0))
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert made(_scaled(1.0)) != before


class Encoder:
    gain = 1.0

    def __call__(self, value: float) -> float:
        return self.encoded(value)

    def encoded(self, value: float) -> float:
        return value * self.gain


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = 3, 0

    def forward(self, value: Any) -> Any:
        self.calls += 1
        return value * self.layer


TABLE, WINDOW, CALLS, MODEL, ENCODER = (1, 2), np.ones(3), list[Any](), Model(), Encoder()


@lru_cache
def _looked_up(value: float) -> float:
    return value + FACTOR


def _by_table(value: float) -> Any:
    CALLS.append(value)
    return MODEL(ENCODER(_looked_up(value) * TABLE[0] * WINDOW))


def test_a_function_is_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    before = made(_by_table)
    _by_table(1.0)
    assert made(_by_table) == before  # what was counted is no part of it
    changes = [
        (globals(), "TABLE", (1, 3)),
        (globals(), "WINDOW", np.zeros(3)),
        (globals(), "FACTOR", 5.0),
        (vars(MODEL), "layer", 4),
    ]
    for names, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setitem(names, name, value)
            assert made(_by_table) != before, name
    for kind, name, given in [
        (Encoder, "gain", 2.0),
        (Encoder, "encoded", lambda self, value: value),
        (Model, "forward", lambda self, value: value),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, given)
            assert made(_by_table) != before, name
            assert made(ENCODER) == made(Encoder())
    assert made(_by_table) == before


@pytest.mark.parametrize("kind", [Model, lambda: torch.nn.Linear(1, 1)], ids=["own", "torch's"])
def test_a_model_that_evaluates_is_another_than_one_that_trains(kind: Any) -> None:
    model = kind()
    assert made(model.train()) != made(model.eval())


def _first(value: float) -> float:
    return value + 1


def _second(value: float) -> float:
    return value + 2


def test_an_object_that_comes_again_is_that_one() -> None:
    assert made([_first, _second, _first]) != made([_first, _second, _second])


@dataclass
class Config:
    hop: int
    own: Any = None


class Configured(torch.nn.Module):
    def __init__(self, hop: int, way: str) -> None:
        super().__init__()
        given: dict[str, Any] = {
            "config": Config(hop), "nested": Config(0, Config(hop)), "strides": [hop], "by_name": {"hop": hop},
            "_hop": hop, "theirs": PretrainedConfig(hop=hop),
        }  # fmt: skip
        setattr(self, way, given[way])
        self._calls, self.seen = 0, list[Any]()

    def forward(self, values: Any) -> Any:
        self._calls += 1
        self.seen.append(self._calls)
        return values


class PretrainedConfig:
    """As Hugging Face's."""

    def __init__(self, hop: int) -> None:
        self.given = {"hop": hop, "_name_or_path": str(id(self))}

    def to_dict(self) -> dict[str, Any]:
        return self.given


@pytest.mark.parametrize("way", ["config", "nested", "strides", "by_name", "_hop", "theirs"])
def test_a_model_is_its_settings_wherever_it_has_them(way: str) -> None:
    model = Configured(320, way)
    before = made(model)
    assert before == made(Configured(320, way)) != made(Configured(640, way))
    model(torch.zeros(2))
    assert made(model) == before, "what it counts is no setting"


def test_an_object_is_known_without_its_address() -> None:
    class Locked:
        def __init__(self) -> None:
            self.lock = Lock()

    assert made(Locked()) == made(Locked())


def test_a_function_is_what_it_takes_of_files_beside_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside_it.py").write_text("from also_beside import scaled\n")
    script = "import beside_it\nfrom also_beside import scaled\n"
    script += "def by_module(x): return beside_it.scaled(x)\ndef by_name(x): return scaled(x)\n"
    (tmp_path / "script_here.py").write_text(script)
    found = []
    for factor in (2, 300):
        (tmp_path / "also_beside.py").write_text(f"def scaled(x): return x * {factor}\n")
        for name in ("also_beside", "beside_it", "script_here"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, kept = True, sys.dont_write_bytecode
        here: Any = importlib.import_module("script_here")
        sys.dont_write_bytecode = kept
        found.append((made(here.by_module), made(here.by_name)))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_conjugate_tensors_are_their_values() -> None:
    tensor = torch.tensor([1 + 2j])
    assert made(tensor.conj()) == made(tensor.conj().resolve_conj()) != made(tensor)


def test_a_model_is_its_weights() -> None:
    model = torch.nn.Linear(2, 2)
    before = made(model)
    assert made(model) == before
    with torch.no_grad():
        model.bias += 1
    assert made(model) != before


@pytest.mark.parametrize(
    "pair",
    [(1, 1.0), ("1", 1), (b"1", "1"), ([1, 2], [2, 1]), ([[1], 2], [1, [2]]), (None, ""), ({"a": 1}, {"a": 2}),
     (np.zeros(2, np.int16), np.zeros(2, np.int32)), (torch.zeros(1, 2), torch.zeros(2, 1)), ("a\nb", "a")],
    ids=str,
)  # fmt: skip
def test_others_differ(pair: Any) -> None:
    assert made(pair[0]) == made(pair[0]) != made(pair[1])
