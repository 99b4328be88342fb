"""Tokenizers of the packages ``tokenizers`` and ``tiktoken``: tiny ones are made here, nothing is fetched."""

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers_bad import raw_items, run

import uio_pipes as uio
from uio_pipes.tools.data.dictionary import write_pieces

tokenizers, tiktoken = (pytest.importorskip(package) for package in ("tokenizers", "tiktoken"))
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


def test_wrong_argument_missing_file_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(uio.PipelineError, match=r"not 3.*any function"):
        uio.HuggingFaceTokenizer(3)
    with pytest.raises(uio.ListError, match=r"none\.json.*no such file"):
        uio.HuggingFaceTokenizer(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(uio.ListError, match=r"bad\.json is not a tokenizer"):
        uio.HuggingFaceTokenizer(tmp_path / "bad.json")


# tiktoken


def encoding(extra: tuple[bytes, ...] = (b"he", b"ll", b"hell", b"hello", "你".encode()[:2], "你".encode())) -> Any:
    """All bytes and a few merges."""
    ranks = {bytes([i]): i for i in range(256)} | {merged: 256 + i for i, merged in enumerate(extra)}
    return tiktoken.Encoding(
        "tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|noise|>": 256 + len(extra)}
    )


def test_its_own_ids_and_readable_tokens() -> None:
    made = encoding()
    tokenizer = uio.TiktokenTokenizer(made)
    tokens, labels = tokenizer.tokenize("hello 你好")
    assert labels == made.encode("hello 你好")
    assert tokens == ["hello", " ", "你", "\\xe5", "\\xa5", "\\xbd"]
    assert tokenizer.vocab_size == 263
    assert isinstance(tokenizer, uio.Tokenizer)
    assert (tokenizer.has_blank, tokenizer.unk_id) == (True, None)


def test_special_tokens_stay_whole_and_labels_lead_back_to_the_text() -> None:
    tokenizer = uio.TiktokenTokenizer(encoding())
    tokens, labels = tokenizer.tokenize("你<|noise|>hello")
    assert tokens == ["你", "<|noise|>", "hello"]
    assert tokenizer.detokenize(labels) == "你<|noise|>hello"


def test_wrong_argument_and_unknown_name() -> None:
    with pytest.raises(uio.PipelineError, match=r"name or a tiktoken\.Encoding, not 3"):
        uio.TiktokenTokenizer(3)
    with pytest.raises(uio.ListError, match=r"no encoding 'o300k'.*cl100k_base"):
        uio.TiktokenTokenizer("o300k")


def test_what_cannot_be_fetched_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    with pytest.raises(uio.ListError, match=r"cl100k_base.*no network.*TIKTOKEN_CACHE_DIR"):
        uio.TiktokenTokenizer("cl100k_base")


def test_each_travels_to_workers_and_its_print_is_of_its_content(bpe: Any, tmp_path: Path) -> None:
    write_pieces(tmp_path, TEXTS, 40)
    symbols, others, model = {"<unk>": 0, "你": 1, "好": 2}, {"<unk>": 0, "你": 2, "好": 1}, tmp_path / "spm.model"
    for make, content, other in (
        (partial(uio.CharTokenizer, non_lang_syms=["{NOISE}"]), symbols, others),
        (partial(uio.SentencePieceTokenizer, model), symbols, others),
        (uio.HuggingFaceTokenizer, bpe, characters("你")),
        (uio.TiktokenTokenizer, encoding(), encoding((b"he", b"hel"))),
    ):
        tokenizer = make(content)
        again = pickle.loads(pickle.dumps(tokenizer))
        assert repr(again) == repr(tokenizer) == repr(make(content)) != repr(make(other))
        assert again.vocab_size == tokenizer.vocab_size
        graph = uio.from_raw_list(raw_items(tmp_path, 3, txt="hello{NOISE}你")).tokenize(tokenizer)
        here, there = run(graph)[0], run(graph, num_workers=1)[0]
        assert [s["label"] for s in here] == [s["label"] for s in there] == [again.tokenize("hello{NOISE}你")[1]] * 3
