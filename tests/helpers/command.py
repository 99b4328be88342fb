"""Runs the real ``uio`` command, and makes it something to pack."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from forks import Forks
from processes import environment

UIO = str(Path(sys.executable).with_name("uio"))
FORKS = Forks()
RATE = 16_000


def uio(*arguments: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with ``env`` in its environment."""
    return FORKS.run([UIO, *map(str, arguments)], cwd or Path.cwd(), {**os.environ, **env})


def ranks(
    world: int, script: str, *arguments: object, imported: Iterable[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script on ``world`` ranks to its end; of what it imports, ``imported`` takes seconds."""
    FORKS.prepare(*imported)
    command = [str(Path(__file__).with_name("ranks.py")), str(world), script, *map(str, arguments)]
    return FORKS.run(command, Path.cwd(), dict(os.environ))


def told_by_ranks(
    world: int, script: str, mode: str, data_list: Path, folder: Path, imported: Iterable[str] = ()
) -> list[Any]:
    """Run a script on ``world`` ranks, and return what each of them wrote into ``folder``: ``MODE`` and its number."""
    settings = json.dumps({"list": str(data_list), "folder": str(folder), "mode": mode})
    done = ranks(world, script, settings, imported=imported)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{mode}{rank}.json").read_text()) for rank in range(world)]


def forked(*command: object) -> subprocess.CompletedProcess[str]:
    """Run ``python command`` to its end; it and the programs that it starts are forks."""
    python = str(FORKS.stand_ins() / "python")
    env = environment(OMP_NUM_THREADS="1", PYTHON_EXEC=python, FORKS_PYTHON=python)
    return FORKS.run([*map(str, command)], Path.cwd(), env)


def programs(*command: object) -> str:
    """As ``forked``, and return what was printed.

    Raises: AssertionError if it fails.
    """
    done = forked(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def start(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Begin it, in a process group of its own."""
    return subprocess.Popen(
        [UIO, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heed_ctrl_c,
    )


def _heed_ctrl_c() -> None:
    """CI may run in the background, where it is ignored, and what it starts would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def make_wav(seconds: float, seed: int, rate: int = RATE) -> bytes:
    """Noise, as 16-bit wav."""
    rng, buffer = np.random.default_rng(seed), io.BytesIO()
    soundfile.write(buffer, (rng.standard_normal(int(rate * seconds)) * 3000).astype(np.int16), rate, format="WAV")
    return buffer.getvalue()


def write_list(folder: Path, count: int, name: str = "raw.list", rate: int = RATE) -> Path:
    """A raw list of ``count`` utterances of 7 recordings (and the recordings)."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(7):
        (folder / f"r{number}.wav").write_bytes(make_wav(0.3 + 0.1 * number, number, rate))
    lines = (
        {"key": f"U{i:05d}", "wav": str(folder / f"r{i % 7}.wav"), "txt": f"文{i}", "speaker": f"S{i % 3}"}
        for i in range(count)
    )
    path = folder / name
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def digests(out: Path) -> dict[str, bytes]:
    """The shards below a folder."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.tar"))}


def members(out: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of everything in its shards, in order."""
    for shard in sorted(out.rglob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                yield member.name, tar.extractfile(member).read()  # type: ignore[union-attr]
