"""Tokenizers of Hugging Face's package ``tokenizers``."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_bad import raw_items, run

import uio_pipes as uio

tokenizers = pytest.importorskip("tokenizers")
TEXTS = ["hello world 你好", "hello again 世界", "a world of hopes and dreams", "你好 世界"] * 8


@pytest.fixture(scope="module")
def bpe() -> Any:
    """Byte-level, as GPT-2's: nothing is unknown."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340, special_tokens=["<noise>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    return made


def characters(text: str) -> Any:
    """One token a character of ``text``; the rest is ``<unk>``."""
    vocab = {c: i for i, c in enumerate(["<unk>", *text])}
    return tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))


def test_its_own_tokens_and_ids_from_a_file_or_as_it_is(bpe: Any, tmp_path: Path) -> None:
    bpe.save(str(tmp_path / "tokenizer.json"))
    expected = bpe.encode("hello 你好 <noise> x", add_special_tokens=False)
    for given in (bpe, tmp_path / "tokenizer.json", str(tmp_path / "tokenizer.json")):
        tokenizer = uio.HuggingFaceTokenizer(given)
        assert isinstance(tokenizer, uio.Tokenizer)
        assert tokenizer.tokenize("hello 你好 <noise> x") == (expected.tokens, expected.ids)
        assert tokenizer.vocab_size == bpe.get_vocab_size()
        assert (tokenizer.has_blank, tokenizer.unk_id) == (True, None)
    assert "<noise>" in expected.tokens


def test_labels_lead_back_to_the_text(bpe: Any) -> None:
    tokenizer = uio.HuggingFaceTokenizer(bpe)
    assert tokenizer.detokenize(tokenizer.tokenize("hello 你好 怪")[1]) == "hello 你好 怪"


def test_nothing_is_put_around_cut_or_padded_and_the_users_stays_as_it_was(bpe: Any) -> None:
    given = tokenizers.Tokenizer.from_str(bpe.to_str())
    given.add_special_tokens(["<s>"])
    given.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", given.token_to_id("<s>"))]
    )
    given.enable_truncation(2)
    given.enable_padding(length=50)
    before = given.to_str()
    labels = uio.HuggingFaceTokenizer(given).tokenize("hello world again")[1]
    assert labels == bpe.encode("hello world again").ids
    assert given.to_str() == before
    assert json.loads(before)["truncation"]["max_length"] == 2


def test_what_is_unknown_keeps_its_writing_in_the_tokens() -> None:
    tokenizer = uio.HuggingFaceTokenizer(characters("你好a"))
    assert tokenizer.tokenize("你怪a") == (["你", "怪", "a"], [1, 0, 3])
    assert tokenizer.unk_id == 0


def test_unknown_token_of_a_unigram_model() -> None:
    model = tokenizers.models.Unigram([("<unk>", 0.0), ("你", -1.0), ("好", -1.0)], 0, False)
    tokenizer = uio.HuggingFaceTokenizer(tokenizers.Tokenizer(model))
    assert tokenizer.unk_id == 0
    assert tokenizer.tokenize("你x")[1] == [1, 0]


def test_blanks_that_become_unknown_are_told_from_blanks_that_part_words() -> None:
    assert not uio.HuggingFaceTokenizer(characters("你好")).has_blank
    assert uio.HuggingFaceTokenizer(characters("你好 ")).has_blank
    stripping = characters("你好")
    stripping.normalizer = tokenizers.normalizers.Strip()
    assert not uio.HuggingFaceTokenizer(stripping).has_blank
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "你好": 1}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    assert uio.HuggingFaceTokenizer(words).has_blank


def test_it_travels_to_workers_and_its_print_is_of_its_content(bpe: Any, tmp_path: Path) -> None:
    tokenizer = uio.HuggingFaceTokenizer(bpe)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert repr(again) == repr(tokenizer) == repr(uio.HuggingFaceTokenizer(bpe))
    assert again.tokenize("hello 你好") == tokenizer.tokenize("hello 你好")
    assert repr(uio.HuggingFaceTokenizer(characters("你"))) != repr(uio.HuggingFaceTokenizer(characters("好")))
    graph = uio.from_raw_list(raw_items(tmp_path, 3, txt="hello 你好")).tokenize(tokenizer)
    here, there = run(graph)[0], run(graph, num_workers=1)[0]
    assert [s["label"] for s in here] == [s["label"] for s in there] == [tokenizer.tokenize("hello 你好")[1]] * 3


def test_wrong_argument_missing_file_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(uio.PipelineError, match=r"not 3.*any function"):
        uio.HuggingFaceTokenizer(3)
    with pytest.raises(uio.ListError, match=r"none\.json.*no such file"):
        uio.HuggingFaceTokenizer(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(uio.ListError, match=r"bad\.json is not a tokenizer"):
        uio.HuggingFaceTokenizer(tmp_path / "bad.json")


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(uio.PipelineError, match=r"pip install 'uio_pipes\[tokenizers\]'"):
        uio.HuggingFaceTokenizer("tokenizer.json")
