"""``tag``: the same fields for all utterances."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import uio_pipes as uio

ITEMS = [{"key": str(i), "txt": "a", "lang": "??", "feat": torch.zeros(5, 2)} for i in range(4)]


def test_tags_replace_fields_and_reach_filters_and_batches() -> None:
    tagged = uio.from_iterable(ITEMS).tag({"lang": "en", "task": "asr"})
    (batch,) = uio.Loader(tagged.filter(lambda s: s["lang"] == "en").batch(4).pad())
    assert batch["langs"] == ["en"] * 4
    assert batch["tasks"] == ["asr"] * 4
    assert not list(uio.Loader(tagged.filter(lambda s: s["lang"] == "??").batch(4).pad()))


def test_a_later_tag_wins() -> None:
    (batch,) = uio.Loader(uio.from_iterable(ITEMS).tag({"lang": "en"}).tag({"lang": "de"}).batch(4).pad())
    assert batch["langs"] == ["de"] * 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "fields must be values by name"),
        ("en", "fields must be values by name"),
        ({1: "en"}, "fields must be values by name"),
        ({"key": "x"}, "a tag cannot be key, or of the audio"),
        ({"wav": "x.wav"}, "a tag cannot be key, or of the audio"),
        ({"lang": ["en"]}, "lang must be a string, a number, True or False"),
    ],
)
def test_wrong_tags_fail_when_described(fields: Any, message: str) -> None:
    with pytest.raises(uio.PipelineError, match=message):
        uio.from_iterable(ITEMS).tag(fields)
