"""Chat templates and tokenizers of transformers: a text cut where recordings stand, and the labels of its pieces."""

import pickle
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.tokenizers.chat_templates import JinjaTemplate, Piece, PlainTemplate, Turn
from uio_pipes.tokenizers.packages import TransformersTokenizer

pytest.importorskip("transformers")
import chat_tokenizers as made

AROUND = {"system": "{}\n", "user": "<u>{}</u>\n", "assistant": "<a>{}</a>\n"}


def turns(*said: tuple[str, str]) -> list[Turn]:
    """Turns of (role, text), where ``*`` is a recording."""
    found = []
    for role, text in said:
        first, *others = text.split("*")
        parts: list[str | None] = [first]
        for other in others:
            parts += [None, other]
        found.append(Turn(role, parts, {}))
    return found


def jinja(template: str, *, placeholder: str | None = None, loss: tuple[str, ...] = ("assistant",)) -> JinjaTemplate:
    return JinjaTemplate(TransformersTokenizer(made.byte_level()), template, placeholder, loss)


def test_a_plain_template_has_its_loss_on_the_content_and_what_ends_it() -> None:
    pieces = PlainTemplate(AROUND, ["assistant"]).pieces(
        turns(("system", "be brief"), ("user", "*what {x}?"), ("assistant", "this*"), ("user", "*"))
    )
    assert pieces == [
        Piece("be brief\n<u>", False),
        Piece("", False, True),
        Piece("what {x}?</u>\n<a>", False),
        Piece("this", True),
        Piece("", True, True),
        Piece("</a>\n", True),
        Piece("<u>", False),
        Piece("", False, True),
        Piece("</u>\n", False),
    ]


def test_what_a_turn_adds_to_the_prompt_of_generation_has_a_loss() -> None:
    pieces = jinja(made.CHATML).pieces(
        turns(("user", "*what?"), ("assistant", "this"), ("user", "x"), ("assistant", ""))
    )
    assert pieces == [
        Piece("<|im_start|>user\n", False),
        Piece("", False, True),
        Piece("what?<|im_end|>\n<|im_start|>assistant\n", False),
        Piece("this<|im_end|>\n", True),
        Piece("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", False),
        Piece("<|im_end|>\n", True),
    ]


def test_a_template_that_says_what_is_generated_is_believed() -> None:
    said = turns(("user", "*what?"), ("assistant", "this"), ("user", "x"), ("assistant", "that*"))
    assert jinja(made.GENERATION).pieces(said) == jinja(made.CHATML).pieces(said)
    only = made.GENERATION.replace("{{ m['content'] + '<|im_end|>' + '\n' }}", "{{ m['content'] }}", 1)
    assert [piece.text for piece in jinja(only).pieces(said) if piece.loss] == ["this", "that", ""]
    everyone = jinja(made.GENERATION, loss=("user", "assistant")).pieces(said)
    assert everyone == jinja(made.CHATML, loss=("user", "assistant")).pieces(said), "it tells of the assistant only"


def test_other_roles_have_a_loss_from_the_end_of_the_turn_before_on() -> None:
    said = turns(("system", "a"), ("user", "b"), ("assistant", "c"))
    learned = [piece.text for piece in jinja(made.CHATML, loss=("user",)).pieces(said) if piece.loss]
    assert learned == ["<|im_start|>user\nb<|im_end|>\n"]


def test_placeholders_are_found_in_what_the_template_makes_of_parts() -> None:
    said = turns(("user", "*and*what?"), ("assistant", "this"))
    pieces = jinja(made.QWEN2_AUDIO, placeholder="<|AUDIO|>").pieces(said)
    places = [piece for piece in pieces if piece.recording]
    assert places == [Piece("<|AUDIO|>", False, True)] * 2
    text = "".join(piece.text for piece in pieces)
    assert "Audio 2: <|audio_bos|><|AUDIO|><|audio_eos|>\nwhat?<|im_end|>" in text
    unknown = made.QWEN2_AUDIO.replace("<|AUDIO|>", "[sound]")
    cut = jinja(unknown, placeholder="[sound]").pieces(said)
    assert [piece.text for piece in cut if piece.recording] == ["", ""], "no token of the tokenizer"


SAID = st.text(st.characters(codec="utf-8", exclude_characters="*\ufdd0\ufdd1\ufdd2"), max_size=12)
TALKS = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), SAID, st.integers(0, 2)), max_size=5)


@given(TALKS, st.sampled_from(["CHATML", "GENERATION", "LLAMA3", "PLAIN_WORDS"]))
@settings(max_examples=150, deadline=None)
def test_pieces_are_all_of_the_text_in_its_order(talk: list[tuple[str, str, int]], name: str) -> None:
    template = getattr(made, name)
    said = turns(("user", "x"), *((role, text + "*" * count) for role, text, count in talk))
    pieces = jinja(template).pieces(said)
    messages = [{"role": turn.role, "content": _shown(turn, "\ue000")} for turn in said]
    whole = made.byte_level(template).apply_chat_template(messages, tokenize=False)
    assert "".join("\ue000" if piece.recording else piece.text for piece in pieces) == whole
    for one, other in pairwise(pieces):
        assert one.recording or other.recording or one.loss != other.loss, "no cut without need"
    plain = PlainTemplate(AROUND, ["assistant"]).pieces(said)
    shown = "".join("*" if piece.recording else piece.text for piece in plain)
    assert shown == "".join(AROUND[turn.role].replace("{}", _shown(turn, "*")) for turn in said)


def _shown(turn: Turn, recording: str) -> str:
    return "".join(recording if part is None else part for part in turn.parts)


@pytest.mark.parametrize(
    ("template", "said", "reason", "says"),
    [
        (made.REWRITES, [("user", "a"), ("assistant", "b#c"), ("user", "d")], "rewritten_turns", "turn 2.*generation"),
        (made.LLAMA3, [("robot", "a")], "bad_messages", "role robot is not known"),
        (made.CHATML, [("assistant", "a")], "bad_messages", "begins with an answer.*put a turn of the user's before"),
        (made.REWRITES, [("user", "*#a"), ("user", "b")], "bad_messages", "0 places of 1 recordings"),
        ("{{ messages[9].role }}", [("user", "a")], "bad_messages", "UndefinedError"),
    ],
)
def test_what_a_template_does_not_take(template: str, said: Any, reason: str, says: str) -> None:
    with pytest.raises(uio.DataError, match=says) as raised:
        jinja(template).pieces(turns(*said))
    assert raised.value.reason == reason


def test_a_text_that_has_the_placeholder_is_told() -> None:
    with pytest.raises(uio.DataError, match="2 places of 1 recordings"):
        jinja(made.QWEN2_AUDIO, placeholder="<|AUDIO|>").pieces(turns(("user", "*<|AUDIO|>")))


def test_a_rewriting_template_serves_conversations_with_one_answer() -> None:
    pieces = jinja(made.REWRITES).pieces(turns(("user", "a"), ("assistant", "b#c")))
    assert [piece.text for piece in pieces if piece.loss] == ["b#c<|im_end|>\n"]


def test_roles_that_a_plain_template_lacks_are_told() -> None:
    with pytest.raises(uio.DataError, match=r"turn 2 is of 'robot'.*it has system, user, assistant.*add it"):
        PlainTemplate(AROUND, []).pieces(turns(("user", "a"), ("robot", "b")))


def test_a_template_of_another_syntax_stops_the_run() -> None:
    with pytest.raises(uio.PipelineError, match="line 1"):
        jinja("{% for %}").pieces(turns(("user", "a")))


# Tokenizers of transformers


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
