"""Fields of an utterance's text: ``normalize_text``, ``language``, ``speaker``, ``tag`` and ``choose_text``."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import touchdataset
from helpers_bad import members, raw_items, run, shard, shard_list

import uio_pipes as uio
from uio_pipes.tokenizers.base import remove_blanks

# normalize_text


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


def normalized(root: Path, function: Any = None, txt: str = "你 好 A B") -> list[str]:
    samples, _ = run(uio.from_raw_list(raw_items(root, 1, txt=txt)).normalize_text(function), failures="raise")
    return [sample["txt"] for sample in samples]


def test_without_a_function_blanks_go(tmp_path: Path) -> None:
    assert normalized(tmp_path) == ["你好A B"]


def test_with_a_function_only_that_is_done(tmp_path: Path) -> None:
    assert normalized(tmp_path, str.lower) == ["你 好 a b"]


def test_a_function_that_gives_no_text_and_a_missing_text_are_failures(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2))
    assert run(graph.normalize_text(lambda text: None))[1].stats().skipped == {"bad_text": 2}  # type: ignore[arg-type,return-value]
    assert run(graph.map(_without_text).normalize_text())[1].stats().skipped == {"missing_text": 2}


def _without_text(sample: Any) -> Any:
    del sample["txt"]
    return sample


# language


ALL = ["zh", "en", "ja", "ko", "ru", "ar", "hi", "th", "el", "he"]


def found(root: Path, text: str, **options: Any) -> str:
    (sample,), _ = run(uio.from_raw_list(raw_items(root, 1, txt=text)).language(**options), failures="raise")
    assert sample["task"] == "transcribe"
    return str(sample["lang"])


BY_DEFAULT = ["zh", "en"]


@pytest.mark.parametrize(
    ("text", "langs", "lang"),
    [
        ("广州市房地产中介协会分析", ALL, "zh"),
        ("IT WAS THE FIRST GREAT SORROW", ALL, "en"),
        ("ｆｕｌｌ ｗｉｄｔｈ", ALL, "en"),
        ("naïve café", ALL, "en"),
        ("これは日本語の文章です", ALL, "ja"),
        ("東京タワーへ行く", ALL, "ja"),  # more Chinese characters than kana, but kana there are
        ("안녕하세요 세계", ALL, "ko"),
        ("добрый день", ALL, "ru"),
        ("مرحبا بالعالم", ALL, "ar"),
        ("नमस्ते दुनिया", ALL, "hi"),
        ("สวัสดีชาวโลก", ALL, "th"),
        ("καλημέρα κόσμε", ALL, "el"),
        ("שלום עולם", ALL, "he"),
        # A script stands for those of its languages that are expected
        ("東京都 Tokyo", ["en", "ja"], "ja"),
        ("東京都", ["en", "zh", "ja"], "zh"),
        ("bonjour 你", ["fr", "zh"], "fr"),
        ("доброго дня", ["en", "uk"], "uk"),
        ("我爱 machine learning 啊", BY_DEFAULT, "zh"),  # 3 characters, 2 words
        ("please say 你好 to all of them", BY_DEFAULT, "en"),  # 6 words, 2 characters
        ("用 python", BY_DEFAULT, "zh"),  # one of each: the first that is named
        ("12 345 !", BY_DEFAULT, "zh"),
        ("", BY_DEFAULT, "zh"),
        ("これは日本語です", BY_DEFAULT, "zh"),  # neither kana nor Japanese: what is left are Chinese characters
        ("добрый день, мир OK", BY_DEFAULT, "en"),
    ],
)
def test_script_tells_the_language(tmp_path: Path, text: str, langs: list[str], lang: str) -> None:
    assert found(tmp_path, text, **({} if langs == BY_DEFAULT else {"limited_langs": langs})) == lang


def test_a_function_decides(tmp_path: Path) -> None:
    assert found(tmp_path, "abc", detect=lambda text: f"x-{len(text)}") == "x-3"
    assert found(tmp_path, "abc", detect=str, limited_langs=["en", "fr"]) == "abc"


def test_a_function_that_gives_no_language_and_a_missing_text_are_failures(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2))
    batches, loader = run(graph.language(detect=lambda text: None))  # type: ignore[arg-type,return-value]
    assert (batches, loader.stats().skipped) == ([], {"bad_language": 2})
    batches, loader = run(graph.map(_without_text).language())
    assert (batches, loader.stats().skipped) == ([], {"missing_text": 2})


# speaker


TABLE = {"S0002": 1, "S0003": 2, "7": 3}


def numbers(root: Path, names: list[Any], table: Any) -> list[int]:
    items = [{**item, "speaker": name} for item, name in zip(raw_items(root, len(names)), names, strict=True)]
    samples, _ = run(uio.from_raw_list(items).speaker(table), failures="raise")
    return [sample["speaker"] for sample in samples]


def test_names_become_numbers_and_unknown_ones_0(tmp_path: Path) -> None:
    (tmp_path / "spk.txt").write_text("S0002 1\nS0003 2\n7 3\n")
    for table in (TABLE, tmp_path / "spk.txt", str(tmp_path / "spk.txt")):
        assert numbers(tmp_path, ["S0003", "nobody", "S0002", 7], table) == [2, 0, 1, 3]


def test_a_member_of_the_shard_gives_the_name(tmp_path: Path) -> None:
    parts = [*members(1), ("K000.speaker", b"S0003\n")]
    listed = shard_list(tmp_path / "shards.list", [shard(tmp_path / "a.tar", parts)])
    (sample,), _ = run(uio.from_shard_list(listed).speaker(TABLE), failures="raise")
    assert sample["speaker"] == 2


def test_an_utterance_without_a_speaker_is_a_failure(tmp_path: Path) -> None:
    samples, loader = run(uio.from_raw_list(raw_items(tmp_path, 2)).speaker(TABLE))
    assert (samples, loader.stats().skipped) == ([], {"missing_speaker": 2})


def test_another_table_is_another_graph_and_it_prints_short() -> None:
    def graph(table: dict[str, int]) -> uio.Pipeline:
        return uio.from_raw_list("x").speaker(table)

    assert graph(TABLE).fingerprint() == graph(dict(reversed(TABLE.items()))).fingerprint()
    assert graph(TABLE).fingerprint() != graph({**TABLE, "S0002": 9}).fingerprint()
    assert "speaker(3 speakers" in str(graph(TABLE))
    assert pickle.loads(pickle.dumps(graph(TABLE))).fingerprint() == graph(TABLE).fingerprint()


def test_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match=r"none\.txt"):
        uio.Loader(
            uio.from_raw_list([{"key": "a", "wav": "a.wav", "txt": ""}]).speaker(tmp_path / "none.txt")
        ).state_dict()


# tag


UNTAGGED = [{"key": str(i), "txt": "a", "lang": "??", "feat": torch.zeros(5, 2)} for i in range(4)]


def test_tags_replace_fields_and_reach_filters_and_batches() -> None:
    tagged = uio.from_iterable(UNTAGGED).tag({"lang": "en", "task": "asr"})
    (batch,) = uio.Loader(tagged.filter(lambda s: s["lang"] == "en").batch(4).pad())
    assert batch["langs"] == ["en"] * 4
    assert batch["tasks"] == ["asr"] * 4
    with pytest.raises(uio.TooManyFailures, match="left out 4 as filter"):
        list(uio.Loader(tagged.filter(lambda s: s["lang"] == "??").batch(4).pad()))


def test_a_later_tag_wins() -> None:
    (batch,) = uio.Loader(uio.from_iterable(UNTAGGED).tag({"lang": "en"}).tag({"lang": "de"}).batch(4).pad())
    assert batch["langs"] == ["de"] * 4


# choose_text


SEGMENTS = [
    {"start": 0.1, "end": 0.4, "txt": "a", "whisper": "wa", "paraformer": "pa"},
    {"start": "0.5", "end": "0.8", "txt": "b", "whisper": "wb"},
    {"start": 0.9, "end": 1.2, "whisper": "wc", "paraformer": "pc"},
]


def texts(graph: uio.Pipeline, **options: Any) -> tuple[list[str], dict[str, int]]:
    loader = uio.Loader(graph, **options)
    return [sample["txt"] for sample in loader], loader.stats().skipped


def raw(folder: Path, *utterances: dict[str, Any]) -> Path:
    path = folder / "raw.list"
    lines = [{"key": f"k{i}", "wav": "x.wav", "txt": "", **one} for i, one in enumerate(utterances)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chosen(pipeline: uio.Pipeline) -> list[str]:
    """Texts without audio, which is not there."""
    return [sample["txt"] for sample in uio.Loader(pipeline.map(_without_audio))]


def _without_audio(sample: uio.Sample) -> dict[str, Any]:
    return {"key": sample["key"], "txt": sample["txt"]}


def test_the_first_that_is_there(tmp_path: Path) -> None:
    path = raw(
        tmp_path, {"txt": "t", "whisper": "w"}, {"txt": "t"}, {"txt": "t", "whisper": ""}, {"info": {"whisper": "i"}}
    )
    graph = uio.from_raw_list(path)
    assert chosen(graph.choose_text(["whisper", "info.whisper", "txt"])) == ["w", "t", "t", "i"]
    assert chosen(graph.choose_text(["txt", "whisper", "info.whisper"])) == ["t", "t", "t", "i"]


def test_empty_texts_are_taken_only_if_there_is_no_other(tmp_path: Path) -> None:
    assert chosen(uio.from_raw_list(raw(tmp_path, {"whisper": ""})).choose_text(["whisper", "txt"])) == [""]


def test_none_is_counted(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path, touchdataset.speech(4))
    assert texts(uio.from_indexed(folder).choose_text(["speaker"])) == (["S0", "S1", "S2", "S0"], {})
    loader = uio.Loader(uio.from_indexed(folder).choose_text(["whisper", "info.whisper"]), failures="raise")
    with pytest.raises(uio.DataError, match=r"has none of whisper, info\.whisper") as raised:
        next(iter(loader))
    assert raised.value.reason == "missing_text"


def test_drawn_by_weights_among_those_that_are_there(tmp_path: Path) -> None:
    some = [{"txt": "t", "whisper": "w", "paraformer": "p"}] * 1200 + [{"txt": "t", "paraformer": "p"}] * 1200
    graph = uio.from_raw_list(raw(tmp_path, *some)).choose_text(["txt", "whisper", "paraformer"], weights=[3, 2, 1])
    made = chosen(graph)
    all_there, two_there = Counter(made[:1200]), Counter(made[1200:])
    assert abs(all_there["t"] - 600) < 90
    assert abs(all_there["w"] - 400) < 90
    assert abs(two_there["t"] - 900) < 90
    assert set(two_there) == {"t", "p"}


def test_a_transcript_of_a_shard_is_a_member_of_its_own(tmp_path: Path) -> None:
    parts = [("a.txt", b"t"), ("a.whisper", "你好\n".encode()), ("a.bad", b"\xff"), ("a.wav", b"RIFF")]
    source = uio.from_shard_list(shard(tmp_path / "a.tar", parts))
    assert chosen(source.choose_text(["whisper", "txt"])) == ["你好"]
    with pytest.raises(uio.DataError, match="bad is not UTF-8"):
        list(uio.Loader(source.choose_text(["bad", "txt"]).map(_without_audio), failures="raise"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (samples, fields), *_ = touchdataset.speech(1, seconds=(2.0, 2.1))
    return touchdataset.write(tmp_path, [(samples, fields | {"whisper": "all", "info": {"segments": SEGMENTS}})])


TRANSCRIPTS = ["txt", "whisper", "paraformer"]


def test_of_segments(folder: Path) -> None:
    source = uio.from_indexed(folder)
    assert texts(source.segments()) == (["a", "b"], {"missing_text": 1})
    cut = source.segments(texts=TRANSCRIPTS)
    assert texts(cut.choose_text(["paraformer", "txt", "whisper"])) == (["pa", "b", "pc"], {})
    assert texts(cut.choose_text(["paraformer"])) == (["pa", "pc"], {"missing_text": 1})
    assert texts(cut.choose_text(["txt", "whisper"])) == (["a", "b", "wc"], {}), "not the recording's own"


def test_of_joined_segments_each_transcript_is_joined_by_itself(folder: Path) -> None:
    joined = uio.from_indexed(folder).segments(texts=TRANSCRIPTS, merge_seconds=0.8)
    (first, last) = [dict(sample) for sample in uio.Loader(joined)]
    assert (first["txt"], first["whisper"], first["start"], first["end"]) == ("a b", "wa wb", 0.1, 0.8)
    assert "paraformer" not in first, "the second segment has none"
    assert (last["whisper"], last["paraformer"]) == ("wc", "pc")
    assert "txt" not in last
    all_of_it = uio.from_indexed(folder).segments(texts=TRANSCRIPTS, merge_seconds=5)
    assert texts(all_of_it.choose_text(TRANSCRIPTS)) == (["wa wb wc"], {})


def test_segments_without_a_transcript_in_common_are_not_joined(tmp_path: Path) -> None:
    (samples, fields), *_ = touchdataset.speech(1, seconds=(2.0, 2.1))
    listed = [{"start": i / 2, "end": i / 2 + 0.4, name: name} for i, name in enumerate(["txt", "txt", "whisper"])]
    touchdataset.write(tmp_path, [(samples, fields | {"info": {"segments": listed}})])
    joined = uio.from_indexed(tmp_path).segments(texts=TRANSCRIPTS, merge_seconds=5).choose_text(TRANSCRIPTS)
    assert texts(joined) == (["txt txt", "whisper"], {})


def test_of_pieces_no_transcript_is_known(folder: Path) -> None:
    cut = uio.from_indexed(folder).segments(texts=TRANSCRIPTS, cut_seconds=(0.1, 0.15))
    made = [dict(sample) for sample in uio.Loader(cut)]
    assert made
    assert all(sample[name] == "" for sample in made for name in TRANSCRIPTS if name in sample)
    whole = uio.from_indexed(folder).segments(texts=TRANSCRIPTS, of="recording", cut_seconds=(1.0, 9.0))
    assert texts(whole.choose_text(["whisper"])) == (["all"], {})
