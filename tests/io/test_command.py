"""Kaldi's pipes: run without a shell, checked, never left behind."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uio_pipes.base.errors import DataError
from uio_pipes.io import command
from uio_pipes.io.command import Piped, parse_command, run_command


def failure(text: str) -> DataError:
    with pytest.raises(DataError) as caught:
        run_command(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("cat a.wav |", [["cat", "a.wav"]]),
        ("sox 'a b.wav' -t wav - | flac -c - |", [["sox", "a b.wav", "-t", "wav", "-"], ["flac", "-c", "-"]]),
        ("a|b|c", [["a"], ["b"], ["c"]]),
        (r"echo '$x' 'a|b' a\;b", [["echo", "$x", "a|b", "a;b"]]),
        ("'cat' \"a>b\" |", [["cat", "a>b"]]),
    ],
)
def test_words_are_cut_as_a_shell_does(text: str, programs: list[list[str]]) -> None:
    assert parse_command(text) == programs


@pytest.mark.parametrize(
    "text", ["a; rm b |", "a & |", "a > b |", "a < b |", "a $(b) |", "a `b` |", 'a "$b" |', "a *.wav |"]
)
def test_what_needs_a_shell_is_refused_and_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without one") as caught:
        parse_command(text)
    assert caught.value.reason == "bad_pipe"


@pytest.mark.parametrize("text", ["a || b |", "| a |", "|", "a | |", "a 'b |"])
def test_what_is_no_chain_of_programs_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="correct it"):
        parse_command(text)


def test_no_shell_ever_sees_the_words(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("here")
    assert run_command(f"echo '; rm {victim} #' |") == f"; rm {victim} #\n".encode()
    assert victim.exists()


def test_the_last_program_of_a_chain_gives_the_output() -> None:
    assert run_command("echo abc | tr a-z A-Z | cat |") == b"ABC\n"
    assert run_command("yes | head -c 6 |") == b"y\ny\ny\n"  # the first ends by SIGPIPE, as under a shell


def test_a_failing_program_is_an_error_with_what_it_said() -> None:
    error = failure("cat /no/such/file | cat |")
    assert error.reason == "pipe_failed"
    assert "cat ended with 1, cat ended with 0" in error.message
    assert "No such file" in error.message
    assert "no_such_program cannot be run" in failure("no_such_program a |").message


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TIMEOUT", 0.3)
    begun = time.monotonic()
    assert "did not end within 0.3 s" in failure("sleep 60 | cat |").message
    assert time.monotonic() - begun < 30


def test_a_command_that_never_stops_writing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT", 1 << 20)
    assert "writes more than" in failure("cat /dev/zero |").message


def test_no_process_and_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_now() -> int:
        return len(os.listdir("/proc/self/fd"))

    monkeypatch.setattr(command, "TIMEOUT", 0.2)
    before = open_now()
    for text in (
        "cat /etc/hostname |",
        "sleep 60 | cat |",
        "cat /nothing | cat |",
        "no_such_program |",
        "cat | no_such |",
    ):
        with contextlib.suppress(DataError):
            run_command(text)
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "stat=,comm="], capture_output=True, text=True)
    assert [line for line in children.stdout.splitlines() if "ps" not in line and "Z" in line.split()[0]] == []
    assert open_now() == before


def test_what_is_shared_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "count.py"
    script.write_text(f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('audio')")
    text = f"{sys.executable} {script} |"
    pieces = [Piped(text, shared=True) for _ in range(3)]
    assert {piece.read() for piece in pieces} == {b"audio\n"}
    assert pieces[0].read_at(1, 3) == b"udi"
    assert (tmp_path / "runs").read_text() == "x"
    Piped(text).read()
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.skipif(shutil.which("sox") is None, reason="could not import sox")
def test_sox_converts(tmp_path: Path) -> None:
    subprocess.run(
        ["sox", "-n", "-r", "8000", "-c", "1", "-b", "16", str(tmp_path / "a.wav"), "synth", "0.5", "sine", "440"],
        check=True,
    )
    from uio_pipes.audio.decode import decode

    wav, rate = decode(run_command(f"sox {tmp_path}/a.wav -r 16000 -t wav - |"), 0)
    assert (rate, wav.shape) == (16000, (1, 8000))
