"""The ``uio`` command as such: quick, with a version, and kind to those who mistype."""

import json
import subprocess
import sys
from pathlib import Path

import corpus
import pytest
from command import programs, uio

import uio_pipes
import uio_pipes as package


def test_help_starts_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['uio', '--help']\n"
        "from uio_pipes.tools.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'fsspec', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pack" in done.stdout


WITHOUT_TORCH = {
    "pack of a raw list": "pack raw.list of_raw --jobs 1",
    "pack of a Kaldi folder": "pack kaldi of_kaldi --jobs 1",
    "a state in JSON": "state state.json",
    "a running training": "watch run --once --html run.html",
    **{
        f"help of {name}": f"{name} --help" for name in ("dict", "index", "verify", "inspect", "bench", "pack", "state")
    },
    "a wrong option": "index --nonsense",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list, tables, and a state."""
    folder = tmp_path_factory.mktemp("data")
    line = {"key": "a", "wav": "a.wav", "txt": "今天天气不错我们走吧"}
    (folder / "raw.list").write_text("\n".join(json.dumps(line | {"key": f"a{i}"}) for i in range(20)) + "\n")
    (folder / "a.wav").write_bytes(corpus.wav_bytes(0))
    (folder / "kaldi").mkdir()
    (folder / "kaldi/text").write_text("a 今天天气\n")
    (folder / "kaldi/wav.scp").write_text("a a.wav\n")
    loader = package.Loader(package.from_raw_list(folder / "raw.list").batch(2), lanes=2)
    next(iter(loader))
    (folder / "state.json").write_text(json.dumps(loader.state_dict()))
    list(package.watch(loader, to=folder / "run"))
    return folder


EACH = """
import json, os, sys
import fsspec, numpy, uio_pipes.tools.cli.main, typer.rich_utils  # what each would import by itself

for number, arguments in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if not child:
        os.dup2(os.open(f"said.{number}", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[1:], code = arguments.split(), None
        try: uio_pipes.tools.cli.main.main()
        except SystemExit as end: code = end.code
        heavy = sorted({"torch", "torchaudio", "torchdata"} & set(sys.modules))
        print(json.dumps([code, heavy]), file=sys.stderr, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def said(data: Path) -> dict[str, str]:
    """What each command says, and then its exit status and what it has imported. They are forks of one process."""
    command = [sys.executable, "-c", EACH, json.dumps(list(WITHOUT_TORCH.values()))]
    subprocess.run(command, cwd=data, check=True, stdout=subprocess.DEVNULL)
    return {name: (data / f"said.{number}").read_text() for number, name in enumerate(WITHOUT_TORCH)}


@pytest.mark.parametrize("name", list(WITHOUT_TORCH))
def test_what_packs_lists_and_reads_states_starts_without_torch(name: str, said: dict[str, str]) -> None:
    assert json.loads(said[name].splitlines()[-1]) == [2 if "wrong" in name else 0, []], said[name]


def test_version() -> None:
    assert uio("--version").stdout == f"uio_pipes {uio_pipes.__version__}\n"


def test_without_arguments_it_helps() -> None:
    done = uio()
    assert (done.returncode, "Usage: uio" in done.stdout) == (0, True)


def test_a_mistyped_command_suggests_the_nearest() -> None:
    done = uio("pakc")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'pakc'. Did you mean 'pack'? (all options: uio --help)\n"


HELP = """
import sys
from uio_pipes.tools.cli.main import app
for name in sys.argv[1:]:
    app([name, "--help"], prog_name="uio", standalone_mode=False)
"""


def test_every_command_has_help() -> None:
    listed = uio("--help").stdout
    names = [line.split()[1] for line in listed.partition("Begin")[2].splitlines() if line.startswith("│ ")
             and line[2] != " "]  # fmt: skip
    assert {"start", "pack", "cmvn", "dict", "spm", "state"} <= set(names)
    told = programs("-c", HELP, *names)
    assert all(f"Usage: uio {name} " in told for name in names), told


def test_an_error_of_the_program_names_the_switch_for_its_trace() -> None:
    code = (
        "import sys; sys.argv = ['uio']\n"
        "from uio_pipes.tools.cli import common\n"
        "def app(**_): raise RuntimeError('broken at s3://user:secret@host/x')\n"
        "sys.exit(common.run(app))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: RuntimeError: broken")
    assert "UIO_DEBUG=1" in done.stderr
    assert "secret" not in done.stderr
