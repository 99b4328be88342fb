"""The ``uio`` command as such: quick, with a version, and kind to those who mistype."""

from __future__ import annotations

import subprocess
import sys

from command import uio

import uio_pipes


def test_help_starts_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['uio', '--help']\n"
        "from uio_pipes.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'fsspec', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pack" in done.stdout


def test_version() -> None:
    assert uio("--version").stdout == f"uio_pipes {uio_pipes.__version__}\n"


def test_without_arguments_it_helps() -> None:
    done = uio()
    assert (done.returncode, "Usage: uio" in done.stdout) == (0, True)


def test_a_mistyped_command_suggests_the_nearest() -> None:
    done = uio("pakc")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'pakc'. Did you mean 'pack'? (all options: uio --help)\n"


def test_every_command_has_help() -> None:
    listed = uio("--help").stdout
    names = [line.split()[1] for line in listed.partition("Commands")[2].splitlines() if line.startswith("│ ")
             and line[2] != " "]  # fmt: skip
    assert {"pack", "cmvn", "dict", "spm"} <= set(names)
    for name in names:
        done = uio(name, "--help")
        assert (done.returncode, f"uio {name}" in done.stdout) == (0, True), done.stderr


def test_an_error_of_the_program_names_the_switch_for_its_trace() -> None:
    code = (
        "import sys; sys.argv = ['uio']\n"
        "from uio_pipes.cli import common\n"
        "def app(**_): raise RuntimeError('broken at s3://user:secret@host/x')\n"
        "sys.exit(common.run(app))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: RuntimeError: broken")
    assert "UIO_DEBUG=1" in done.stderr
    assert "secret" not in done.stderr
