"""``tag``: the same fields for all utterances."""

import pytest
import torch

import uio_pipes as uio

ITEMS = [{"key": str(i), "txt": "a", "lang": "??", "feat": torch.zeros(5, 2)} for i in range(4)]


def test_tags_replace_fields_and_reach_filters_and_batches() -> None:
    tagged = uio.from_iterable(ITEMS).tag({"lang": "en", "task": "asr"})
    (batch,) = uio.Loader(tagged.filter(lambda s: s["lang"] == "en").batch(4).pad())
    assert batch["langs"] == ["en"] * 4
    assert batch["tasks"] == ["asr"] * 4
    with pytest.raises(uio.TooManyFailures, match="left out 4 as filter"):
        list(uio.Loader(tagged.filter(lambda s: s["lang"] == "??").batch(4).pad()))


def test_a_later_tag_wins() -> None:
    (batch,) = uio.Loader(uio.from_iterable(ITEMS).tag({"lang": "en"}).tag({"lang": "de"}).batch(4).pad())
    assert batch["langs"] == ["de"] * 4
