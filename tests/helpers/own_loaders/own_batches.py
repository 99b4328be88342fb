"""What the scripts of this folder share. Each compares batches that a trainer's own loader makes with those of ours.

They run where the trainer is installed, in a folder that ``uio example .`` has made, and print "the same" at the end.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

import uio_pipes as uio

LIST, TOKENS = "data/raw.list", "data/lang_char.txt"
ANY_TYPE = ("length", "lengths", "mask")  # of which trainers take int32 and int64, bool and int64
ROWS: list[dict[str, str]] = [json.loads(line) for line in Path(LIST).read_text().splitlines()]
TOKENIZER = uio.CharTokenizer(TOKENS)


def check_same(
    own: Iterable[Mapping[str, Any]], ours: Iterable[Mapping[str, Any]], count: int = 12, within: float = 0.0
) -> None:
    """Compare all that the trainer's batches hold, padding included; ``within``: by how much floats may differ.

    Raises: AssertionError at the first difference, or if there are not ``count`` batches.
    """
    found = 0
    for mine, other in zip_longest(own, ours):
        assert (mine is None) == (other is None), "one makes more batches"
        for name, value in mine.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(
                    other[name], value, rtol=0, atol=within, check_dtype=not name.endswith(ANY_TYPE)
                )
            else:
                assert list(other[name]) == list(value), name
        found += 1
    assert found == count, f"{found} batches"
    print("the same")
