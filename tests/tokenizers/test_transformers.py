"""Tokenizers of transformers: what they are in fingerprints, and labels of pieces of a text."""

import pickle
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.tokenizers.packages import TransformersTokenizer

pytest.importorskip("transformers")
import chat_tokenizers as made


def test_its_print_is_of_its_content() -> None:
    one = TransformersTokenizer(made.byte_level())
    assert repr(one) == repr(TransformersTokenizer(made.byte_level())) == repr(pickle.loads(pickle.dumps(one)))
    assert "tokens" in repr(one)
    others = [made.byte_level(made.LLAMA3), made.metaspace(), made.byte_level()]
    others[-1].add_tokens(["<new>"])
    assert len({repr(one), *(repr(TransformersTokenizer(other)) for other in others)}) == 4


def test_what_becomes_of_the_users_tokenizer_changes_nothing() -> None:
    given_one = made.byte_level()
    given_one(["hello world"], truncation=True, max_length=2)
    one = TransformersTokenizer(given_one)
    given_one.add_tokens(["world"])
    [labels] = one.labels(["hello world"])
    assert made.byte_level().decode(labels) == "hello world"


@given(st.lists(st.text(st.sampled_from("ab 你\n.<|im_end|>"), max_size=6), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_labels_of_pieces_are_those_of_the_whole_text(texts: list[str]) -> None:
    for tokenizer in (BYTES, BLANKS):
        own = TransformersTokenizer(tokenizer).labels(texts)
        assert len(own) == len(texts)
        assert list(chain.from_iterable(own)) == tokenizer.encode("".join(texts), add_special_tokens=False)


BYTES, BLANKS = made.byte_level(), made.metaspace()


def test_tokens_are_of_the_piece_that_they_stand_in() -> None:
    own = TransformersTokenizer(BYTES)
    texts = ["hello", " world", "<|im_end|>", "你好 ", "hello"]
    assert [BYTES.decode(labels) for labels in own.labels(texts)] == texts
    labels = TransformersTokenizer(BLANKS).labels(["a,", " he", "</s>"])
    blanks = [BLANKS.convert_ids_to_tokens(one) for one in labels]
    assert blanks == [["▁", "a", ","], ["▁", "h", "e"], ["</s>"]], "one blank before the whole text"


def test_only_whole_tokens_are_one() -> None:
    own = TransformersTokenizer(BYTES)
    assert own.token("<|AUDIO|>") == BYTES.convert_tokens_to_ids("<|AUDIO|>")
    assert own.token("no token") is None


def test_a_tokenizer_without_a_template_is_told_at_once() -> None:
    with pytest.raises(uio.PipelineError, match=r"no chat template.*template="):
        TransformersTokenizer(made.byte_level(None)).template(None)


class Slow:
    """As transformers' tokenizers in Python, which do not say where tokens stand."""

    chat_template, special_tokens_map = made.CHATML, dict[str, str]()

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "b": 1}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(character) for character in text]


def test_a_slow_one_tokenizes_piece_by_piece() -> None:
    own = TransformersTokenizer(Slow())
    assert own.labels(["ab", "", "c"]) == [[97, 98], [], [99]]
    assert repr(own).startswith("Slow(2 tokens ")


def test_labels_of_a_fast_one_through_tokenize() -> None:
    taken = uio.HuggingFaceTokenizer(BYTES)
    assert taken.tokenize("hello <|AUDIO|>")[1] == BYTES.encode("hello <|AUDIO|>", add_special_tokens=False)


@pytest.mark.parametrize("given", [BYTES, BYTES.backend_tokenizer], ids=["transformers", "tokenizers"])
def test_one_that_is_given_as_it_is_gets_the_remedy_when_it_is_described(given: object) -> None:
    """Its own ``tokenize()`` gives no labels."""
    with pytest.raises(uio.PipelineError, match=r"uio.HuggingFaceTokenizer\(tokenizer\) for one of Hugging Face's"):
        uio.from_iterable([{"key": "a", "txt": "b"}]).tokenize(given)
