"""sdist and wheel hold what they should, and both work in fresh environments of the oldest and the newest Python.

It downloads a PyTorch for each of them, so it runs where everything is asked for: UIO_REQUIRE_ALL=1, as .ci/run does.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
WITHOUT_CUDA = "2.13.0+cpu"
TRY_IT = """
import importlib.metadata, pathlib
import numpy as np
import uio_pipes as uio
from uio_pipes.tools.reports.page import html

assert "<style>" in html("a report", [])
assert "site-packages" in uio.__file__, uio.__file__
assert (pathlib.Path(uio.__file__).parent / "py.typed").exists()
assert importlib.metadata.metadata("uio_pipes")["License-Expression"] == "Apache-2.0"
wav = {"wav": np.sin(np.arange(8000) / 9, dtype=np.float32)[None], "sample_rate": 8000}
changed = uio.from_iterable([wav]).lowpass((900, 990)).loudness().pitch_shift((2, 3))
assert list(uio.Loader(changed))[0]["wav"].shape == (1, 8000)
items = [{"key": str(i), "label": [1, 2, 3][: 1 + i % 3]} for i in range(10)]
if __name__ == "__main__":
    loader = uio.Loader(uio.from_iterable(items).sharding_filter().batch(2), num_workers=2)
    batches = iter(loader)
    first = next(batches)
    state = loader.state_dict()
    rest = list(batches)
    loader.load_state_dict(state)
    assert list(loader) == rest and len(rest) == 5, rest
"""

pytestmark = [
    pytest.mark.skipif(
        "UIO_REQUIRE_ALL" not in os.environ, reason="installs three environments: set UIO_REQUIRE_ALL=1"
    ),
    pytest.mark.timeout(900),
]


def run(command: Sequence[str | Path], **options: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, of the files that git knows."""
    assert UV is not None, "scripts/setup installs uv"
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).exists():  # else it is deleted and not yet committed
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run([UV, "build", "--python", sys.executable, "--out-dir", folder / "dist", source])
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist, "source": source}


def test_what_is_in_them(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    packaged = {f"uio_pipes/{path.relative_to(ROOT / 'uio_pipes')}" for path in (ROOT / "uio_pipes").rglob("*.py*")}
    assert {name for name in packaged if "__pycache__" not in name} <= set(names)
    assert "uio_pipes/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"uio_pipes"}
    with tarfile.open(built["sdist"]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "uio_pipes/py.typed", "uio_pipes/run/loader.py"} <= inside
    assert not [name for name in inside if name.startswith(("tests", "recipes", "benchmarks"))]


def test_the_description_has_no_link_that_leads_nowhere(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        text = wheel.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "are listed in get started." in text  # the words of a link stay
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []


def test_an_editable_install_shows_its_types(built: dict[str, Path], tmp_path: Path) -> None:
    """Type checkers follow a path, but not the import hook that setuptools installs by default."""
    assert UV is not None
    run([UV, "venv", "--python", sys.executable, tmp_path / "venv"])
    inside = tmp_path / "venv" / "bin" / "python"
    run([UV, "pip", "install", "--no-deps", "--python", inside, "--editable", built["source"]])
    (tmp_path / "mine.py").write_text("import uio_pipes as uio\n\nreveal_type(uio.from_iterable([]).shuffle(3))\n")
    shown = run([sys.executable, "-m", "mypy", "--python-executable", inside, "mine.py"], cwd=tmp_path)
    assert 'Revealed type is "uio_pipes.pipeline.Pipeline"' in shown


@pytest.mark.parametrize(("version", "kind"), [("3.10", "sdist"), ("3.13", "wheel")])
def test_works_in_a_fresh_environment(version: str, kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    assert UV is not None
    python = interpreter(version)
    if python is None:
        pytest.skip(f"could not import Python {version}: it is not installed")
    fresh = tmp_path / "venv"
    run([UV, "venv", "--python", python, fresh])
    inside = fresh / "bin" / "python"
    pins = ROOT / "requirements" / "dev.txt"
    run([UV, "pip", "install", "--python", inside, "--constraint", pins, built[kind]])
    run([UV, "pip", "check", "--python", inside])
    (tmp_path / "try_it.py").write_text(TRY_IT)
    run([inside, "try_it.py"], cwd=tmp_path)
    assert "pack" in run([fresh / "bin" / "uio", "--help"], cwd=tmp_path)
    shutil.rmtree(fresh)


def test_works_beside_a_pytorch_without_cuda(built: dict[str, Path], tmp_path: Path) -> None:
    assert UV is not None
    run([UV, "venv", "--python", sys.executable, tmp_path / "venv"])
    inside = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", inside, "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-compile", f"torch=={WITHOUT_CUDA}"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip(f"no torch {WITHOUT_CUDA} is to be had from pip's indexes here")
    pins = tmp_path / "pins.txt"
    text = (ROOT / "requirements" / "dev.txt").read_text()
    pins.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("torch==")))
    package = f"uio_pipes[recipes] @ {built['wheel'].as_uri()}"
    run([UV, "pip", "install", "--python", inside, "--constraint", pins, package])
    (tmp_path / "try_it.py").write_text(TRY_IT)
    run([inside, "try_it.py"], cwd=tmp_path)
    run([inside, "-c", "import recipes.common.train"], cwd=built["source"])
    listed = run([UV, "pip", "list", "--python", inside], cwd=tmp_path)
    assert "nvidia" not in listed
    assert "torchaudio" not in listed


def interpreter(version: str) -> str | None:
    """An installed Python of this version: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    for path in filter(None, found):
        done = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if done.returncode == 0:  # pyenv's shims stand on the PATH for versions that are not chosen
            return path
    return None
