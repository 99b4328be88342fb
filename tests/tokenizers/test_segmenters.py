"""Words in front of the dictionary: those of jieba, the same in the dictionary, in training and in every process."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jieba
import pytest
from command import make_wav
from command import uio as command

import uio_pipes as uio
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.tokenizers import base as segmenters
from uio_pipes.tools.data.dictionary import characters, write_table

TEXTS = [
    "我来到北京清华大学",
    "他来到了网易杭研大厦",
    "小明硕士毕业于中国科学院计算所",
    "今天 iPhone 15 发布 hello world",
]
USER = "网易杭研大厦 5 nt\n\n清华 100000\n硕士毕业"


@pytest.fixture
def user_dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "user.dict"
    path.write_text(USER)
    return path


def in_pairs(text: str, size: int = 2) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


@pytest.mark.parametrize("hmm", [True, False])
@pytest.mark.parametrize("with_user", [False, True])
def test_words_are_those_of_jieba(hmm: bool, with_user: bool, user_dictionary: Path) -> None:
    theirs = jieba.Tokenizer()
    if with_user:
        theirs.load_userdict(str(user_dictionary))
    segmenter = uio.JiebaSegmenter(user_dictionary if with_user else None, hmm)
    for text in TEXTS[:3]:
        assert segmenter(text) == theirs.lcut(text, HMM=hmm)
    assert ("网易杭研大厦" in segmenter(TEXTS[1])) == with_user
    assert ("杭研" in segmenter("网易杭研")) == hmm


def test_blanks_between_characters_do_not_count_and_words_of_other_scripts_stay() -> None:
    segmenter = uio.JiebaSegmenter()
    for text in TEXTS[:3]:
        assert segmenter(" ".join(text)) == segmenter(text)
    assert segmenter(TEXTS[3]) == ["今天", "iPhone", "15", "发布", "hello", "world"]


def test_a_dictionary_is_read_once_in_a_process_and_never_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    gen = jieba.Tokenizer.gen_pfdict
    monkeypatch.setattr(jieba.Tokenizer, "gen_pfdict", staticmethod(lambda f: read.append(f) or gen(f)))
    monkeypatch.setattr("marshal.load", lambda _: pytest.fail("a cache of anyone's was read"))
    segmenters._loaded.cache_clear()
    one = uio.JiebaSegmenter()
    assert not read
    for segmenter in (one, pickle.loads(pickle.dumps(one)), uio.JiebaSegmenter()):
        segmenter(TEXTS[0])
    assert len(read) == 1


def test_it_is_pickled_with_its_words_but_without_jiebas(user_dictionary: Path) -> None:
    one = uio.JiebaSegmenter(user_dictionary)
    one(TEXTS[0])
    data = pickle.dumps(one)
    user_dictionary.unlink()
    assert len(data) < 1000
    assert pickle.loads(data)(TEXTS[1]) == one(TEXTS[1])


def test_its_name_changes_with_whatever_changes_words(user_dictionary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {repr(uio.JiebaSegmenter()), repr(uio.JiebaSegmenter(hmm=False)), repr(uio.JiebaSegmenter(user_dictionary))}
    user_dictionary.write_text(USER.replace("5", "6"))
    names.add(repr(uio.JiebaSegmenter(user_dictionary)))
    monkeypatch.setattr(jieba, "__version__", "0.43")
    names.add(repr(uio.JiebaSegmenter()))
    assert len(names) == 5
    tokenizers = [uio.CharTokenizer({"<unk>": 0}, segmenter=one) for one in (in_pairs, partial(in_pairs, size=3), None)]
    shown = [repr(tokenizer) for tokenizer in tokenizers]
    assert len(set(shown)) == 3
    lines = [uio.from_iterable([]).tokenize(tokenizer).fingerprint()[-1] for tokenizer in tokenizers]
    assert len(set(lines)) == 3
    assert not any(" at 0x" in one for one in shown)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff", "cannot read the user dictionary"),
        ("云计算\t5\n".encode(), "line 1: '云计算\\\\t5' is not `word`"),
        ("一\n云 计算 5\n".encode(), "line 2: '云 计算 5' is not `word`"),
        ("云计算 0\n".encode(), "count of 0"),
    ],
)
def test_a_user_dictionary_that_jieba_would_misread_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "user.dict").write_bytes(content)
    with pytest.raises(ListError, match=says):
        uio.JiebaSegmenter(tmp_path / "user.dict")
    with pytest.raises(ListError, match="none"):
        uio.JiebaSegmenter(tmp_path / "none")


@pytest.mark.parametrize("segmenter", [uio.JiebaSegmenter(), in_pairs], ids=["jieba", "function"])
def test_tokens_are_words_and_symbols_stay_whole(segmenter: Callable[[str], list[str]]) -> None:
    words = characters(["他来到了", "他来"], ["{NOISE}"], segmenter)
    table = {word: label for label, word in enumerate(words)}
    tokenizer = uio.CharTokenizer(table, ["{NOISE}"], segmenter=segmenter)
    tokens, labels = tokenizer.tokenize("他来到了{NOISE}他来")
    assert tokens == [*segmenter("他来到了"), "{NOISE}", *segmenter("他来")]
    assert [words[label] for label in labels] == [token if token in table else "<unk>" for token in tokens]
    assert words[:3] == ["<blank>", "<unk>", "<sos/eos>"]
    assert tokenizer.detokenize(labels).startswith("他来到了")


def test_words_go_back_to_text_with_blanks_where_they_were() -> None:
    segmenter = uio.JiebaSegmenter()
    words = characters(TEXTS, None, segmenter)
    tokenizer = uio.CharTokenizer({word: i for i, word in enumerate(words)}, segmenter=segmenter)
    assert [tokenizer.detokenize(tokenizer.tokenize(text)[1]) for text in TEXTS] == [
        *TEXTS[:3], "今天iPhone 15发布hello world",
    ]  # fmt: skip


def test_a_segmenter_excludes_splitting_at_blanks() -> None:
    with pytest.raises(PipelineError, match="without split_with_space"):
        uio.CharTokenizer({"<unk>": 0}, split_with_space=True, segmenter=in_pairs)
    with pytest.raises(PipelineError, match="segmenter must be a function of the text"):
        uio.CharTokenizer({"<unk>": 0}, segmenter="jieba")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_commands_dictionary_knows_all_words_of_training(user_dictionary: Path, tmp_path: Path) -> None:
    """Of transcripts with a blank after every character too, in workers and in the main process."""
    (tmp_path / "a.wav").write_bytes(make_wav(0.3, 0))
    texts = [*(" ".join(text) for text in TEXTS[:3]), TEXTS[3]]
    lines = ({"key": f"U{i}", "wav": f"{tmp_path}/a.wav", "txt": text} for i, text in enumerate(texts))
    (tmp_path / "raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--segmenter", "jieba", "--user-dictionary", "user.dict", "--no-hmm")
    done = command("dict", "raw.list", "words.txt", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    segmenter = uio.JiebaSegmenter(user_dictionary, hmm=False)
    tokenizer = uio.CharTokenizer(tmp_path / "words.txt", segmenter=segmenter)
    pipeline = uio.from_raw_list(tmp_path / "raw.list").tokenize(tokenizer).batch(4)
    for workers in (0, 1):
        found = {s["key"]: s for batch in uio.Loader(pipeline, num_workers=workers) for s in batch}
        assert [found[f"U{i}"]["tokens"] for i in range(4)] == [segmenter(text) for text in TEXTS]
        assert all(tokenizer.unk_id not in sample["label"] for sample in found.values())
    written = [line.split()[0] for line in (tmp_path / "words.txt").read_text().splitlines()]
    assert written == ["<blank>", "<unk>", "<sos/eos>", *sorted({word for text in TEXTS for word in segmenter(text)})]


def test_options_of_a_segmenter_need_one(tmp_path: Path) -> None:
    write_table(tmp_path / "user.dict", ["a"])
    done = command("dict", "raw.list", "words.txt", "--user-dictionary", "user.dict", cwd=tmp_path)
    assert done.returncode == 2
    assert "name the segmenter, as --segmenter jieba" in done.stderr
