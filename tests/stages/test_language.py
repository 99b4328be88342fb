"""``language``: by script, by a function, limited to some languages."""

from pathlib import Path
from typing import Any

import pytest
from helpers_bad import raw_items, run

import uio_pipes as uio

ALL = ["zh", "en", "ja", "ko", "ru", "ar", "hi", "th", "el", "he"]


def found(root: Path, text: str, **options: Any) -> str:
    (sample,), _ = run(uio.from_raw_list(raw_items(root, 1, txt=text)).language(**options), failures="raise")
    assert sample["task"] == "transcribe"
    return str(sample["lang"])


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("广州市房地产中介协会分析", "zh"),
        ("IT WAS THE FIRST GREAT SORROW", "en"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "en"),
        ("naïve café", "en"),
        ("これは日本語の文章です", "ja"),
        ("東京タワーへ行く", "ja"),  # more Chinese characters than kana, but kana there are
        ("안녕하세요 세계", "ko"),
        ("добрый день", "ru"),
        ("مرحبا بالعالم", "ar"),
        ("नमस्ते दुनिया", "hi"),
        ("สวัสดีชาวโลก", "th"),
        ("καλημέρα κόσμε", "el"),
        ("שלום עולם", "he"),
    ],
)
def test_script_tells_the_language(tmp_path: Path, text: str, lang: str) -> None:
    assert found(tmp_path, text, limited_langs=ALL) == lang


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("我爱 machine learning 啊", "zh"),  # 3 characters, 2 words
        ("please say 你好 to all of them", "en"),  # 6 words, 2 characters
        ("用 python", "zh"),  # one of each: the first that is named
        ("12 345 !", "zh"),
        ("", "zh"),
        ("これは日本語です", "zh"),  # neither kana nor Japanese: what is left are Chinese characters
        ("добрый день, мир OK", "en"),
    ],
)
def test_limited_to_mandarin_and_english_unless_told_otherwise(tmp_path: Path, text: str, lang: str) -> None:
    assert found(tmp_path, text) == lang


def test_chinese_characters_are_japanese_where_chinese_is_not_expected(tmp_path: Path) -> None:
    assert found(tmp_path, "東京都 Tokyo", limited_langs=["en", "ja"]) == "ja"
    assert found(tmp_path, "東京都", limited_langs=["en", "zh", "ja"]) == "zh"


def test_any_language_of_a_script_of_its_own(tmp_path: Path) -> None:
    assert found(tmp_path, "bonjour 你", limited_langs=["fr", "zh"]) == "fr"
    assert found(tmp_path, "доброго дня", limited_langs=["en", "uk"]) == "uk"


def test_a_function_decides(tmp_path: Path) -> None:
    assert found(tmp_path, "abc", detect=lambda text: f"x-{len(text)}") == "x-3"
    assert found(tmp_path, "abc", detect=str, limited_langs=["en", "fr"]) == "abc"


def test_a_function_that_gives_no_language_and_a_missing_text_are_failures(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2))
    batches, loader = run(graph.language(detect=lambda text: None))  # type: ignore[arg-type,return-value]
    assert (batches, loader.stats().skipped) == ([], {"bad_language": 2})
    batches, loader = run(graph.map(_without_text).language())
    assert (batches, loader.stats().skipped) == ([], {"missing_text": 2})


def _without_text(sample: Any) -> Any:
    del sample["txt"]
    return sample


def test_batch_has_languages_and_tasks(tmp_path: Path) -> None:
    items = [*raw_items(tmp_path, 2, txt="你好"), {**raw_items(tmp_path, 1)[0], "key": "E", "txt": "HELLO"}]
    graph = uio.from_raw_list(items).decode_audio().language().fbank(num_mel_bins=8).batch(3).pad()
    (batch,), _ = run(graph)
    assert dict(zip(batch["keys"], batch["langs"], strict=True))["E"] == "en"
    assert sorted(batch["langs"]) == ["en", "zh", "zh"]
    assert batch["tasks"] == ["transcribe"] * 3
