"""Dictionaries of characters and of SentencePiece pieces."""

import random
from pathlib import Path

import pytest

import uio_pipes as uio
from recipes.aishell.sentences import draw_sentence
from recipes.common.lists import read_lines
from recipes.common.prepare import write_characters
from uio_pipes.tools.data.dictionary import SPECIAL, DictionaryProblem, write_pieces


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(1)
    return [draw_sentence("train", rng).replace(" ", "") for _ in range(300)]


def test_characters_in_wenets_form(tmp_path: Path) -> None:
    assert write_characters(tmp_path, ["今天 很热", "天\u3000冷"]) == 9
    expected = ["<blank> 0", "<unk> 1", "<sos/eos> 2", "▁ 3", "今 4", "冷 5", "天 6", "很 7", "热 8"]
    assert read_lines(tmp_path / "lang_char.txt") == expected
    assert uio.CharTokenizer(tmp_path / "lang_char.txt").tokenize("今天龘") == (["今", "天", "龘"], [4, 6, 1])


def test_pieces_have_the_three_symbols_first_and_labels_as_in_the_list(tmp_path: Path, texts: list[str]) -> None:
    assert write_pieces(tmp_path, iter(texts), 120) == 120
    lines = [line.split() for line in read_lines(tmp_path / "lang_char.txt")]
    assert [token for token, _ in lines[:3]] == list(SPECIAL)
    assert [int(label) for _, label in lines] == list(range(120))
    tokenizer = uio.SentencePieceTokenizer(tmp_path / "spm.model")
    assert tokenizer.vocab_size == 120
    for text in texts[:50]:
        tokens, labels = tokenizer.tokenize(text)
        assert "".join(tokens) == text
        assert len(tokens) < len(text)  # pieces are longer than characters
        assert [lines[label][0] for label in labels] == tokens
        assert not {0, 1, 2} & set(labels)
    assert 1 in tokenizer.tokenize("龘")[1]


def test_characters_after_pieces_leave_no_model(tmp_path: Path, texts: list[str]) -> None:
    write_pieces(tmp_path, texts, 100)
    write_characters(tmp_path, texts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lang_char.txt"]


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, texts: list[str], size: int) -> None:
    with pytest.raises(DictionaryProblem, match=f"no model of {size} pieces can be trained") as caught:
        write_pieces(tmp_path, texts, size)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DictionaryProblem, match="empty"):
        write_characters(tmp_path, ["", " "])
    with pytest.raises(DictionaryProblem):
        write_pieces(tmp_path, [], 100)
