"""AISHELL-1's archives, as OpenSLR has them but small: fetched, checked, unpacked, interrupted, damaged, hostile."""

import contextlib
import gzip
import tarfile
from pathlib import Path

import pytest
from fault_server import FaultServer
from files import Killed, killed_at_write, published, tgz

from recipes.aishell.download import download
from recipes.aishell.layout import corpus_dir, find_wavs, transcript_path
from recipes.common.fetch import FetchFailed, Remote
from recipes.common.unpack import UnpackFailed

SPEAKERS = {"S0002": "train", "S0724": "dev", "S0764": "test"}
Members = dict[str, bytes]


def speaker(name: str, split: str) -> bytes:
    return tgz({f"{split}/{name}/BAC009{name}W{n:04d}.wav": f"{name}{n}".encode() * 500 for n in range(3)})


def corpus(**changed: bytes) -> Members:
    archives = {f"data_aishell/wav/{name}.tar.gz": speaker(name, split) for name, split in SPEAKERS.items()}
    lines = [f"BAC009{name}W{n:04d} 今天 很 热" for name in SPEAKERS for n in range(3)]
    transcript = "\n".join([*lines, ""]).encode()
    changes = {f"data_aishell/wav/{name}.tar.gz": data for name, data in changed.items()}
    return {"data_aishell/transcript/aishell_transcript_v0.8.txt": transcript, **archives, **changes}


def publish(server: FaultServer, members: Members) -> tuple[Remote, ...]:
    files = {"resource_aishell.tgz": tgz({"resource_aishell/lexicon.txt": b"a"}), "data_aishell.tgz": tgz(members)}
    return tuple(published(server, name, data) for name, data in files.items())


def check_complete(root: Path) -> None:
    for name, split in SPEAKERS.items():
        wavs = find_wavs(root, split)
        assert [path.stem for path in wavs] == [f"BAC009{name}W{n:04d}" for n in range(3)]
        assert wavs[0].read_bytes() == f"{name}0".encode() * 500
    assert len(transcript_path(corpus_dir(root)).read_text().splitlines()) == 9
    assert not list(root.rglob("*.tar.gz")) + list(root.rglob("*.partial")) + list(root.rglob(".*"))


def test_fetches_and_unpacks_everything_once(server: FaultServer, tmp_path: Path) -> None:
    remotes, root = publish(server, corpus()), tmp_path / "root"
    assert download(root, remotes, jobs=2)
    check_complete(root)
    assert (root / "resource_aishell" / "lexicon.txt").read_bytes() == b"a"
    assert not download(root, remotes)
    assert len(server.asked) == 2


@pytest.mark.parametrize("writes", range(6))
def test_goes_on_with_unpacking(
    server: FaultServer, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each file of the outer archives; ``writes`` files were written before."""
    remotes, root = publish(server, corpus()), tmp_path / "root"
    with killed_at_write(writes, monkeypatch), contextlib.nullcontext() if writes == 5 else pytest.raises(Killed):
        download(root, remotes, jobs=1)
    download(root, remotes, jobs=1)
    check_complete(root)
    assert len(server.asked) == 2


def test_a_speaker_whose_unpacking_was_killed_is_unpacked_again(server: FaultServer, tmp_path: Path) -> None:
    remotes, root = publish(server, corpus()), tmp_path / "root"
    wav = root / "data_aishell" / "wav"
    download(root, remotes, jobs=1)
    (wav / ".S0002.partial" / "train" / "S0002").mkdir(parents=True)  # killed within,
    (wav / "train" / "S0002").rename(tmp_path / "S0002")
    (wav / "S0002.tar.gz").write_bytes(speaker("S0002", "train"))
    (wav / "S0724.tar.gz").write_bytes(speaker("S0724", "dev"))  # and between moving and deleting
    assert download(root, remotes, jobs=1)
    check_complete(root)


def test_archives_that_came_by_other_ways_are_checked_and_used(server: FaultServer, tmp_path: Path) -> None:
    remotes, root = publish(server, corpus()), tmp_path / "root"
    root.mkdir()
    data = server.files["data_aishell.tgz"].data
    (root / "data_aishell.tgz").write_bytes(data[:-1] + b"x")
    with pytest.raises(FetchFailed, match="damaged"):
        download(root, remotes)
    assert not (root / "data_aishell").exists()
    (root / "data_aishell.tgz").write_bytes(data)
    assert download(root, remotes, jobs=1)
    check_complete(root)
    assert len(server.asked) == 1  # the small one


def test_a_corpus_unpacked_by_hand_is_taken_as_it_is(tmp_path: Path) -> None:
    for name, content in corpus().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert download(tmp_path, (Remote("http://127.0.0.1:1/a.tgz", 1, ""),), jobs=1)  # its speakers were packed
    check_complete(tmp_path)
    assert not download(tmp_path, (Remote("http://127.0.0.1:1/a.tgz", 1, ""),))


@pytest.mark.parametrize("name", ["../outside.wav", "/outside.wav", "data_aishell/../../outside.wav"])
def test_nothing_lands_outside(server: FaultServer, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnpackFailed, match="leads out of its folder"):
        download(tmp_path / "root", publish(server, {name: b"x"}))
    assert not list(tmp_path.rglob("outside.wav"))
    hostile = tgz({name: b"x"})
    with pytest.raises(UnpackFailed):
        download(tmp_path / "root2", publish(server, corpus(S0002=hostile)), jobs=1)
    assert not list(tmp_path.rglob("outside.wav"))


def test_links_are_not_made(server: FaultServer, tmp_path: Path) -> None:
    linked = tgz({"train/S0002/BAC009S0002W0000.wav": b""}, tarfile.SYMTYPE)
    with pytest.raises(UnpackFailed, match=r"S0002\.tar\.gz cannot be unpacked .*a link"):
        download(tmp_path / "root", publish(server, corpus(S0002=linked)), jobs=1)
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "tar", "none"])
def test_damaged_speakers_are_told_and_kept_out(server: FaultServer, tmp_path: Path, damage: str) -> None:
    whole = speaker("S0002", "train")
    plain = gzip.decompress(whole)
    damaged = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:60] + bytes([whole[60] ^ 255]) + whole[61:],
        "tar": gzip.compress(plain[:3584] + b"x" * 512 + plain[4096:]),
        "none": b"",
    }[damage]
    root = tmp_path / "root"
    with pytest.raises(UnpackFailed):
        download(root, publish(server, corpus(S0002=damaged)), jobs=1)
    assert not (root / "data_aishell" / "wav" / "train").exists()
