"""Token rows of conversations: labels, loss and places of recordings, from messages and from fields."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import code_points, raw_items, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.text.chat import IGNORE

pytest.importorskip("transformers")
import chat_tokenizers as made

RATE = 16_000
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "what was said?"}]},
    {"role": "assistant", "content": "hello 世界"},
    {"role": "user", "content": [{"type": "text", "text": "and "}, {"type": "audio"}]},
    {"role": "assistant", "content": "hello world"},
]
ASR = [("user", "{wav}transcribe the audio"), ("assistant", "{txt}")]
PLAIN = {"system": "{}\n", "user": "<u>{}\n", "assistant": "<a>{}</a>\n"}


def _quarter(n: uio.Lengths) -> int:
    return n.frames // 4


def _wave(seconds: float) -> np.ndarray[Any, Any]:
    return np.sin(np.arange(int(seconds * RATE), dtype=np.float32))


def talks(*conversations: Any) -> uio.Pipeline:
    """Utterances with these ``messages`` (and other fields, if they are dicts)."""
    found = [one if isinstance(one, dict) else {"messages": one} for one in conversations]
    return uio.from_iterable([{"key": f"k{i}", **one} for i, one in enumerate(found)])


def only(graph: uio.Pipeline, **options: Any) -> Any:
    [sample] = uio.Loader(graph, failures="raise", **options)
    return sample


def failures(graph: uio.Pipeline) -> dict[str, int]:
    delivered, loader = run(graph)
    assert delivered == []
    return dict(loader.stats().skipped)


def text_only(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    texts = [m["content"] if isinstance(m["content"], str) else "how?" for m in messages]
    return [{"role": m["role"], "content": text} for m, text in zip(messages, texts, strict=True)]


TEMPLATES = ["CHATML", "GENERATION", "LLAMA3", "PLAIN_WORDS"]


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_labels_are_those_of_apply_chat_template(name: str, kind: str) -> None:
    tokenizer = getattr(made, kind)(getattr(made, name))
    messages = text_only(TALK)
    sample = only(talks(messages).chat(tokenizer))
    assert sample["label"] == tokenizer.apply_chat_template(messages, return_dict=False)
    assert sample["audio_places"] == []
    learned = tokenizer.decode([label for label in sample["labels"] if label != IGNORE])
    end = {"LLAMA3": "<|eot_id|>", "PLAIN_WORDS": "</s>"}.get(name, "<|im_end|>\n")
    blank = " " if name == "PLAIN_WORDS" and kind == "byte_level" else ""
    if kind == "byte_level":
        assert learned == f"{blank}hello 世界{end}{blank}hello world{end}"
    assert all(label in (IGNORE, token) for token, label in zip(sample["label"], sample["labels"], strict=True))


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_the_loss_is_where_transformers_has_its_mask(kind: str) -> None:
    tokenizer = getattr(made, kind)(made.GENERATION)
    said = tokenizer.apply_chat_template(text_only(TALK), return_assistant_tokens_mask=True, return_dict=True)
    for template in (None, made.CHATML):  # what the template says, and what is found without that
        sample = only(talks(text_only(TALK)).chat(tokenizer, template))
        assert sample["label"] == said["input_ids"]
        assert [label != IGNORE for label in sample["labels"]] == [bool(one) for one in said["assistant_masks"]]


def test_recordings_have_their_places() -> None:
    messages = talks({"messages": TALK, "audio": [_wave(0.4), _wave(0.2)], "audio_sample_rate": [RATE, RATE]})
    tokenizer = made.byte_level()
    graph = messages.decode_audio(of="audio").chat(tokenizer, places=_quarter, audio_token=7)
    sample = only(graph)
    assert [count for _, count in sample["audio_places"]] == [10, 5]
    _check(sample, 7)
    texts = tokenizer.decode(_without(sample["label"], sample["audio_places"]))
    assert texts.startswith("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nwhat was said?<|im_end|>\n")
    (first, _), (second, _) = sample["audio_places"]
    assert tokenizer.decode(sample["label"][:first]).endswith("<|im_start|>user\n")
    assert tokenizer.decode(sample["label"][:second]).endswith("and ")
    assert [count for _, count in only(messages.decode_audio(of="audio").chat(tokenizer))["audio_places"]] == [1, 1]


def _without(label: list[int], places: list[tuple[int, int]]) -> list[int]:
    taken = {at for first, count in places for at in range(first, first + count)}
    return [token for at, token in enumerate(label) if at not in taken]


def _check(sample: Any, audio_token: int) -> None:
    """Places do not overlap, hold the token of audio, and have no loss."""
    end = 0
    for first, count in sample["audio_places"]:
        assert first >= end
        end = first + count
        assert sample["label"][first:end] == [audio_token] * count
        assert sample["labels"][first:end] == [IGNORE] * count
    assert end <= len(sample["label"]) == len(sample["labels"])


def test_placeholders_of_a_model_become_what_its_processor_makes_of_them() -> None:
    qwen = pytest.importorskip("transformers.models.qwen2_audio.processing_qwen2_audio").Qwen2AudioProcessor
    extractor = pytest.importorskip("transformers").WhisperFeatureExtractor(feature_size=8)
    template = qwen.default_chat_template.fget(None)
    tokenizer = made.byte_level(None)  # the template is the processor's, as in the model's own files
    processor = qwen(extractor, tokenizer, chat_template=template)
    waves = [_wave(0.4), _wave(0.2)]
    text = processor.apply_chat_template(TALK, tokenize=False)
    [expected] = processor(text=text, audio=waves, sampling_rate=RATE, return_tensors="np")["input_ids"].tolist()
    graph = talks({"messages": TALK, "audio": waves, "audio_sample_rate": [RATE] * 2}).decode_audio(of="audio")
    sample = only(graph.chat(tokenizer, template, places=_of_qwen, placeholder=processor.audio_token))
    assert sample["label"] == expected
    _check(sample, tokenizer.convert_tokens_to_ids("<|AUDIO|>"))
    other = only(graph.chat(tokenizer, template, placeholder="<|AUDIO|>", audio_token=3))
    assert [other["label"][first] for first, _ in other["audio_places"]] == [3, 3]


def _of_qwen(n: uio.Lengths) -> int:
    return ((n.samples // 160 - 1) // 2 + 1 - 2) // 2 + 1


TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=5), st.integers(0, 2)), max_size=4)


@given(TURNS, st.integers(0, 3), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_every_token_is_there_once_and_places_never_overlap(
    said: list[tuple[str, str, int]], places: int, edge: int | None, plain: bool
) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    for role, text, count in said:
        parts = [{"type": "text", "text": text}, *[{"type": "audio"}] * count]
        messages.append({"role": role, "content": parts})  # type: ignore[dict-item]
    total = sum(count for _, _, count in said)
    waves = {"audio": [_wave(0.1)] * total, "audio_sample_rate": [RATE] * total}
    template = PLAIN if plain else None
    graph = talks({"messages": messages, **waves}).decode_audio(of="audio")
    stage = graph.chat(TOKENIZER, template, places=lambda n: places, audio_token=999, bos=edge, eos=edge)
    sample = only(stage)
    assert len(sample["audio_places"]) == total
    _check(sample, 999)
    assert sample["label"].count(999) == total * places
    rest = _without(sample["label"], sample["audio_places"])
    if edge is not None:
        assert (rest.pop(0), rest.pop()) == (edge, edge)
        learned = messages[-1]["role"] == "assistant"
        assert (sample["labels"][0], sample["labels"][-1]) == (IGNORE, edge if learned else IGNORE)
    pieces = only(talks({"messages": messages, **waves}).decode_audio(of="audio").chat(_letters, PLAIN))
    if plain:
        assert TOKENIZER.decode(rest) == "".join(map(chr, _without(pieces["label"], pieces["audio_places"])))


TOKENIZER = made.byte_level()
_letters = code_points


def test_fields_become_turns_end_to_end(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 6, samples=8000, txt="hello 世界")  # 1 s
    graph = uio.from_raw_list(items).decode_audio().fbank(8).chat(TOKENIZER, turns=ASR, places=_quarter, audio_token=5)
    [batch] = uio.Loader(graph.filter(length="tokens", max_length=500).pack(512, keep=["txt", "wav_places"]))
    counts = [frames // 4 for frames in batch["feats_lengths"].tolist()]
    assert sorted(counts) == [24, 24, 25, 25, 25, 25]
    said = [{"role": role, "content": text.format(wav="", txt=items[0]["txt"])} for role, text in ASR]
    whole = TOKENIZER.apply_chat_template(said, return_dict=False)
    before = len(TOKENIZER.encode("<|im_start|>user\n"))
    assert batch["wav_places"].tolist() == [[before, count] for count in counts]
    tokens, labels = batch["tokens"].reshape(-1), batch["labels"].reshape(-1)
    begins = [0, *(i for i in range(1, len(tokens)) if batch["position_ids"].reshape(-1)[i] == 0)]
    for begin, count, places in zip(begins, counts, batch["feats_places"].tolist(), strict=False):
        end = begin + len(whole) + count
        assert places == [begin + before, count]
        assert _without(tokens[begin:end].tolist(), [(before, count)]) == whole
        learned = labels[begin:end]
        assert TOKENIZER.decode(learned[learned != IGNORE]) == "hello 世界<|im_end|>\n"
    [padded] = uio.Loader(graph.batch(6).pad(keep=["labels"]))
    assert padded["target"].shape == padded["labels"].shape == (6, len(whole) + 25)


def test_names_in_braces_are_texts_or_recordings(tmp_path: Path) -> None:
    waves = {"wav": _wave(0.4), "prompt": _wave(0.2), "sample_rate": RATE, "prompt_sample_rate": RATE}
    said = {**waves, "question": "hello", "info": {"lang": "世界"}}
    graph = talks(said).decode_audio().decode_audio(of="prompt").normalize_text(str.upper, of="question")
    turns = [("user", "{{{question}}} {info.lang}{prompt}"), ("assistant", "{wav}.")]
    sample = only(graph.chat(code_points, PLAIN, turns, _quarter, audio_token=42))
    assert "".join(map(chr, sample["label"])) == "<u>{HELLO} 世界*****\n<a>**********.</a>\n"
    assert sample["prompt_places"] == [(13, 5)]
    assert sample["wav_places"] == [(22, 10)]
    graph = talks(said).chat(code_points, PLAIN, [("user", "{{{question}}}")], loss=[])
    texts = only(graph.normalize_text(str.upper, of="question"))
    assert "".join(map(chr, texts["label"])).startswith("<u>{hello}"), "as it was where chat stands"


def test_several_recordings_of_a_stream_stand_one_after_the_other() -> None:
    graph = talks({"answers": [_wave(0.2), _wave(0.1)], "answers_sample_rate": [RATE] * 2}).decode_audio(of="answers")
    sample = only(graph.chat(code_points, PLAIN, [("user", "{answers}")], _quarter, loss=[]))
    assert sample["answers_places"] == [(3, 5), (8, 2)]
    none = {"answers": [], "answers_sample_rate": []}
    both = talks(none, {"answers": [_wave(0.2)], "answers_sample_rate": [RATE]}, none).decode_audio(of="answers")
    [batch] = uio.Loader(both.chat(code_points, PLAIN, [("user", "{answers}")], _quarter, loss=[]).pack(50))
    assert batch["answers_pcm_places"].tolist() == [[4 + 3, 5]]


def test_nothing_is_decoded_to_know_the_tokens() -> None:
    broken = {"wav": b"no audio", "prompt": b"no audio", "duration": 0.4, "prompt_duration": 0.2, "txt": "hello"}
    graph = talks(broken).decode_audio().decode_audio(of="prompt").fbank(8).fbank(8, of="prompt")
    graph = graph.chat(code_points, PLAIN, [("user", "{wav}{prompt}{txt}")], _quarter, loss=[])
    loader = uio.Loader(graph.filter(length="tokens", max_length=1))
    with pytest.raises(uio.TooManyFailures, match="left out 1 as too_long"):
        list(loader)
    assert loader.stats().skipped == {"too_long": 1}


def test_rest_of_a_message_goes_to_the_template() -> None:
    template = made.CHATML.replace("m['content']", "m['name'] + ': ' + m['content']", 1)
    sample = only(talks([{"role": "user", "name": "Ann", "content": "hello"}]).chat(TOKENIZER, template, loss=["user"]))
    assert "Ann: hello" in TOKENIZER.decode(sample["label"])


@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_a_turn_that_only_calls_tools_has_an_empty_text(content: dict[str, Any]) -> None:
    template = made.CHATML.replace("m['content']", "m['content'] + m['tool_calls'] | default('')", 1)
    call = {"role": "assistant", "tool_calls": "call", **content}
    sample = only(talks([{"role": "user", "content": "hello"}, call]).chat(TOKENIZER, template))
    assert TOKENIZER.decode(sample["label"]).endswith("assistant\ncall<|im_end|>\n")


@pytest.mark.parametrize("name", ["CHATML", "GENERATION"])
def test_tools_go_to_the_template(name: str) -> None:
    tokenizer = made.byte_level("{{ tools[0]['name'] if tools }}" + getattr(made, name))
    talk = {"messages": text_only(TALK), "tools": [{"name": "hello"}]}
    sample = only(talks(talk).chat(tokenizer))
    told = tokenizer.apply_chat_template(talk["messages"], tools=talk["tools"], return_dict=False)
    assert sample["label"] == told
    assert tokenizer.decode(told).startswith("hello<|im_start|>")
    assert only(talks(talk["messages"]).chat(tokenizer))["labels"] == sample["labels"][-len(told) + 1 :]


BLANKLESS = uio.CharTokenizer({"<unk>": 0, "你": 1, "好": 2, "<u>": 3, "<a>": 4, "</a>": 5}, ["<u>", "<a>", "</a>"])


def test_tokenizers_of_ours_and_functions_with_a_plain_template() -> None:
    talk = [{"role": "user", "content": "你 好"}, {"role": "assistant", "content": "好"}]
    template = {"user": "<u>{}", "assistant": "<a>{}</a>"}
    sample = only(talks(talk).chat(BLANKLESS, template))
    assert (sample["label"], sample["labels"]) == ([3, 1, 2, 4, 2, 5], [-100] * 4 + [2, 5])
    both = only(talks(talk).chat(_pairs, template, loss=["user", "assistant"], bos=9, eos=8))
    assert both["label"] == [9, *code_points("<u>你 好<a>好</a>"), 8]
    assert "".join(map(chr, [label for label in both["labels"] if label != IGNORE])) == "你 好好</a>\x08"


def _pairs(text: str) -> tuple[list[str], list[int]]:
    return list(text), code_points(text)


BAD = {
    "no messages": ({}, "missing_messages"),
    "no list": ("hello", "bad_messages"),
    "empty": ([], "bad_messages"),
    "a text for a turn": (["hello"], "bad_messages"),
    "no role": ([{"content": "hello"}], "bad_messages"),
    "a number": ([{"role": "user", "content": 3}], "bad_messages"),
    "an image": ([{"role": "user", "content": [{"type": "image"}]}], "bad_messages"),
    "a part without text": ([{"role": "user", "content": [{"type": "text"}]}], "bad_messages"),
    "an unknown role": ([{"role": "robot", "content": "hello"}], "bad_messages"),
    "no recordings": ({"messages": TALK[:2], "audio": []}, "bad_messages"),
    "too few recordings": ({"messages": TALK, "audio": [_wave(0.1)], "audio_sample_rate": [RATE]}, "bad_messages"),
    "too many recordings": (
        {"messages": TALK[2:3], "audio": [_wave(0.1)], "audio_sample_rate": [RATE]}, "bad_messages",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed_conversations_are_counted(name: str) -> None:
    conversation, reason = BAD[name]
    graph = talks(conversation)
    graph = graph.decode_audio(of="audio") if "audio" in conversation else graph
    assert failures(graph.chat(code_points, PLAIN)) == {reason: 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({}, "missing_text"), ({"txt": 3}, "bad_text"), ({"txt": "hello"}, "missing_audio")],
)
def test_fields_that_turns_want(fields: dict[str, Any], reason: str) -> None:
    turns = [("user", "{txt}{wav}")]
    assert failures(talks(fields).chat(code_points, PLAIN, turns)) == {reason: 1}


def test_answers_that_the_template_rewrites_are_counted() -> None:
    talk = [{"role": role, "content": "a#b"} for role in ("user", "assistant") * 2]
    assert failures(talks(talk).chat(made.byte_level(made.REWRITES))) == {"rewritten_turns": 1}


@pytest.mark.parametrize("roles", [["user"], ["user", "model"], ["user", "assistant"]])
def test_conversations_without_a_loss_are_counted(roles: list[str]) -> None:
    graph = talks([{"role": role, "content": ""} for role in roles])
    template = {role: f"<{role}>{{}}" for role in ("user", "assistant", "model")}
    assert failures(graph.chat(code_points, template)) == {"no_loss": 1}
    with pytest.raises(uio.DataError, match=rf"no token has a loss: the turns are of {', '.join(roles)}, .* loss=\[\]"):
        only(graph.chat(code_points, template))
    assert set(only(graph.chat(code_points, template, loss=[]))["labels"]) == {IGNORE}


def test_a_function_of_places_returns_a_whole_number_of_any_kind() -> None:
    def with_places(count: Any) -> uio.Pipeline:
        graph = talks({"wav": _wave(0.1), "sample_rate": RATE, "txt": "a"}).decode_audio()
        return graph.chat(code_points, PLAIN, ASR, lambda n: count)

    for wrong in (-1, 2.5, "3", None):
        assert failures(with_places(wrong)) == {"bad_length": 1}
    for count in (np.int64(3), torch.tensor(3)):
        [(_, places)] = only(with_places(count))["wav_places"]
        assert (places, type(places)) == (3, int)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tokenizer": code_points}, "tokenizer must be one of the package transformers"),
        ({"tokenizer": 3, "template": PLAIN}, "tokenizer must be"),
        ({"template": 3}, "template must be"),
        ({"template": {"user": "no braces"}}, "once in each text"),
        ({"template": PLAIN, "loss": ["robot"]}, "loss must name roles of the template"),
        ({"template": PLAIN, "placeholder": "<|AUDIO|>"}, "placeholder cannot be combined with a plain template"),
        ({"placeholder": ""}, "placeholder must be"),
        ({"loss": "assistant"}, "loss must be a list"),
        ({"places": 3}, "places must be a function"),
        ({"turns": []}, "turns must list"),
        ({"turns": [("user", "a", "b")]}, "turns must list"),
        ({"turns": [("user", "{")]}, "field names in braces"),
        ({"turns": [("user", "{}")]}, "field names in braces"),
        ({"turns": [("user", "{txt!r}")]}, "field names in braces"),
        ({"bos": "a"}, "bos must be"),
        ({"bos": -1}, "bos must be 0 or more"),
        ({"eos": -1}, "eos must be 0 or more"),
        ({"audio_token": -1}, "audio_token must be 0 or more"),
        ({"audio_token": 1.0}, "audio_token must be a whole number"),
    ],
)
def test_wrong_arguments_fail_when_described(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=f"chat: .*{says}"):
        talks(TALK).chat(**{"tokenizer": TOKENIZER, **arguments})


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        (lambda g: g.random_crop(max_seconds=9), "random_crop changes the length of wav.*put chat after random_crop"),
        (lambda g: g.resample(8000), "put chat after resample"),
        (lambda g: g.speed_perturb(of="prompt"), "speed_perturb changes the length of prompt"),
        (lambda g: g.fbank(8).stack(2), "put chat after fbank"),
        (lambda g: g.tokenize(code_points), "leave tokenize out"),
        (lambda g: g.chat(code_points, PLAIN), "leave chat out"),
    ],
)
def test_stages_that_cannot_come_after_it_are_refused_when_described(stages: Any, says: str) -> None:
    graph = talks({}).decode_audio().decode_audio(of="prompt")
    graph = graph.chat(code_points, PLAIN, [("user", "{wav}{prompt}"), ("assistant", "{txt}")])
    for one in (graph, uio.mix([graph, graph], weights=[1, 1])):
        with pytest.raises(uio.PipelineError, match=says):
            stages(one)
    with pytest.raises(uio.PipelineError, match="put concat before chat"):
        talks({}).chat(code_points, PLAIN).concat(max_seconds=9)
    allowed = graph.volume_perturb().resample(8000, of="other").tokenize(code_points, of="title").decode_audio()
    assert "other" in str(allowed)
    assert talks(TALK).chat(code_points, PLAIN).fbank(8), "its places are those of the stream audio"
    with pytest.raises(uio.PipelineError, match="put chat after speed_perturb"):
        talks(TALK).decode_audio(of="audio").chat(code_points, PLAIN).speed_perturb(of="audio")


def test_a_batch_by_the_length_of_streams_has_to_name_one() -> None:
    graph = talks({"messages": TALK, "audio": [_wave(0.4), _wave(0.2)], "audio_sample_rate": [RATE] * 2})
    graph = graph.decode_audio(of="audio").chat(code_points, PLAIN)
    with pytest.raises(uio.PipelineError, match=r'give length="audio\.frames" or another length'):
        run(graph.dynamic_batch(max_frames=100).pad())
    assert run(graph.dynamic_batch(max_frames=100, length="audio.frames").pad())[1].stats().skipped == {}


@pytest.mark.parametrize("stream", ["wav", "prompt"])
def test_a_recording_has_its_places_once(stream: str) -> None:
    graph = talks({}).decode_audio().decode_audio(of="prompt").normalize_text(of="title")
    texts = [("user", "{title} {title}"), ("assistant", "{txt}")]
    graph.chat(code_points, PLAIN, texts)
    with pytest.raises(uio.PipelineError, match=rf"each stream of audio only once, not \['{stream}'\]; remove"):
        graph.chat(code_points, PLAIN, [*texts, ("user", f"{{{stream}}} and {{{stream}}}")])


def test_a_long_template_is_printed_in_short_and_is_whole_in_fingerprints() -> None:
    graph = talks(TALK).chat(TOKENIZER, made.LLAMA3)
    assert max(map(len, str(graph).splitlines())) < 250
    other = talks(TALK).chat(TOKENIZER, made.LLAMA3 + "{# #}")
    assert graph.fingerprint() != other.fingerprint()
