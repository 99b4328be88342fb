"""Nothing but files is opened: a FIFO would be waited for, a device never end. Each is said at once, and counted."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import uio as command
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.audio.decode import decode_file, probe_file
from uio_pipes.base.errors import DataError, ListError, TooManyFailures
from uio_pipes.formats.lists.quarantine import read_quarantine
from uio_pipes.io.local import LocalFile, open_regular
from uio_pipes.io.opening import open_binary
from uio_pipes.io.stream import open_source


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Interrupt a test that waits for a writer."""

    def stop(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def behind_a_link(path: Path) -> str:
    os.mkfifo(path.with_suffix(".pipe"))
    path.symlink_to(path.with_suffix(".pipe"))
    return str(path)


def bound(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)  # names of sockets are short
        listening.bind(path.name)
    return str(path)


def folder(path: Path) -> str:
    path.mkdir()
    return str(path)


KINDS: dict[str, Callable[[Path], str]] = {
    "a named pipe": fifo,
    "a named pipe (FIFO)": behind_a_link,
    "a device": lambda _: "/dev/zero",
    "a socket": bound,
    "a folder": folder,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = KINDS[kind](tmp_path / "x.wav")
    reads: list[Callable[[], object]] = [
        lambda: open_regular(path),
        lambda: open_binary(path),
        lambda: open_binary(f"file://{path}"),
        lambda: LocalFile(path).size,
        lambda: LocalFile(path).read_upto(0, 10),
        lambda: open_source(path),
        lambda: decode_file(path, 0),
        lambda: probe_file(path),
    ]
    for read in reads:
        with pytest.raises(DataError, match=f"it is {kind[:12]}.*, where a file is needed") as caught:
            read()
        assert caught.value.reason == "unreadable_file"
        assert caught.value.url.removeprefix("file://") == path
    with pytest.raises(ListError, match=kind[:12]):
        read_quarantine(path)


def test_a_pipe_that_takes_a_file_s_place_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1234")
    real = os.open

    def swapped(name: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(name) == str(path) and path.is_file():
            path.unlink()
            os.mkfifo(path)
        return real(name, flags, *more, **options)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(DataError, match="named pipe"):
        LocalFile(str(path)).read_upto(0, 4)


def test_a_file_that_another_process_holds_a_lease_on_is_opened(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "a"
    path.write_bytes(b"1234")
    begun, go_on = os.pipe()
    child = os.fork()
    if child == 0:
        number = os.open(path, os.O_RDWR)
        signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_UNLCK))
        try:
            fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            os.write(go_on, b"-")
            os._exit(0)
        os.write(go_on, b"+")
        signal.pause()
        os._exit(0)
    leased = os.read(begun, 1)
    try:
        if leased == b"-":
            pytest.skip("could not import a lease: this file system has none")
        with open_regular(path) as file:
            assert file.read() == b"1234"
            assert os.get_blocking(file.fileno())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(go_on)


@pytest.mark.parametrize("kind", KINDS)
def test_in_an_epoch_it_is_one_counted_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_corpus: Corpus, plain_corpus: Corpus, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = KINDS[kind](tmp_path / "x.wav")
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    whole = len(lines)
    lines.insert(1, {"key": "odd", "wav": bad, "txt": "odd"})
    lines.insert(2, {"key": "odd too", "wav": bad, "txt": "odd", "duration": 1.0})
    loader = uio.Loader(uio.from_raw_list(lines).decode_audio().batch(3))
    assert len([one for batch in loader for one in batch]) == whole
    assert loader.stats().skipped == {"unreadable_file": 2}
    shards = [line.strip() for line in plain_corpus.list.read_text().splitlines() if line.strip()[:1] not in ("", "#")]
    (tmp_path / "shards.list").write_text("\n".join([*shards, bad]))
    loader = uio.Loader(uio.from_shard_list(str(tmp_path / "shards.list")).batch(3))
    assert len([one for batch in loader for one in batch]) == len(plain_corpus.keys)
    assert loader.stats().skipped == {"unreadable_file": 1}


def test_a_named_pipe_among_noises_tables_and_indexed_files(tmp_path: Path, raw_corpus: Corpus) -> None:
    bad = fifo(tmp_path / "x.wav")
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    (tmp_path / "noise.list").write_text(f"{bad}\n")
    pipeline = (
        uio.from_raw_list(lines).decode_audio().resample(8000).add_noise(str(tmp_path / "noise.list"), probability=1.0)
    )
    loader = uio.Loader(pipeline.batch(3), failures=uio.Failures(max_failures=10**6))
    with pytest.raises(TooManyFailures, match=f"{len(lines)} failed"):
        list(loader)
    assert loader.stats().skipped == {"bad_noise": len(lines)}
    (tmp_path / "kaldi").mkdir()
    (tmp_path / "kaldi" / "wav.scp").write_text(f"odd {bad}\n")
    (tmp_path / "kaldi" / "text").write_text("odd odd\n")
    loader = uio.Loader(uio.from_kaldi(str(tmp_path / "kaldi")).decode_audio().batch(1))
    with pytest.raises(TooManyFailures, match="1 failed"):
        list(loader)
    assert loader.stats().skipped == {"unreadable_file": 1}
    (tmp_path / "kaldi" / "text").unlink()
    fifo(tmp_path / "kaldi" / "text")
    with pytest.raises(ListError, match="named pipe"):
        list(uio.Loader(uio.from_kaldi(str(tmp_path / "kaldi")).decode_audio().batch(1)))
    (tmp_path / "feats").mkdir()
    (tmp_path / "feats" / "feats.scp").write_text(f"odd {bad}:7\n")
    with pytest.raises((ListError, DataError), match="named pipe"):
        list(uio.Loader(uio.from_kaldi(str(tmp_path / "feats")).batch(1), failures="raise"))
    touch = tmp_path / "touch"
    touch.mkdir()
    for name in ("audio.bin", "audio.idx", "metainfo.bin", "metainfo.idx"):
        fifo(touch / name)
    with pytest.raises((ListError, DataError), match="named pipe"):
        list(uio.Loader(uio.from_indexed(str(touch)).batch(1), failures="raise"))


def test_the_command_packs_in_spite_of_a_named_pipe(tmp_path: Path, raw_corpus: Corpus) -> None:
    odd = {"key": "odd", "wav": fifo(tmp_path / "x.wav"), "txt": "x"}
    (tmp_path / "raw.list").write_text(raw_corpus.list.read_text() + json.dumps(odd) + "\n")
    done = command("pack", tmp_path / "raw.list", tmp_path / "out", "--jobs", 1)
    assert "unreadable_file" in done.stdout + done.stderr
