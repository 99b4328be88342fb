"""Error rates, and the alignments printed under each other."""

import re
from pathlib import Path

import pytest

pytest.importorskip("jiwer")

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from recipes.common import score as module
from recipes.common.score import Score, align, report, score, split

REFERENCE = {"a": "今天很热", "b": "下雨", "c": "打开灯"}
HYPOTHESIS = {"a": "今天很冷", "b": "下", "c": "打开了灯"}


def test_counts_each_kind_of_error() -> None:
    result = score(REFERENCE, HYPOTHESIS)
    assert result == Score(correct=7, substituted=1, deleted=1, inserted=1)
    assert str(result) == "33.33 % N=9 C=7 S=1 D=1 I=1"
    assert result.cer == pytest.approx(100 / 3)


def test_prints_what_compute_wer_prints() -> None:
    assert list(report(REFERENCE, HYPOTHESIS)) == [
        "utt: a",
        "WER: 25.00 % N=4 C=3 S=1 D=0 I=0",
        "lab: 今 天 很 热",
        "rec: 今 天 很 冷",
        "",
        "utt: b",
        "WER: 50.00 % N=2 C=1 S=0 D=1 I=0",
        "lab: 下 雨",
        "rec: 下",
        "",
        "utt: c",
        "WER: 33.33 % N=3 C=3 S=0 D=0 I=1",
        "lab: 打 开    灯",
        "rec: 打 开 了 灯",
        "",
        "=" * 75,
        "Overall -> 33.33 % N=9 C=7 S=1 D=1 I=1",
        "=" * 75,
    ]


def test_columns_stand_under_each_other_where_widths_differ() -> None:
    (utterance,) = align({"a": "我用 python 写"}, {"a": "我 用 java 写 字"})
    assert utterance.lines()[2:4] == ["lab: 我 用 PYTHON 写", "rec: 我 用 JAVA   写 字"]


@pytest.mark.parametrize(
    ("text", "characters", "words"),
    [
        ("今天 很热", ["今", "天", "很", "热"], ["今天", "很热"]),
        ("我用iPhone打电话", ["我", "用", "IPHONE", "打", "电", "话"], ["我用IPHONE打电话"]),
        ("it's café 3.5", ["IT'S", "CAFÉ", "3.5"], ["IT'S", "CAFÉ", "3.5"]),
        ("你好，Hello, 世界！", ["你", "好", "HELLO", "世", "界"], ["你好，HELLO,", "世界！"]),
        ("<unk>好<NOISE>", ["好"], ["好"]),
        ("　全角　空", ["全", "角", "空"], ["全角", "空"]),
        ("", [], []),
        ("𠀀ｱか한", ["𠀀", "ｱ", "か", "한"], ["𠀀ｱか한"]),
    ],
)
def test_splits_mandarin_into_characters_and_latin_into_words(
    text: str, characters: list[str], words: list[str]
) -> None:
    assert split(text) == characters
    assert split(text, words=True) == words


def test_by_words() -> None:
    assert score({"a": "the cat sat"}, {"a": "The bat sat down"}, words=True) == Score(2, 1, 0, 1)


def test_what_was_not_decoded_is_deleted() -> None:
    assert score({"a": "今天", "b": "下雨"}, {"a": "今天"}) == Score(2, 0, 2, 0)


def test_text_where_nothing_was_said_is_inserted() -> None:
    result = list(align({"a": "今天", "b": ""}, {"a": "今天", "b": "雨"}))
    assert [u.score for u in result] == [Score(2, 0, 0, 0), Score(0, 0, 0, 1)]
    assert result[1].lines()[1:4] == ["WER: 0.00 % N=0 C=0 S=0 D=0 I=1", "lab:", "rec: 雨"]
    assert score({"a": "今天", "b": ""}, {"a": "今天", "b": "雨"}).cer == 50


def edits(a: list[str], b: list[str]) -> int:
    """Levenshtein's distance, by the textbook."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@given(st.lists(st.tuples(st.text("天地人ab ", max_size=8), st.text("天地人ab ", max_size=8)), min_size=1, max_size=5))
def test_alignments_are_shortest_and_spell_both_texts(pairs: list[tuple[str, str]]) -> None:
    reference = {"_": "天", **{str(i): a for i, (a, _) in enumerate(pairs)}}
    hypothesis = {"_": "天", **{str(i): b for i, (_, b) in enumerate(pairs)}}
    for utterance in align(reference, hypothesis):
        ref, hyp = split(reference[utterance.key]), split(hypothesis[utterance.key])
        counted = utterance.score
        assert counted.substituted + counted.deleted + counted.inserted == edits(ref, hyp)
        assert [above for above, _ in utterance.columns if above] == ref
        assert [below for _, below in utterance.columns if below] == hyp
        assert (counted.tokens, counted.tokens - counted.deleted + counted.inserted) == (len(ref), len(hyp))


@pytest.mark.parametrize(("reference", "hypothesis"), [({}, {}), ({"a": ""}, {}), ({"a": "热"}, {"z": "热"})])
def test_refuses_what_does_not_belong_together(reference: dict[str, str], hypothesis: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot score"):
        score(reference, hypothesis)


def test_command_line(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(module.main)
    (tmp_path / "text").write_text("a 今天很热\n")
    (tmp_path / "hyp").write_text("a 今天很冷\n")
    both = [str(tmp_path / "text"), str(tmp_path / "hyp")]
    run = CliRunner().invoke
    assert run(app, both).output.splitlines()[0] == "utt: a"
    assert re.fullmatch(r"=+\nOverall -> 25.00 % .*\n=+\n", run(app, [*both, "--no-alignments"]).output)
    assert "N=1 " in run(app, [*both, "--words"]).output
    failed = run(app, [both[0], str(tmp_path / "nowhere")])
    assert failed.exit_code == 1
    assert "nowhere" in failed.output
