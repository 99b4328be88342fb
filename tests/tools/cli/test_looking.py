"""``uio inspect``, ``simulate``, ``bench`` and ``state`` as commands: JSON, files, exit codes, mistakes."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import corpus
import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.io import retry
from uio_pipes.tools.cli import common
from uio_pipes.tools.cli.main import app

Uio = Callable[..., int]


@pytest.fixture
def uio_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain_corpus: Corpus) -> Uio:
    (tmp_path / "graphs.py").write_text(
        "import uio_pipes as uio\n"
        f"def pipeline():\n    return uio.from_shard_list({str(plain_corpus.list)!r}).decode_audio()"
        ".fbank(num_mel_bins=8).batch(4).pad()\n"
        "number = 3\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "train.yaml").write_text(
        "dataset_conf:\n  shuffle: false\n  batch_conf: {batch_type: dynamic, max_frames_in_batch: 400}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(retry, "_hasty", False)  # a command sets it for its whole process

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["uio", *arguments])
        return common.run(app)

    return run


def test_inspect(
    uio_command: Uio, plain_corpus: Corpus, bad_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uio_command("inspect", str(plain_corpus.list), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["utterances"], found["parts"][0]["kind"]) == (25, "shard list")
    assert uio_command("inspect", str(bad_corpus.list)) == 1, "there were failures"
    assert "missing_text" in capsys.readouterr().out


def test_names_of_fields_are_given_to_each_command(
    uio_command: Uio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = corpus.raw_list(tmp_path / "raw", 2).list
    made.write_text(made.read_text().replace('"wav"', '"path"').replace('"txt"', '"words"'))
    names = ("--fields", "wav=path, txt=words")
    for command in (["inspect", str(made)], ["verify", str(made)], ["convert", str(made), "out"]):
        assert uio_command(*command, *names, "--json") == 0
        assert json.loads(capsys.readouterr().out)["utterances"] == 2
    for wrong in ("txt", "txt=", "=a", "txt=a,"):
        assert uio_command("inspect", str(made), "--fields", wrong) == 2
        assert "must be names or expressions by ours" in capsys.readouterr().err


def test_reports_and_drawings(uio_command: Uio, plain_corpus: Corpus) -> None:
    pytest.importorskip("plotly")
    assert uio_command("inspect", str(plain_corpus.list), "--report", "a.html") == 0
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "2", "--out", "b.html") == 0
    assert uio_command("bench", "graphs.py:pipeline", "--seconds", "0.2", "--out", "d.html") == 0
    for name, lanes in (("c", 1), ("e", 2)):  # one lane needs no chart
        loader = uio.Loader(uio.from_shard_list(plain_corpus.list).batch(2), lanes=lanes)
        torch.save({"loader": loader.state_dict()}, f"{name}.pt")
        assert uio_command("state", "show", f"{name}.pt", "--html", f"{name}.html") == 0
    for name, figures in (("a", 0), ("b", 4), ("c", 0), ("d", 0), ("e", 1)):
        assert Path(f"{name}.html").read_text().count("<figure ") == figures, name
    assert "<h1>Where the time goes in graphs.py:pipeline</h1>" in Path("d.html").read_text()
    assert re.search(r"class=about>\d{4}-\d\d-\d\d .*cores?\), Python 3", Path("d.html").read_text())
    assert "on 1 rank<" not in Path("b.html").read_text()
    assert "on 2 ranks</h1>" in Path("b.html").read_text()


def test_the_report_has_the_most_frequent_characters_whatever_they_are(uio_command: Uio, tmp_path: Path) -> None:
    listed = corpus.raw_list(tmp_path / "raw", 3)
    lines = [json.loads(line) for line in listed.list.read_text().splitlines()]
    text = "好好好好\U0002a6b2\U0002a6b2\U0002a6b2天天a"  # the second is in few fonts
    listed.list.write_text("".join(json.dumps(line | {"txt": text}) + "\n" for line in lines))
    assert uio_command("inspect", str(listed.list), "--report", "a.html") == 0
    page = Path("a.html").read_text(encoding="utf-8")
    bar = r'<svg class=share .*?<rect width="([\d.]+)"'
    rows = re.findall(rf"<td>(.)</td><td>(U\+\w+)</td><td class=n>(\d+)</td><td>{bar}", page)
    assert rows == [
        ("好", "U+597D", "12", "100.00"), ("\U0002a6b2", "U+2A6B2", "9", "75.00"), ("天", "U+5929", "6", "50.00"),
        ("a", "U+0061", "3", "25.00"),
    ]  # fmt: skip


def test_simulate_says_that_it_knows_failures_from_headers_alone(
    uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uio_command("simulate", "graphs.py:pipeline", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["failures_known_from_headers"] == 0
    assert "fails only in decoding is not known" in said.err


def test_simulate_shows_the_share_that_is_delivered_and_what_to_do(
    uio_command: Uio, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "4", "--lanes", "8") == 0
    shown = capsys.readouterr().out
    share = re.search(r"utterances delivered +(\d+) of 25 planned \((\d+)%", shown)
    assert share is not None
    assert int(share[2]) == round(int(share[1]) * 4) < 100
    assert "note: To leave out less, make the ranks' shares more equal" in shown
    assert "note: 2 of 8 lanes have nothing to deliver (of number 6, 7), as there are only 6 list items" in shown


def test_simulate(uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "2", "--uneven", "join", "--json") == 0
    captured = capsys.readouterr()
    pipeline = uio.from_shard_list(plain_corpus.list).decode_audio().fbank(num_mel_bins=8).batch(4).pad()
    steps = [sum(1 for _ in uio.Loader(pipeline, rank=r, world_size=2)) for r in range(2)]
    assert json.loads(captured.out)["steps"] == steps
    assert "uio index" in captured.err
    wenet = ("--data", str(plain_corpus.list), "--conf", "train.yaml")
    assert uio_command("simulate", *wenet, "--json") == 0
    assert json.loads(capsys.readouterr().out)["padded_frames_per_batch"]["p100"] <= 400


def test_simulate_tells_batches_by_tokens_in_tokens_and_those_by_both_in_both(
    uio_command: Uio, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("more.py").write_text(
        "import graphs\nimport uio_pipes as uio\n"
        "def list_of(text):\n    return [ord(c) for c in text]\n"
        "before = uio.Pipeline(graphs.pipeline().stages[:-2]).tokenize(list_of)\n"
        "tokens = before.dynamic_batch(max_tokens=40).pad()\n"
        "both = before.bucket_batch(num_buckets=(2, 2), max_frames=400).pad()\n"
    )
    assert uio_command("simulate", "more.py:tokens") == 0
    shown = capsys.readouterr().out
    assert re.search(r"padding +[\d.]+% of the tokens", shown)
    assert "padded tokens per batch" in shown
    assert "frames" not in shown
    assert uio_command("simulate", "more.py:both") == 0
    shown = capsys.readouterr().out
    assert re.search(r"padding +[\d.]+% of the frames, [\d.]+% of the tokens", shown)
    assert re.search(r"largest batch +\d+ utterances × \d+ frames × \d+ tokens", shown)
    assert re.search(r"frames × tokens +batches +utterances +fill +padding of frames +padding of tokens", shown)
    assert re.search(r"up to \d+ × \d+", shown)


def test_buckets_of_data_and_of_a_pipeline(
    uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(plain_corpus.list)
    assert uio_command("buckets", data, "--num-buckets", "3", "-o", "one.json") == 0
    shown = capsys.readouterr().out
    one = json.loads(Path("one.json").read_text())
    assert f"bucket_boundaries={one['bucket_boundaries']}" in shown
    assert "bucket_batch('one.json'" in shown
    assert (len(one["bucket_boundaries"]), one["lengths"], one["utterances"]) == (2, ["frames"], 25)
    assert uio_command("buckets", data, "--num-buckets", "2,2", "-o", "two.json", "--json") == 0
    said = capsys.readouterr()
    two = json.loads(said.out)
    assert two == json.loads(Path("two.json").read_text())
    assert "counts characters as tokens" in said.err
    assert two["lengths"] == ["frames", "tokens"]
    assert sum(bucket["utterances"] for bucket in two["buckets"]) == 25
    source = uio.from_shard_list(data).decode_audio()
    labelled = source.tokenize(lambda text: [ord(c) for c in text])
    for graph, path in ((source, "one.json"), (labelled, "two.json")):
        assert sum(len(batch) for batch in uio.Loader(graph.bucket_batch(path, max_frames=2_000))) == 25
    assert uio_command("buckets", "graphs.py:pipeline", "--num-buckets", "2", "--json") == 0
    of_pipeline = json.loads(capsys.readouterr().out)
    assert (of_pipeline["lengths"], of_pipeline["utterances"]) == (["frames"], 25)
    assert uio_command("buckets", data, "--num-buckets", "2", "--sample", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["utterances"] == 7


def test_buckets_count_failures(uio_command: Uio, bad_corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert uio_command("buckets", str(bad_corpus.list)) == 1
    assert "missing_text" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["DATA", "--num-buckets", "0"], "must be a number of buckets, or two"),
        (["DATA", "--num-buckets", "3,2,1"], "must be a number of buckets, or two"),
        (["DATA", "-o", "out.txt"], "must end in .json"),
        (["DATA", "-o", "none/out.json"], "there is no folder none"),
        (["texts.txt"], "has no audio .*: name a pipeline with your tokenizer"),
        (["graphs.py:pipeline", "--symbols", "lang_char.txt"], "a pipeline of your own has its own stages"),
        (["graphs.py:pipeline", "--num-buckets", "2,2"], "no utterance has a length .*no_tokens"),
        (["endless.py:pipeline"], "has no end"),
        (["DATA", "--symbols", "gone.txt", "--num-buckets", "2,2"], "gone.txt"),
        (["DATA", "--symbols", "lang_char.txt"], "--symbols needs --num-buckets N,N"),
    ],
)
def test_mistakes_with_buckets(
    uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    Path("texts.txt").write_text("hello\nyou there\n")
    Path("endless.py").write_text("import graphs\npipeline = graphs.pipeline().repeat()\n")
    assert uio_command("buckets", *(str(plain_corpus.list) if one == "DATA" else one for one in arguments)) == 2
    assert re.search(told, capsys.readouterr().err)


def test_bench(uio_command: Uio, capsys: pytest.CaptureFixture[str]) -> None:
    assert uio_command("bench", "graphs.py:pipeline", "--seconds", "0.2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"fbank", "pad"} <= {row["stage"] for row in found["rows"]}
    assert found["advice"]


def test_state(uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = uio.from_shard_list(plain_corpus.list).decode_audio().batch(2).pad()
    loader = uio.Loader(pipeline, lanes=2)
    for step, _ in enumerate(loader):
        torch.save({"loader": loader.state_dict()}, f"{step}.pt")
    assert uio_command("state", "show", "1.pt", "--data", str(plain_corpus.list), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [lane["k"] for lane in found["lanes"]] == [1, 1]
    assert sum(map(len, found["items"].values())) == 6
    assert uio_command("state", "show", "1.pt") == 0
    assert re.search(r"over +no ", capsys.readouterr().out)
    torch.save(loader.state_dict(), "end.pt")
    assert uio_command("state", "show", "end.pt") == 0
    assert re.search(r"over +yes ", capsys.readouterr().out), "all lanes are done, so the loader begins the next epoch"
    buffered = uio.Loader(uio.from_shard_list(plain_corpus.list).decode_audio().shuffle(9).batch(2).pad(), lanes=2)
    states = [buffered.state_dict() for _ in buffered]
    for state, told in ((states[-2], "no "), (states[-1], "yes, or nearly: all has been read")):
        torch.save(state, "buffered.pt")
        assert uio_command("state", "show", "buffered.pt") == 0
        assert re.search(rf"over +{told}", capsys.readouterr().out)
    assert uio_command("state", "diff", "1.pt", "1.pt") == 0
    assert uio_command("state", "diff", "1.pt", "4.pt") == 1
    assert uio_command("state", "reshard", "4.pt", "--world-size", "2", "--out", "all.json") == 0
    uio.Loader(pipeline, lanes=2).load_state_dict(json.loads(Path("all.json").read_text()))
    assert uio_command("state", "reshard", "4.pt", "--world-size", "3") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate"], "name a pipeline"),
        (["simulate", "graphs.py"], "train.py:pipeline"),
        (["simulate", "graphs.py:pipline"], "did you mean pipeline"),
        (["simulate", "graphs.py:number"], "is neither a Pipeline nor"),
        (["simulate", "nowhere.py:pipeline"], "no such file"),
        (["simulate", "nowhere:pipeline"], "no module 'nowhere'"),
        (["simulate", "broken.py:pipeline"], "ZeroDivisionError"),
        (["simulate", "graphs.py:pipeline", "--out", "x.png"], "must end in .html"),
        (["simulate", "graphs.py:pipeline", "--out", "none/x.html"], "no folder"),
        (["simulate", "graphs.py:pipeline", "--uneven", "never"], "'never' is not one of"),
        (["simulate", "--data", "no.list", "--data-type", "tar"], "raw, shard or indexed"),
        (["simulate", "--data", "no.list"], "no.list"),
        (["bench", "graphs.py:pipeline", "--second", "3"], "--second"),
        (["inspect", "no.list"], "no.list"),
        (["inspect", "train.yaml"], "uio simulate"),
        (["state", "show", "none.pt"], "none.pt"),
        (["state", "show", "graphs.py"], "graphs.py"),
        (["state", "show", "."], "is a folder"),
        (["state", "show", "e.pt", "--html", "e.txt"], ".html"),
        (["watch", "."], "uio.watch(loader, to='.')"),
        (["watch", ".", "--html", "x.png"], ".html"),
    ],
)
def test_a_mistake_gets_one_line(
    arguments: list[str], words: str, uio_command: Uio, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uio_command(*arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in lines[-1]
    assert len([line for line in lines if not line.startswith("note:")]) == 1
