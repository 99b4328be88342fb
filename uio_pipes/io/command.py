"""The output of commands: Kaldi's pipes (``sox x.mp3 -t wav - |``), run without a shell and only where allowed."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import tempfile
import time
from typing import IO

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import redact
from uio_pipes.io.references import AudioInfo, Ref

TIMEOUT = 600.0  # seconds that a command may take
MAX_OUTPUT = 1 << 31  # bytes that a command may write
KEPT = 128 << 20  # bytes of output kept: the next segment is often from the same recording
_CHUNK = 1 << 20
_SHELL = ";&<>$`()*?\n"  # characters that only a shell understands
_SIGPIPE = -13  # exit status of a program whose reader stopped reading


class Piped(Ref):
    """Audio that a command writes.

    ``info``: its length, if that is known; otherwise the command must run to find it. ``shared``: several utterances
    use the output (segments of one recording), so it is kept for a while.
    """

    __slots__ = ("command", "shared")

    def __init__(self, command: str, info: AudioInfo | None = None, shared: bool = False) -> None:
        super().__init__(_NO_FILE, 0, 0, info=info)
        self.command, self.shared = command, shared

    def read(self) -> bytes:
        """Return the output, kept or of a new run. Raises: DataError ``bad_pipe`` or ``pipe_failed``."""
        if not self.shared:
            return run_command(self.command)
        return _outputs.get(self.command, lambda: run_command(self.command), len)

    def read_at(self, start: int, size: int) -> bytes:
        return self.read()[start : start + size]

    def __repr__(self) -> str:
        return f"Piped({redact(self.command)!r})"


class _NoFile:
    path = stamp = ""
    size = 0

    def read(self, offset: int, size: int) -> bytes:
        return b""

    read_upto = read


_NO_FILE = _NoFile()
_outputs = Lru("outputs of commands", KEPT)


def parse_command(command: str) -> list[list[str]]:
    """Split ``a b | c |`` into the words of each program. Raises: DataError ``bad_pipe`` if it needs a shell."""
    try:
        programs = [shlex.split(piece) for piece in _pieces(command)]
    except ValueError as error:
        raise DataError("bad_pipe", f"the pipe cannot be parsed ({error}): correct it", url=command) from error
    if not all(programs):
        raise DataError("bad_pipe", "a program is missing before a | of the pipe: correct it", url=command)
    return programs


def _pieces(command: str) -> list[str]:
    """Split at each | that is not quoted. Raises: DataError ``bad_pipe`` at what only a shell understands."""
    text = command.strip().removesuffix("|")
    quote, escaped, first, pieces = "", False, 0, []
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif (not quote and char in _SHELL) or (quote == '"' and char in "$`"):
            message = (
                f"the pipe has a {char!r}, which only a shell understands, and pipes are run without one: leave it "
                "out, quote it, or put the command into a script (what is written to stderr shows only if one fails)"
            )
            raise DataError("bad_pipe", message, url=command)
        elif char == "|" and not quote:
            pieces.append(text[first:i])
            first = i + 1
    return [*pieces, text[first:]]


def run_command(command: str) -> bytes:
    """Return the output of the last program of a pipe. Raises: DataError ``bad_pipe`` or ``pipe_failed``."""
    programs = parse_command(command)
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as complaints:
        try:
            for words in programs:
                given = running[-1].stdout if running else subprocess.DEVNULL
                running.append(_begun(words, given, complaints, command))
                if len(running) > 1:
                    _close(running[-2].stdout)  # otherwise a program would not notice that its reader is gone
            deadline = time.monotonic() + TIMEOUT
            output = _read(running[-1].stdout, deadline, command)
            for process in running:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise _too_slow(command) from error
        finally:
            _end(running)
        statuses = [process.returncode for process in running]
        if statuses[-1] or any(status not in (0, _SIGPIPE) for status in statuses):
            raise _failed(command, programs, statuses, complaints)
    return output


def _begun(words: list[str], given: IO[bytes] | int | None, errors: IO[bytes], command: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(words, stdin=given, stdout=subprocess.PIPE, stderr=errors)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        message = f"{words[0]} cannot be run ({why}): install it, or correct the pipe"
        raise DataError("pipe_failed", message, url=command) from error


def _read(stdout: IO[bytes] | None, deadline: float, command: str) -> bytes:
    assert stdout is not None
    poll, size = select.poll(), 0
    pieces: list[bytes] = []
    poll.register(stdout.fileno(), select.POLLIN | select.POLLHUP)
    while True:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise _too_slow(command)
        piece = os.read(stdout.fileno(), _CHUNK)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > MAX_OUTPUT:
            raise DataError(
                "pipe_failed", f"the command was stopped because it writes more than {MAX_OUTPUT:,} bytes", url=command
            )


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """End all processes, whatever happened."""
    for process in running:
        _close(process.stdout)
        process.kill()
        process.wait()


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        stream.close()


def _too_slow(command: str) -> DataError:
    return DataError("pipe_failed", f"the command was stopped because it did not end within {TIMEOUT:g} s", url=command)


def _failed(command: str, programs: list[list[str]], statuses: list[int], complaints: IO[bytes]) -> DataError:
    complaints.seek(0)
    said = complaints.read(2000).decode("utf-8", "replace").strip() or "it says nothing"
    ended = ", ".join(f"{words[0]} ended with {status}" for words, status in zip(programs, statuses, strict=True))
    return DataError("pipe_failed", f"{ended}: {said}", url=command)
