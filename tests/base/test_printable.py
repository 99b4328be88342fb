"""Texts for people: numbers with their nouns."""

import pytest

from uio_pipes.base.urls import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "shard", "0 shards"), (1, "shard", "1 shard"), (2, "batch", "2 batches"), (1500, "lane", "1,500 lanes")],
)
def test_nouns_are_counted(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
