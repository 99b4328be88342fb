"""Encodings of OpenAI's package ``tiktoken``: a tiny one is made here, nothing is fetched."""

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_bad import raw_items, run

import uio_pipes as uio

tiktoken = pytest.importorskip("tiktoken")


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


def test_it_travels_to_workers_and_its_print_is_of_its_content(tmp_path: Path) -> None:
    tokenizer = uio.TiktokenTokenizer(encoding())
    again = pickle.loads(pickle.dumps(tokenizer))
    assert repr(again) == repr(tokenizer) == repr(uio.TiktokenTokenizer(encoding()))
    assert repr(tokenizer) != repr(uio.TiktokenTokenizer(encoding((b"he", b"hel"))))
    graph = uio.from_raw_list(raw_items(tmp_path, 3, txt="hello 你")).tokenize(tokenizer)
    here, there = run(graph)[0], run(graph, num_workers=1)[0]
    assert [s["label"] for s in here] == [s["label"] for s in there] == [again.tokenize("hello 你")[1]] * 3


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


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(uio.PipelineError, match=r"pip install 'uio_pipes\[tokenizers\]'"):
        uio.TiktokenTokenizer("cl100k_base")
