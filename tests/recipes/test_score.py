"""The character error rate."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jiwer")

from recipes.common.score import Score, read_texts, score


def test_counts_each_kind_of_error() -> None:
    reference = {"a": "今天很热", "b": "下雨", "c": "打开灯"}
    hypothesis = {"a": "今天很冷", "b": "下", "c": "打开了灯"}
    result = score(reference, hypothesis)
    assert result == Score(correct=7, substituted=1, deleted=1, inserted=1)
    assert str(result) == "CER 33.33 % N=9 C=7 S=1 D=1 I=1"


def test_what_was_not_decoded_is_deleted() -> None:
    assert score({"a": "今天", "b": "下雨"}, {"a": "今天"}) == Score(2, 0, 2, 0)


def test_text_where_nothing_was_said_is_inserted() -> None:
    assert score({"a": "今天", "b": ""}, {"a": "今天", "b": "雨"}) == Score(2, 0, 0, 1)


def test_blanks_do_not_count_and_texts_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a 今天 很 热\nb\n")
    assert read_texts(tmp_path / "text") == {"a": "今天很热", "b": ""}


@pytest.mark.parametrize(("reference", "hypothesis"), [({}, {}), ({"a": ""}, {}), ({"a": "热"}, {"z": "热"})])
def test_refuses_what_does_not_belong_together(reference: dict[str, str], hypothesis: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot score"):
        score(reference, hypothesis)
