"""``normalize_text``: blanks in Mandarin text, or a function of the user's."""

from pathlib import Path
from typing import Any

import pytest
from helpers_bad import code_points, raw_items, run

import uio_pipes as uio
from uio_pipes.tokenizers.base import remove_blanks


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("而 对 楼市 成交", "而对楼市成交"),
        ("今天 iPhone 15 发布", "今天iPhone 15发布"),
        ("你好　世界\t啊 \n  呀", "你好世界啊呀"),  # an ideographic blank, a tab, several
        ("甲 {NOISE} <SPK> 乙", "甲{NOISE} <SPK>乙"),
        ("好 ， 是 。", "好，是。"),
        ("𠀀 𠀁 㐀 豈", "𠀀𠀁㐀豈"),  # beyond the common block
        ("HELLO WORLD", "HELLO WORLD"),
        ("안녕하세요 세계", "안녕하세요 세계"),
        ("добрый день", "добрый день"),
        ("", ""),
    ],
)
def test_blanks_beside_chinese_characters_go_and_others_stay(text: str, clean: str) -> None:
    assert remove_blanks(text) == clean


def texts(root: Path, function: Any = None, txt: str = "你 好 A B") -> list[str]:
    samples, _ = run(uio.from_raw_list(raw_items(root, 1, txt=txt)).normalize_text(function), failures="raise")
    return [sample["txt"] for sample in samples]


def test_without_a_function_blanks_go(tmp_path: Path) -> None:
    assert texts(tmp_path) == ["你好A B"]


def test_with_a_function_only_that_is_done(tmp_path: Path) -> None:
    assert texts(tmp_path, str.lower) == ["你 好 a b"]


def test_it_acts_on_what_comes_after_it(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 1, txt="a b")).tokenize(code_points).normalize_text(str.upper)
    (sample,), _ = run(graph)
    assert (sample["txt"], sample["label"]) == ("A B", [97, 32, 98])


def test_a_function_that_gives_no_text_and_a_missing_text_are_failures(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2))
    assert run(graph.normalize_text(lambda text: None))[1].stats().skipped == {"bad_text": 2}  # type: ignore[arg-type,return-value]
    assert run(graph.map(_without_text).normalize_text())[1].stats().skipped == {"missing_text": 2}


def _without_text(sample: Any) -> Any:
    del sample["txt"]
    return sample
