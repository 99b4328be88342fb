"""Tokenizers: characters, SentencePiece, any callable; inside a graph and by themselves."""

import io
import pickle
import tempfile
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from helpers_bad import raw_items, run

import uio_pipes as uio
from uio_pipes.tools.data.dictionary import write_pieces

SYMBOLS = {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "你": 3, "好": 4, "a": 5, "▁": 6, "{NOISE}": 7, "<SPK>": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of a few English sentences."""
    buffer = io.BytesIO()
    text = ["HELLO WORLD", "THE FIRST GREAT SORROW OF HIS LIFE", "HELLO AGAIN", "A WORLD OF HOPES AND DREAMS"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=buffer, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    path = tmp_path_factory.mktemp("bpe") / "bpe.model"
    path.write_bytes(buffer.getvalue())
    return path


def table(root: Path, text: str) -> Path:
    path = root / "units.txt"
    path.write_text(text, encoding="utf-8")
    return path


# Characters


def test_characters_blanks_and_unknown_ones() -> None:
    tokens, labels = uio.CharTokenizer(SYMBOLS).tokenize(" 你好 a怪 ")
    assert tokens == ["你", "好", "▁", "a", "怪"]
    assert labels == [3, 4, 6, 5, 1]


def test_dictionary_file_with_the_end_symbol_first_or_last(tmp_path: Path) -> None:
    for text in ("<blank> 0\n<unk> 1\n<sos/eos> 2\n你 3\n", "\ufeff<blank> 0\r\n<unk> 1\r\n你 2\r\n<sos/eos> 3\r\n"):
        tokenizer = uio.CharTokenizer(table(tmp_path, text))
        assert tokenizer.vocab_size == 4
        assert tokenizer.tokenize("你们")[1] == [tokenizer.symbols["你"], 1]


def test_non_linguistic_symbols_are_kept_whole(tmp_path: Path) -> None:
    names = ["{NOISE}", "<SPK>", "[LAUGH]"]
    (tmp_path / "nlsyms").write_text("\n".join(names) + "\n\n")
    for given in (names, tmp_path / "nlsyms", str(tmp_path / "nlsyms")):
        tokens, labels = uio.CharTokenizer(SYMBOLS, given).tokenize("你{NOISE}a [LAUGH]<SPK>好<b>")
        assert tokens == ["你", "{NOISE}", "a", "▁", "[LAUGH]", "<SPK>", "好", "<", "b", ">"]
        assert labels == [3, 7, 5, 6, 1, 8, 4, 1, 1, 1]


def test_a_blank_alone_between_two_symbols_leaves_no_token() -> None:
    """WeNet's way."""
    tokens, _ = uio.CharTokenizer(SYMBOLS, ["{NOISE}", "<SPK>"]).tokenize("<SPK> {NOISE} a")
    assert tokens == ["<SPK>", "{NOISE}", "▁", "a"]


def test_labels_lead_back_to_characters_and_words() -> None:
    characters = uio.CharTokenizer(SYMBOLS, ["{NOISE}"])
    assert characters.detokenize(characters.tokenize("你好 a{NOISE}怪")[1]) == "你好 a{NOISE}<unk>"
    words = uio.CharTokenizer(SYMBOLS, split_with_space=True)
    assert words.tokenize("你  好 a") == (["你", "好", "a"], [3, 4, 5])
    assert words.detokenize([3, 4, 5]) == "你 好 a"


@pytest.mark.parametrize("symbol", ["#1", "NOISE", "{NOISE", "{A B}", "<>", "<<aaa>>", "{{BBB}}", "[[ccc]]"])
def test_what_is_no_non_linguistic_symbol_is_refused(symbol: str) -> None:
    """The last three are in WeNet's list of invalid ones."""
    with pytest.raises(uio.UioError, match="non-linguistic"):
        uio.CharTokenizer(SYMBOLS, [symbol])


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), ("你 3\n好\n", "line 2"), ("你 x\n", "line 1"), ("a b 3\n", "line 1"), ("a 1\n\nb -2\n", "line 3")],
)
def test_wrong_dictionary_names_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(uio.ListError, match=says) as error:
        uio.CharTokenizer(table(tmp_path, text))
    assert "units.txt" in str(error.value)


def test_missing_dictionary_and_dictionary_without_unk(tmp_path: Path) -> None:
    with pytest.raises(
        uio.ListError, match=r"cannot read the symbol table of CharTokenizer, .*none\.txt: No such file"
    ):
        uio.CharTokenizer(tmp_path / "none.txt")
    with pytest.raises(uio.PipelineError, match=r"<unk>.*unk="):
        uio.CharTokenizer({"a": 0})
    assert uio.CharTokenizer({"a": 0, "?": 1}, unk="?").tokenize("ab")[1] == [0, 1]


# SentencePiece


def test_pieces_and_ids_of_the_model(model: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(str(model))
    tokenizer = uio.SentencePieceTokenizer(model)
    assert tokenizer.tokenize("HELLO WORLD") == (
        reference.encode("HELLO WORLD", out_type=str),
        reference.encode("HELLO WORLD"),
    )
    assert tokenizer.vocab_size == reference.get_piece_size()


def test_with_a_symbol_table_text_is_raised_and_characters_stand_alone(model: Path, tmp_path: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(str(model))
    pieces = reference.encode("HELLO", out_type=str)
    symbols = {"<blank>": 0, "<unk>": 1, "你": 2, **{p: 3 + i for i, p in enumerate(dict.fromkeys(pieces))}}
    text = "".join(f"{s} {i}\n" for s, i in symbols.items())
    tokenizer = uio.SentencePieceTokenizer(model, table(tmp_path, text))
    tokens, labels = tokenizer.tokenize("hello 你好")
    assert tokens == [*reference.encode("HELLO ", out_type=str), "你", "好"]
    assert labels == [symbols.get(t, 1) for t in tokens]
    assert labels[-2:] == [2, 1]
    assert tokenizer.vocab_size == max(symbols.values()) + 1


@pytest.mark.parametrize("text", ["hello world", "Hello World", "HELLO WORLD", "你好 world"])
def test_a_table_of_the_models_own_pieces_changes_nothing(text: str, tmp_path: Path) -> None:
    """Such as ``uio spm`` writes."""
    write_pieces(tmp_path, [text, "the great sorrow of life", "Good Luck"] * 20, 40)
    own, with_table = (
        uio.SentencePieceTokenizer(tmp_path / "spm.model", given) for given in (None, tmp_path / "lang_char.txt")
    )
    assert with_table.tokenize(text) == own.tokenize(text)
    assert with_table.unk_id not in with_table.tokenize(text)[1]
    assert with_table.detokenize(with_table.tokenize(text)[1]) == text
    assert with_table.vocab_size == own.vocab_size
    again = pickle.loads(pickle.dumps(with_table))
    assert again.tokenize(text) == own.tokenize(text)


def test_text_is_not_raised_for_pieces_in_lower_case(tmp_path: Path) -> None:
    """With other ids, or a few pieces only, it is a table as WeNet makes it."""
    write_pieces(tmp_path, ["hello world", "the great sorrow of life"] * 20, 40)
    pieces = uio.SentencePieceTokenizer(tmp_path / "spm.model").tokenize("hello world")[0]
    tokenizer = uio.SentencePieceTokenizer(
        tmp_path / "spm.model", {"<blank>": 0, "<unk>": 1, **{p: 2 + i for i, p in enumerate(pieces)}}
    )
    assert tokenizer.tokenize("hello world")[0] == pieces
    assert 1 not in tokenizer.tokenize("hello world")[1]


def test_labels_lead_back_to_text(model: Path) -> None:
    own = uio.SentencePieceTokenizer(model)
    assert own.detokenize(own.tokenize("HELLO WORLD")[1]) == "HELLO WORLD"
    pieces = dict.fromkeys(own.tokenize("HELLO WORLD")[0])
    mixed = uio.SentencePieceTokenizer(model, {"<unk>": 0, "你": 1, **{p: 2 + i for i, p in enumerate(pieces)}})
    assert mixed.detokenize(mixed.tokenize("hello 你 world")[1]) == "HELLO你 WORLD"


def test_unknown_pieces_are_written_as_in_the_text(model: Path) -> None:
    tokens, labels = uio.SentencePieceTokenizer(model).tokenize("HELLO 怪")
    assert tokens[-1] == "怪"
    assert labels[-1] == uio.SentencePieceTokenizer(model).unk_id
    assert len(tokens) == len(labels)


def test_non_linguistic_symbols_stay_whole_among_pieces(model: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(str(model))
    pieces = dict.fromkeys(reference.encode("HELLO WORLD", out_type=str))
    symbols = {"<unk>": 0, "<SPK>": 1, "{NOISE}": 2, "你": 3, **{p: 4 + i for i, p in enumerate(pieces)}}
    tokenizer = uio.SentencePieceTokenizer(model, symbols, non_lang_syms=["<SPK>", "{NOISE}"])
    tokens, labels = tokenizer.tokenize("<spk> {NOISE} hello 你{noise}world")  # WeNet finds them in any case
    hello, world = reference.encode("HELLO", out_type=str), reference.encode("WORLD", out_type=str)
    assert tokens == ["<SPK>", "{NOISE}", *hello, "你", "{NOISE}", *world]
    assert labels == [symbols[t] for t in tokens]
    again = pickle.loads(pickle.dumps(tokenizer))
    assert (again.tokenize("<SPK>hello"), repr(again)) == (tokenizer.tokenize("<SPK>hello"), repr(tokenizer))
    assert repr(uio.SentencePieceTokenizer(model, symbols)) != repr(tokenizer)


def test_non_linguistic_symbols_that_are_pieces_of_the_model() -> None:
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["HELLO WORLD", "GREAT SORROW OF LIFE"] * 20), model_writer=buffer, vocab_size=60,
        hard_vocab_limit=False, minloglevel=2, user_defined_symbols=["{NOISE}"],
    )  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        Path(file.name).write_bytes(buffer.getvalue())
        tokenizer = uio.SentencePieceTokenizer(file.name, non_lang_syms=["{NOISE}"])
    reference = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    tokens, labels = tokenizer.tokenize("HELLO {NOISE} WORLD")
    assert tokens.count("{NOISE}") == 1
    assert labels[tokens.index("{NOISE}")] == reference.piece_to_id("{NOISE}") != tokenizer.unk_id


def test_missing_or_wrong_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match=r"none\.model"):
        uio.SentencePieceTokenizer(tmp_path / "none.model")
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(uio.ListError, match=r"bad\.model"):
        uio.SentencePieceTokenizer(tmp_path / "bad.model")


# In a graph


CALLABLES: list[Any] = [
    lambda text: [ord(c) for c in text],
    lambda text: (list(text), [ord(c) for c in text]),
    lambda text: np.array([ord(c) for c in text]),
    lambda text: (ord(c) for c in text),
    lambda text: UserDict(input_ids=[ord(c) for c in text]),  # as transformers' BatchEncoding
]


@pytest.mark.parametrize("function", CALLABLES)
def test_any_callable(tmp_path: Path, function: Any) -> None:
    (batch,), _ = run(uio.from_raw_list(raw_items(tmp_path, 1)).tokenize(function), failures="raise")
    assert batch["label"] == [ord("字"), ord("0")]
    assert all(type(i) is int for i in batch["label"])


def test_a_tuple_of_labels_is_labels(tmp_path: Path) -> None:
    (batch,), _ = run(uio.from_raw_list(raw_items(tmp_path, 1)).tokenize(lambda text: (5, 6, 7)), failures="raise")
    assert batch["label"] == [5, 6, 7]


@pytest.mark.parametrize("function", [lambda text: None, lambda text: ["a"], lambda text: 5, lambda text: {"ids": []}])
def test_a_callable_that_gives_no_labels_is_a_failure(tmp_path: Path, function: Any) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).tokenize(function)
    batches, loader = run(graph)
    assert (batches, loader.stats().skipped) == ([], {"tokenize_failed": 2})
    with pytest.raises(uio.DataError, match=r"a tokenizer must return the labels of a text, .*, not "):
        run(graph, failures="raise")
