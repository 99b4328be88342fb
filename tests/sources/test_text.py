"""``from_text`` and ``from_jsonl``: text without audio, alone and in pairs."""

import gzip
import json
from pathlib import Path

import pytest
from contract import keys_of
from fault_server import serving
from helpers_bad import code_points
from test_kaldi import run

import uio_pipes as uio
from uio_pipes.base.errors import PipelineError
from uio_pipes.formats.rows import content
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.simulate import simulate

TEXT = "# a heading\n  two blanks before\n\n \t\n\u3000\n{0..3}\nthe last, without an end"


@pytest.fixture(params=["in memory", "on disk"])
def text(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(content, "IN_MEMORY", 1 << 20 if request.param == "in memory" else 0)
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


# Lines


def test_a_line_is_an_utterance_as_it_is_and_blank_lines_are_counted(text: Path) -> None:
    samples, ledger = run(uio.from_text(text))
    found = [(s.key, s["txt"]) for s in samples]
    said = ["# a heading", "  two blanks before", "{0..3}", "the last, without an end"]
    assert found == list(zip(["a.txt:1", "a.txt:2", "a.txt:6", "a.txt:7"], said, strict=True))
    assert (ledger.skipped, ledger.failures) == ({"blank_line": 3, "unclear_end": 1}, 0)
    assert len(uio.Loader(uio.from_text(text).batch(1))) == 4


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 300])
def test_many_lines_in_any_order(tmp_path: Path, end: str, count: int) -> None:
    said = [f"文 {i}" for i in range(count)]
    (tmp_path / "a.txt").write_bytes(end.join([*said, ""]).encode())
    assert [s["txt"] for s in run(uio.from_text(tmp_path / "a.txt"))[0]] == said
    shuffled = [s["txt"] for s in run(uio.from_text(tmp_path / "a.txt", shuffle=True))[0]]
    assert sorted(shuffled) == sorted(said)


def test_a_line_is_no_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\nhello you\n")
    (tmp_path / "hello").mkdir()
    with serving() as server:
        for place in (tmp_path / "a.txt", server.add("a.txt", b"hello\nhello you\n")):
            assert [s["txt"] for s in run(uio.from_text(place))[0]] == ["hello", "hello you"]


def test_compressed_texts_globs_and_files_of_one_name(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt.gz").write_bytes(gzip.compress(f"文{folder}\n".encode()))
    (tmp_path / "a" / "y.txt.gz").write_bytes(gzip.compress(b"y\n"))
    samples, _ = run(uio.from_text(f"{tmp_path}/*/*.txt.gz"))
    keys = [f"{tmp_path}/a/x.txt.gz:1", "y.txt.gz:1", f"{tmp_path}/b/x.txt.gz:1"]
    assert [(s.key, s["txt"]) for s in samples] == list(zip(keys, ["文a", "y", "文b"], strict=True))


@pytest.mark.parametrize("line", [b"\xff\xfe", b"tw\0o"])
def test_a_line_that_is_not_utf8_costs_one_utterance(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n" + line + b"\nthree\n")
    samples, ledger = run(uio.from_text(tmp_path / "a.txt"))
    assert ([s["txt"] for s in samples], ledger.skipped) == (["one", "three"], {"bad_text": 1})
    assert "a.txt, line 2" in ledger.reports[0]


# Pairs


def test_pairs_stay_aligned_where_a_line_is_blank(tmp_path: Path) -> None:
    (tmp_path / "a.zh").write_text("一\n\n三\n四\n")
    (tmp_path / "a.en").write_text("one\ntwo\n \nfour\n")
    samples, ledger = run(uio.from_text({"txt": tmp_path / "a.zh", "target": tmp_path / "a.en"}))
    assert [(s.key, s["txt"], s["target"]) for s in samples] == [("a.zh:1", "一", "one"), ("a.zh:4", "四", "four")]
    assert ledger.skipped == {"blank_line": 2}


# JSON lines


def test_json_lines_keep_their_names(tmp_path: Path) -> None:
    rows = [{"text": "a", "id": 5, "lang": "en"}, {"text": "# b", "key": "k"}, {"text": 7}, {"n": 1}, {"text": ["x"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples, ledger = run(uio.from_jsonl(tmp_path / "a.jsonl"))
    assert [(s.key, s["txt"]) for s in samples] == [("5", "a"), ("k", "# b"), ("a.jsonl:3", "7")]
    assert samples[0]["lang"] == "en"
    assert ledger.skipped == {"missing_text": 1, "bad_text": 1}
    other = uio.from_jsonl(tmp_path / "a.jsonl", text="lang", fields={"key": "text"})
    assert [(s.key, s["txt"]) for s in run(other)[0]] == [("a", "en")]
    assert recognize(str(tmp_path / "a.jsonl")).kind == "text in JSON lines"


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        ('{"content": null}', "missing_text", r"null as 'content', its text \(its names: content\): .*text=…"),
        ('{"x": 1}', "missing_text", r"nothing as 'content', its text \(its names: x\)"),
        ('{"content": true}', "bad_text", "the text is True, not a string"),
        ('{"content": NaN}', "bad_text", "the text is nan, not a string"),
        ('{"content": "a\\ud800"}', "bad_text", "it is not UTF-8"),
        ('"content": "a"}', "bad_line", "not a JSON object"),
        ('{"content": "a", "feat": [1, 2]}', "bad_features", r"the path of a .npy file, not \[1, 2\]"),
    ],
)
def test_a_line_without_text_costs_one_utterance(tmp_path: Path, line: str, reason: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"content": "\\ud83d\\ude00"}}\n{line}\n{{"content": "b"}}\n')
    pipeline = uio.from_jsonl(tmp_path / "a.jsonl", text="content")
    loader = uio.Loader(pipeline.batch(1))
    assert [sample["txt"] for batch in loader for sample in batch] == ["😀", "b"]
    assert loader.stats().skipped == {reason: 1}
    with pytest.raises(uio.DataError, match=rf"a.jsonl, line 2.*{message}"):
        list(uio.Loader(pipeline.batch(1), failures="raise"))


# Behind them


def test_batches_of_text_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join("x" * (i + 1) + "\n" for i in range(9)))
    labelled = uio.from_text(tmp_path / "a.txt", shuffle=True).tokenize(code_points).filter(token_max_length=7)
    loader = uio.Loader(labelled.shuffle(4).batch(3).pad())
    batches = list(loader)
    assert sorted(key for batch in batches for key in keys_of(batch)) == [f"a.txt:{i}" for i in range(1, 8)]
    for batch in batches:
        assert set(batch) == {"keys", "target", "target_lengths"}
        lengths = [int(key.partition(":")[2]) for key in batch["keys"]]
        assert batch["target_lengths"].tolist() == lengths == sorted(lengths, reverse=True)
    assert loader.stats().skipped == {"too_many_tokens": 2}
    assert simulate(labelled.batch(3).pad()).steps == [3]
    stats, padded = loader.stats(), sum(batch["target"].numel() for batch in batches)
    assert (stats.tokens, stats.padded_tokens, stats.hours) == (sum(range(1, 8)), padded, 0)
    assert stats.padding_ratio == stats.token_padding_ratio == 1 - stats.tokens / padded


@pytest.mark.parametrize("by_length", ["sort", "dynamic_batch", "bucket_batch"])
def test_stages_that_go_by_length_say_that_text_has_none(tmp_path: Path, by_length: str) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    arguments = {"dynamic_batch": (100,), "bucket_batch": ([10], [1, 1])}.get(by_length, ())
    pipeline = getattr(uio.from_text(tmp_path / "a.txt"), by_length)(*arguments)
    with pytest.raises(PipelineError):
        run(pipeline)
