"""Every Python and bash block of the documentation runs as it stands, and every stage has one."""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import corpus
import numpy as np
import pytest

import uio_pipes as uio
from uio_pipes.pipeline import Pipeline

DOCS = Path(__file__).parents[1] / "docs"
TEXT = "今天天气很好我们去公园散步你想不想一起来"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCES = {"list_files", "from_iterable", "mix", "interleave"}


def blocks(language: str = "python") -> list[tuple[str, str]]:
    """Name (page, heading) and code of every block."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        for number, match in enumerate(BLOCK.finditer(text)):
            headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
            if match[1] == language:
                found.append((f"{page.stem}-{headings[-1].strip('`')}-{number}", match[2]))
    return found


def stages() -> set[str]:
    """Names of all stages of the functional form, and of what begins a pipeline."""
    return SOURCES | {
        name for name, method in vars(Pipeline).items() if hasattr(method, "__wrapped__") and name[0] != "_"
    }


def wav(seconds: float, seed: int) -> bytes:
    """Noise whose loudness rises and falls, at 16 kHz."""
    rng = np.random.default_rng(seed)
    count = int(16_000 * seconds)
    pcm = rng.standard_normal(count) * 3000 * np.sin(np.arange(count) / 4000) ** 2
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(pcm.astype("<i2").tobytes())
    return buffer.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the examples run in."""
    root = tmp_path_factory.mktemp("docs")
    folder = root / "data"
    (folder / "wav").mkdir(parents=True)
    (folder / "noise").mkdir()
    lines = []
    for shard in range(3):
        members = []
        for i in range(shard * 8, shard * 8 + 8):
            text, audio = TEXT[i % 5 : i % 5 + 3 + i % 7], wav(0.6 + 0.1 * (i % 9), i)
            members += [(f"U{i:03d}.txt", text.encode()), (f"U{i:03d}.wav", audio)]
            path = folder / "wav" / f"R{i:03d}.wav"
            path.write_bytes(audio)
            lines.append({"key": f"R{i:03d}", "wav": f"data/wav/{path.name}", "txt": text, "speaker": f"S{i % 3}"})
        (folder / f"train-{shard:03d}.tar").write_bytes(corpus._tar(members))
        (folder / "shards").mkdir(exist_ok=True)
        (folder / f"shards/train-{shard:03d}.tar").write_bytes(corpus._tar(members))
    (folder / "shards.list").write_text("".join(f"data/train-{i:03d}.tar\n" for i in range(3)))
    (folder / "raw.list").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    (folder / "kaldi_train").mkdir()
    (folder / "kaldi_train/wav.scp").write_text("".join(f"{line['key']} {line['wav']}\n" for line in lines))
    (folder / "kaldi_train/text").write_text("".join(f"{line['key']} {line['txt']}\n" for line in lines))
    features = corpus.feature_shards(folder / "features", [6, 6], bins=80)
    (folder / "feature_shards.list").write_text(features.list.read_text())
    symbols = ["<blank>", "<unk>", "<sos/eos>", *dict.fromkeys(TEXT)]
    (folder / "lang_char.txt").write_text("".join(f"{s} {i}\n" for i, s in enumerate(symbols)))
    (folder / "texts.txt").write_text("今天\n很好\n")
    (folder / "texts.list").write_text("data/texts.txt\n")
    return root


def defaults(cell: str, count: int) -> list[object]:
    """The defaults that a cell of a table names for so many parameters; where it says it in words, an Ellipsis."""
    try:
        value = ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3})", "", cell.replace("`", "")))
    except (SyntaxError, ValueError):
        return [...] * count
    values = list(value) if count > 1 else [tuple(value) if isinstance(value, list) else value]
    assert len(values) == count, cell
    return values


@pytest.mark.parametrize("name", sorted(stages()))
def test_the_parameters_of_a_section_are_those_of_the_stage(name: str) -> None:
    section = (DOCS / "stages.md").read_text().split(f"\n### `{name}`\n")[1].split("\n### ")[0]
    parameters = inspect.signature(getattr(Pipeline, name, None) or getattr(uio, name)).parameters
    rows = re.findall(r"^\| (`[^|]*`) \| *([^|]*?) *\| ", section, re.MULTILINE)
    for cell, default in rows:
        names = [name for code in re.findall(r"`([^`]*)`", cell) for name in re.findall(r"\w+", code)]
        for parameter, value in zip(names, defaults(default, len(names)), strict=True):
            assert parameter in parameters
            assert value is ... or value == parameters[parameter].default, parameter
    told = {
        name for code in re.findall(r"`([^`]*)`", section.split("```python")[0]) for name in re.findall(r"\w+", code)
    }
    assert set(parameters) - {"self"} <= told


def test_every_stage_has_a_section_with_an_example() -> None:
    shown = {name.split("-")[1] for name, _ in blocks() if name.startswith("stages-")}
    assert stages() - shown == set()


@pytest.mark.parametrize(("name", "code"), blocks(), ids=[name for name, _ in blocks()])
def test_the_example_runs(name: str, code: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    exec(compile(code, f"docs/{name}", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", dict.fromkeys(name.split("-")[0] for name, _ in blocks("bash")))
def test_the_commands_run(page: str, data: Path, tmp_path: Path) -> None:
    """Those of a page one after the other, in a folder of their own."""
    folder = shutil.copytree(data, tmp_path / "run")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(DOCS.parent)}
    for name, code in blocks("bash"):
        if name.startswith(f"{page}-"):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert done.returncode == 0, f"{name}:\n{code}\n{done.stdout}\n{done.stderr}"
