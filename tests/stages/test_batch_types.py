"""The types of batches have the keys that stages write, and type checkers accept what readers copy."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pages
import pytest
import torch
from command import write_list

import uio_pipes as uio

ROOT = Path(__file__).parents[2]


def _told(sample: uio.Sample) -> Any:
    return {**sample, "lang": "zh", "task": "transcribe"}


def _class(sample: uio.Sample) -> Any:
    return {**sample, "label": 3}


def _graphs(folder: Path) -> dict[type, list[uio.Pipeline]]:
    corpus = uio.from_raw_list(str(write_list(folder, 9))).decode_audio()
    labelled = corpus.fbank(8).tokenize(lambda text: [*map(ord, text)])
    heard = corpus.tokenize(lambda text: [*map(ord, text)])

    def quarter(length: uio.Lengths) -> float:
        return float(length.frames // 4 + length.tokens)

    return {
        uio.PaddedBatch: [
            labelled.map(_told).batch(4).pad(pcm=True, mask=True),
            corpus.map(_class).speaker({f"S{i}": i for i in range(3)}).batch(4).pad(),
            corpus.fbank(8).chunks(0.2, rows=2).pad(),
        ],
        uio.PackedBatch: [
            labelled.pack(90, length=quarter),
            heard.pack(90, length=quarter),
            labelled.pack(90, layout="touchnet"),
            labelled.pack(max_frames=200),
            heard.pack(max_frames=200),
        ],
    }


@pytest.mark.parametrize("kind", [uio.PaddedBatch, uio.PackedBatch])
def test_a_type_has_the_keys_that_stages_write_and_no_others(kind: type, tmp_path: Path) -> None:
    known, written = get_type_hints(kind), set[str]()
    for graph in _graphs(tmp_path)[kind]:
        for batch in uio.Loader(graph):
            assert type(batch) is dict
            for name, value in batch.items():
                kinds = get_args(known[name]) or (known[name],)
                plain = {list if str(one).startswith("list") else one for one in (*kinds, known[name])} - {str}
                assert isinstance(value, tuple(one for one in plain if isinstance(one, type))), name
            written |= batch.keys()
    assert written == set(known)
    assert isinstance(batch["keys"][0], str)
    assert known["feats"] is torch.Tensor


# What readers copy is checked as mypy checks it by default.
USUAL = """
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, disallow-any-generics=False, disallow-subclassing-any=False
# mypy: check-untyped-defs=False, warn-return-any=False, warn-unused-ignores=False, strict-equality=False
"""


def _mypy(files: dict[Path, str]) -> str:
    """What mypy says of these files. It reads PyTorch and the package, which take it half a minute, from the cache of
    scripts/check, if they are there: so its options are those."""
    for path, code in files.items():
        path.write_text(code + USUAL)
    command = [sys.executable, "-m", "mypy", *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_a_type_checker_knows_keys_and_accepts_the_code_of_the_first_pages(tmp_path: Path) -> None:
    typed = (
        "import uio_pipes as uio\n"
        "class Mine(uio.PaddedBatch):\n    txt: list[str]\n"
        "def step(batch: Mine) -> None:\n"
        "    reveal_type(batch['feats'])\n"
        "    batch['txt'][0].upper()\n"
        "    batch['feat']\n"
        "    batch['keys'].shape\n"
        "loader = uio.Loader(uio.from_raw_list('a').batch(2).pad())\n"
        "batch: Mine\n"
        "for batch in loader:\n    step(batch)\n"
    )
    files = {tmp_path / "typed.py": typed}
    for page in (ROOT / "README.md", ROOT / "docs/get_started.md", ROOT / "docs/train.md"):
        for block in pages.blocks(page):
            if block.language == "python":
                files[tmp_path / f"{page.stem}_{block.line}.py"] = block.code
    said = _mypy(files).replace(f"{tmp_path}/", "")
    assert len(files) > 6
    faults = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", said, re.MULTILINE)
    assert 'typed.py:5: note: Revealed type is "torch._tensor.Tensor"' in said
    assert [(name, int(line)) for name, line, _ in faults] == [("typed.py", 7), ("typed.py", 8)], said
    assert "did you mean" in said.lower()
