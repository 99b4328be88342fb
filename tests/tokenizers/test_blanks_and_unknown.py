"""Blanks that the tokenizer lacks, and unknown tokens, in ``tokenize``."""

import logging
from pathlib import Path
from typing import Any

import pytest
from command import programs
from helpers_bad import raw_items, run

import uio_pipes as uio
from uio_pipes.tools.reports.simulate import simulate

WITHOUT = {"<blank>": 0, "<unk>": 1, "你": 2, "好": 3, "a": 4, "b": 5}
WITH = {**WITHOUT, "▁": 6}
TEXT = "你 好 a b"


class Wenets:
    """As WeNet's own tokenizers look from outside."""

    def __init__(self, table: dict[str, int], split_with_space: bool = False) -> None:
        self.symbol_table, self.split_with_space, self.unk = table, split_with_space, "<unk>"

    def tokenize(self, line: str) -> tuple[list[str], list[int]]:
        tokens = list(line.replace(" ", "▁"))
        return tokens, [self.symbol_table.get(t, 1) for t in tokens]


def labels(root: Path, tokenizer: Any, **options: Any) -> list[int]:
    graph = uio.from_raw_list(raw_items(root, 1, txt=TEXT)).tokenize(tokenizer, **options)
    (sample,), _ = run(graph, failures="raise")
    assert sample["txt"] == TEXT
    return list(sample["label"])


@pytest.mark.parametrize("make", [uio.CharTokenizer, Wenets])
def test_blanks_in_mandarin_go_where_the_tokenizer_has_none(tmp_path: Path, make: Any) -> None:
    assert labels(tmp_path, make(WITHOUT)) == [2, 3, 4, 1, 5]
    assert labels(tmp_path, make(WITH)) == [2, 6, 3, 6, 4, 6, 5]


def test_blanks_go_or_stay_as_told(tmp_path: Path) -> None:
    assert labels(tmp_path, uio.CharTokenizer(WITH), remove_blanks=True) == [2, 3, 4, 6, 5]
    assert labels(tmp_path, uio.CharTokenizer(WITHOUT), remove_blanks=False) == [2, 1, 3, 1, 4, 1, 5]


def test_blanks_stay_where_they_part_tokens_or_nothing_is_known(tmp_path: Path) -> None:
    assert labels(tmp_path, uio.CharTokenizer(WITHOUT, split_with_space=True)) == [2, 3, 4, 5]
    assert labels(tmp_path, Wenets(WITHOUT, split_with_space=True)) == [2, 1, 3, 1, 4, 1, 5]
    assert labels(tmp_path, Wenets({**WITHOUT, "Ġ": 6})) == [2, 1, 3, 1, 4, 1, 5]  # byte-level
    assert labels(tmp_path, lambda text: [ord(c) for c in text]) == [ord(c) for c in TEXT]


# The share of unknown tokens


def corpus(root: Path, count: int = 60) -> uio.Pipeline:
    """Texts of 20 labels each, two of which are in no table here."""
    return uio.from_raw_list(raw_items(root, count, samples=400, txt="你好" * 9 + "囧a怪")).decode_audio()


def test_a_share_above_the_bound_is_told_once_with_examples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(corpus(tmp_path).tokenize(uio.CharTokenizer(WITHOUT)))
    (message,) = [r.getMessage() for r in caplog.records]
    assert "9.5% of the first 1008 labels" in message
    assert "above 1%" in message
    assert "R000 '你好你好" in message
    assert "('囧' '怪')" in message
    assert message.count("囧a怪") == 3  # three examples
    assert "normalize_text" in message


@pytest.mark.parametrize("count", [40, 60])
def test_a_share_within_the_bound_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int) -> None:
    items = raw_items(tmp_path, count, samples=400, txt="你好" * 50 + "囧")
    run(uio.from_raw_list(items).decode_audio().tokenize(uio.CharTokenizer(WITHOUT)))
    assert caplog.records == []


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings since the last call."""
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return [message for message in messages if "unknown tokens" in message]


@pytest.mark.parametrize("options", [{}, {"lanes": 3}, {"num_workers": 2}, {"num_workers": 2, "lanes": 4}], ids=str)
def test_a_short_epoch_tells_at_its_end_once_and_of_all_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    loader = uio.Loader(corpus(tmp_path, 8).tokenize(uio.CharTokenizer({"<unk>": 0})).batch(2).pad(), **options)
    for _ in range(2):
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        assert not told(caplog), "more may come"
        list(batches)
        (message,) = told(caplog)
        assert "100.0% of the 168 labels are unknown tokens" in message


def test_a_plan_that_needs_the_labels_tells_it_too(tmp_path: Path) -> None:
    labelled = corpus(tmp_path, 8).tokenize(uio.CharTokenizer({"<unk>": 0})).filter(length="tokens", min_length=1)
    (note,) = [note for note in simulate(labelled.batch(2).pad(), num_workers=2).notes if "unk" in note]
    assert "100.0% of the 168 labels are unknown tokens" in note


def test_a_share_is_that_of_all_workers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One lane alone is above the bound; none of them is told of by itself."""
    texts = ["囧" * 5 if i == 0 else "你" * 200 for i in range(6)]
    items = [{"key": str(i), "txt": text} for i, text in enumerate(texts)]
    graph = uio.from_iterable(items).sharding_filter().tokenize(uio.CharTokenizer(WITHOUT))
    list(uio.Loader(graph.batch(1), num_workers=2, lanes=6))
    assert not told(caplog)


def test_an_epoch_of_steps_tells_at_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = corpus(tmp_path, 8).tokenize(uio.CharTokenizer({"<unk>": 0})).repeat().batch(1)
    loader = uio.Loader(graph, steps_per_epoch=4)
    for _ in range(2):
        list(loader)
        (message,) = told(caplog)
        assert "100.0% of the" in message


def test_labels_that_filters_leave_out_are_counted_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where the wrong dictionary is why nothing comes."""
    graph = corpus(tmp_path, 8).tokenize(uio.CharTokenizer({"<unk>": 0})).filter(token_max_length=3)
    with pytest.raises(uio.UioError, match=r"filter.* left out 5 as too_short"):
        list(uio.Loader(graph.batch(2), num_workers=1))
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("text", ["hello HELLO", "HELLO"])
def test_a_dictionary_of_the_other_case_is_named_as_the_cause(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for case, other in (("lower", str.lower), ("upper", str.upper)):
        table = {"<unk>": 0, **{token: i for i, token in enumerate("▁" + other("helo"), 1)}}
        graph = uio.from_raw_list(raw_items(tmp_path, 4, txt=text.swapcase() if case == "upper" else text))
        run(graph.tokenize(uio.CharTokenizer(table)))
        (message,) = told(caplog)
        assert "The cause is the case of the letters" in message
        assert f"0 are left in {case} case" in message
        assert f".normalize_text(str.{case})" in message


def test_a_tokenizer_that_fails_in_another_case_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Wenets):
        def tokenize(self, line: str) -> tuple[list[str], list[int]]:
            assert line == "AB"
            return super().tokenize(line)

    assert len(run(uio.from_raw_list(raw_items(tmp_path, 4, txt="AB")).tokenize(Picky(WITHOUT)))[0]) == 4
    assert "Check that the dictionary fits" in told(caplog)[0]


@pytest.mark.parametrize("way", ["loader", "dataset"])
def test_the_warning_comes_from_workers_to_the_terminal(tmp_path: Path, way: str) -> None:
    raw = raw_items(tmp_path, 8, samples=400, txt="你好" * 9 + "囧a怪")
    (tmp_path / "script.py").write_text(SCRIPT.format(way=way, items=raw, table=WITHOUT), encoding="utf-8")
    told = programs(tmp_path / "script.py")
    assert told.count("labels are unknown tokens") == 1, told  # of all workers


SCRIPT = """
import torch
import uio_pipes as uio

if __name__ == "__main__":
    graph = uio.from_raw_list({items!r}).decode_audio().tokenize(uio.CharTokenizer({table!r})).batch(2).pad()
    if "{way}" == "loader":
        batches = uio.Loader(graph, num_workers=2)
    else:
        batches = torch.utils.data.DataLoader(graph.as_dataset(), batch_size=None, num_workers=2)
    for batch in batches:
        pass
"""


@pytest.fixture(autouse=True)
def _warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="uio_pipes")
