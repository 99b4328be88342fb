"""A format from outside the package: that of CONTRIBUTING.md as it stands there, in Python and in the commands."""

import json
import re
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import uio as command
from contract import restored

import uio_pipes as uio

RATE = 16_000
PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"^```python\n# prompts\.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
LEFT_OUT = {"missing_text": 1, "unread": 1}
KEYS = [f"k{number:02d}" for number in range(20)]
CODES = """
import torch
from prompts import Prompts

audio = Prompts("data/prompts.txt").pipeline.decode_audio()
codes = audio.encoded("cache", ["codes"], by="halves").batch(4).pad()


def model():
    class Halves(torch.nn.Module):
        def forward(self, pcm, lengths):
            return (pcm[:, ::2] > 0).long(), (lengths + 1) // 2

    return Halves().eval()
"""


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class, of a file beside the data, which are in ``data``."""
    (tmp_path / "prompts.py").write_text(CODE)
    (tmp_path / "data" / "clips").mkdir(parents=True)
    lines = ["unread||words", "silent|u00.wav| "]
    for number in range(20):
        with wave.open(str(tmp_path / "data" / "clips" / f"u{number:02d}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(bytes(2 * RATE // 10 * (1 + number % 3)))
        lines.append(f"k{number:02d}|u{number:02d}.wav|text {number}")
    (tmp_path / "data" / "prompts.txt").write_text("\n".join([*lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield __import__("prompts").Prompts
    sys.modules.pop("prompts")


TABLE = "data/prompts.txt"
NAMED = f"prompts.py:Prompts:{TABLE}"


def keys(batches: Any) -> list[list[str]]:
    return [batch["keys"] for batch in batches]


def graph(pipeline: uio.Pipeline) -> uio.Pipeline:
    return pipeline.decode_audio().shuffle(5).dynamic_batch(max_frames=60).pad()


def test_it_has_40_lines_at_most() -> None:
    assert sum(bool(line.strip()) for line in CODE.splitlines()) <= 40


@pytest.mark.parametrize("stop", [1, 4])
def test_it_resumes_in_mid_epoch_and_notices_other_rows(prompts: Any, stop: int) -> None:
    pipeline = graph(prompts(TABLE, shuffle=True).pipeline)
    whole = keys(uio.Loader(pipeline, lanes=2))
    assert sorted(key for batch in whole for key in batch) == KEYS
    loader = uio.Loader(pipeline, lanes=2)
    batches = iter(loader)
    first = [next(batches) for _ in range(stop)]
    resumed = restored(pipeline, loader.state_dict(), lanes=2)
    assert keys(first) + keys(resumed) == whole
    assert resumed.stats().skipped == LEFT_OUT
    Path(TABLE).write_text(Path(TABLE).read_text().replace("text 3", "text of 3"))
    with pytest.raises(uio.StateError, match="list"):
        uio.Loader(pipeline, lanes=2).load_state_dict(loader.state_dict())


def test_a_bad_row_is_told_with_its_place_and_its_key(prompts: Any) -> None:
    pipeline = prompts(TABLE).pipeline
    assert len(uio.Loader(pipeline.batch(1))) == 22
    assert "text 0" in str(pipeline.peek())
    with pytest.raises(uio.UioError, match=r"prompts\.txt, line 2: the row has no words: add them \[missing_text\]"):
        list(uio.Loader(graph(pipeline), failures="raise"))
    with pytest.raises(uio.PipelineError, match="paths must be a path, or several"):
        prompts(None)


def test_all_commands_know_it(prompts: Any, tmp_path: Path) -> None:
    def said(*given: str) -> Any:
        done = command(*given, cwd=tmp_path)
        assert done.returncode == ("start" not in given), done.stdout + done.stderr  # one row is bad
        return json.loads(done.stdout) if "--json" in given else done.stdout

    (seen,) = said("inspect", NAMED, "--json")["parts"]
    assert [seen[name] for name in ("path", "kind", "utterances", "failures")] == [NAMED, "prompts", 20, 1]
    found = said("verify", NAMED, "--decode", "--json", "--jobs", "2")
    assert (found["utterances"], found["reasons"]) == (20, {"missing_text": 1})
    for name, start in (("pack", uio.from_shard_list), ("convert", uio.from_indexed)):
        written = said(name, NAMED, name, "--jobs", "2", "--json")["list"]
        assert sorted(one["key"] for one in uio.Loader(start(written).decode_audio())) == KEYS
    said("dict", NAMED, "dict.txt")
    assert [line.split()[0] for line in Path("dict.txt").read_text().splitlines()][3:-1] == [*"0123456789etx"]
    said("cmvn", NAMED, "cmvn.json")
    assert json.loads(Path("cmvn.json").read_text())["frame_num"] > 0
    said("start", NAMED)
    assert "from prompts import Prompts\n" in Path("train.py").read_text()
    Path("codes.py").write_text(CODES)
    assert said("cache", "fill", "codes.py:codes", "--model", "codes.py:model", "--json")["utterances"] == 20


def test_wrong_names_are_refused_with_what_is_meant(prompts: Any, tmp_path: Path) -> None:
    Path("other.txt").write_text("no prompts\n")
    for named, told in (
        ("prompts.py:Prompts:other.txt", "ID|FILE|words"),
        ("prompts.py:Prompt:prompts.txt", "prompts.py has no format or card Prompt: did you mean Prompts?"),
        ("prompts.py:Prompts,part=dev:prompts.txt", "Prompts is a format, which has no part=dev: leave it out"),
    ):
        done = command("inspect", named, cwd=tmp_path)
        assert (done.returncode, told in done.stderr.replace("\n", " ")) == (2, True), done.stderr
