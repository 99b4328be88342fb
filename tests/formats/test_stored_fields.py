"""Fields come back from bytes with the same types and bits."""

from typing import Any

import numpy as np
import pytest
import torch
from contract import digest

from uio_pipes.formats.stored_fields import dumps, loads

KINDS: dict[str, Any] = {
    "whole": 1 << 70,
    "float": 0.1,
    "infinite": float("inf"),
    "text": "今天 \ud800",
    "none": None,
    "true": True,
    "bytes": b"\0\xff",
    "list": [1, [2.5, "a"], {"b": (1, b"c")}],
    "empty": [],
    "half": torch.tensor([0.5, -0.0, float("inf")], dtype=torch.bfloat16),
    "turned": torch.arange(12.0).reshape(3, 4).T,
    "none_there": torch.empty(0, 80),
    "one": torch.tensor(3),
    "codes": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
    "yes": np.array([True, False]),
    "number": np.float32(0.1),
}


def test_they_come_back_as_they_were() -> None:
    made = loads(bytearray(dumps(KINDS)))
    assert list(made) == list(KINDS)
    for name, value in KINDS.items():
        assert type(made[name]) is type(value), name
        if isinstance(value, torch.Tensor):
            assert made[name].dtype == value.dtype
            assert made[name].shape == value.shape
            assert torch.equal(made[name], value)
        else:
            assert digest(made[name]) == digest(value), name
    made["turned"][0] = 1.0
    made["codes"][0] = 1


def test_views_of_complex_tensors_come_back_as_their_values() -> None:
    tensor = torch.tensor([1 + 2j]).conj()
    found = loads(bytearray(dumps({"whole": tensor, "part": tensor.imag, "none": tensor[:0]})))
    assert torch.equal(found["whole"], tensor)
    assert torch.equal(found["part"], tensor.imag)
    assert found["none"].shape == (0,)


@pytest.mark.parametrize("value", [{1}, object(), torch.nn.Parameter(torch.ones(1)), np.array(["a"]), {1: 2}])
def test_others_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps({"value": value})
