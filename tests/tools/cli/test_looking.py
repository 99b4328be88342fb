"""``uio inspect``, ``simulate``, ``bench`` and ``state`` as commands: JSON, files, exit codes, mistakes."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

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
        "batches = {'batch_type': 'dynamic', 'max_frames_in_batch': 400}\n"
        f"wenet = uio.wenet_dataset('shard', {str(plain_corpus.list)!r}, None, {{'batch_conf': batches}})\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "train.yaml").write_text("dataset_conf:\n  shuffle: false\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(retry, "_hasty", False)  # a command sets it for its whole process

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["uio", *arguments])
        return common.run(app)

    return run


def test_reports_and_drawings(uio_command: Uio, plain_corpus: Corpus) -> None:
    pytest.importorskip("plotly")
    assert uio_command("inspect", str(plain_corpus.list), "--report", "a.html") == 0
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "2", "--out", "b.html") == 0
    assert uio_command("bench", "graphs.py:pipeline", "--seconds", "0.2", "--out", "d.html") == 0
    for name, figures in (("a", 0), ("b", 4), ("d", 0)):
        assert Path(f"{name}.html").read_text().count("<figure ") == figures, name
    assert "<h1>Where the time goes in graphs.py:pipeline</h1>" in Path("d.html").read_text()
    assert re.search(r"class=about>\d{4}-\d\d-\d\d .*cores?\), Python 3", Path("d.html").read_text())
    assert "on 1 rank<" not in Path("b.html").read_text()
    assert "on 2 ranks</h1>" in Path("b.html").read_text()


def test_simulate_shows_the_share_that_is_delivered_and_what_to_do(
    uio_command: Uio, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "4", "--lanes", "8", "--uneven", "stop") == 0
    shown = capsys.readouterr().out
    share = re.search(r"utterances delivered +(\d+) of 25 planned \((\d+)%", shown)
    assert share is not None
    assert int(share[2]) == round(int(share[1]) * 4) < 100
    assert "To leave out fewer, make the ranks' shares more equal" in shown
    assert "2 of 8 lanes have nothing to deliver (of number 6, 7), as there are only 6 list items" in shown


def test_simulate(uio_command: Uio, plain_corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert uio_command("simulate", "graphs.py:pipeline", "--world-size", "2", "--uneven", "join", "--json") == 0
    captured = capsys.readouterr()
    pipeline = uio.from_shard_list(plain_corpus.list).decode_audio().fbank(num_mel_bins=8).batch(4).pad()
    steps = [sum(1 for _ in uio.Loader(pipeline, rank=r, world_size=2)) for r in range(2)]
    assert json.loads(captured.out)["steps"] == steps
    assert json.loads(captured.out)["failures_known_from_headers"] == 0
    assert "fails only in decoding is not known" in captured.err
    assert "uio index" in captured.err
    assert uio_command("simulate", "graphs.py:wenet", "--json") == 0
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
    assert uio_command("state", "1.pt", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [lane["k"] for lane in found["lanes"]] == [1, 1]
    assert uio_command("state", "1.pt") == 0
    assert re.search(r"over +no ", capsys.readouterr().out)
    torch.save(loader.state_dict(), "end.pt")
    assert uio_command("state", "end.pt") == 0
    assert re.search(r"over +yes ", capsys.readouterr().out), "all lanes are done, so the loader begins the next epoch"
    buffered = uio.Loader(uio.from_shard_list(plain_corpus.list).decode_audio().shuffle(9).batch(2).pad(), lanes=2)
    states = [buffered.state_dict() for _ in buffered]
    for state, told in ((states[-2], "no "), (states[-1], "yes, or nearly: all has been read")):
        torch.save(state, "buffered.pt")
        assert uio_command("state", "buffered.pt") == 0
        assert re.search(rf"over +{told}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "graphs.py"], "train.py:pipeline"),
        (["simulate", "graphs.py:pipline"], "did you mean pipeline"),
        (["simulate", "graphs.py:number"], "is neither a Pipeline nor"),
        (["simulate", "nowhere.py:pipeline"], "no such file"),
        (["simulate", "nowhere:pipeline"], "no module 'nowhere'"),
        (["simulate", "broken.py:pipeline"], "ZeroDivisionError"),
        (["simulate", "graphs.py:pipeline", "--out", "x.png"], "must end in .html"),
        (["simulate", "graphs.py:pipeline", "--out", "none/x.html"], "no folder"),
        (["simulate", "graphs.py:pipeline", "--uneven", "never"], "'never' is not one of"),
        (["bench", "graphs.py:pipeline", "--second", "3"], "--second"),
        (["inspect", "no.list"], "no.list"),
        (["inspect", "train.yaml"], "uio.wenet_dataset"),
        (["inspect", "train.yaml", "--fields", "txt="], "must be names or expressions by ours"),
        (["inspect", "train.yaml", "--fields", "txt"], "must be names or expressions by ours"),
        (["state", "none.pt"], "none.pt"),
        (["state", "graphs.py"], "graphs.py"),
        (["state", "."], "is a folder"),
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
