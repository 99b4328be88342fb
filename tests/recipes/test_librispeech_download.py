"""LibriSpeech's archives, as OpenSLR has them but small: fetched, checked, unpacked, interrupted, damaged."""

from pathlib import Path

import pytest
import typer
from fault_server import FaultServer
from files import Killed, killed_at_write, published, tgz

from recipes.common.fetch import Remote
from recipes.common.unpack import UnpackFailed
from recipes.librispeech.download import REMOTES, download, main
from recipes.librispeech.layout import DEV_PARTS, TEST_PARTS, TRAIN_PARTS

PARTS = {"train-clean-100": 10, "dev-clean": 20}


def archive(part: str, speaker: int) -> bytes:
    folder = f"LibriSpeech/{part}/{speaker}/7"
    flacs = {f"{folder}/{speaker}-7-000{n}.flac": f"{part}{n}".encode() * 500 for n in range(3)}
    texts = {f"{folder}/{speaker}-7.trans.txt": b"".join(b"%d-7-000%d A CAT\n" % (speaker, n) for n in range(3))}
    return tgz({"LibriSpeech/": b"", "LibriSpeech/SPEAKERS.TXT": b"; ID", f"{folder}/": b"", **flacs, **texts})


def publish(server: FaultServer) -> dict[str, Remote]:
    return {part: published(server, f"{part}.tar.gz", archive(part, speaker)) for part, speaker in PARTS.items()}


def check_complete(root: Path) -> None:
    names = {
        str(path.relative_to(root / "LibriSpeech")) for path in (root / "LibriSpeech").rglob("*") if path.is_file()
    }
    recordings = {f"{part}/{s}/7/{s}-7-000{n}.flac" for part, s in PARTS.items() for n in range(3)}
    assert names == {"SPEAKERS.TXT", *recordings, *(f"{part}/{s}/7/{s}-7.trans.txt" for part, s in PARTS.items())}
    assert (root / "LibriSpeech/dev-clean/20/7/20-7-0001.flac").read_bytes() == b"dev-clean1" * 500
    assert not list(root.rglob(".*")) + list(root.rglob("*.partial"))


def test_another_part_is_added_and_what_is_there_is_left_alone(server: FaultServer, tmp_path: Path) -> None:
    remotes, root = publish(server), tmp_path / "root"
    download(root, {"dev-clean": remotes["dev-clean"]})
    kept = (root / "LibriSpeech/dev-clean/20/7/20-7-0001.flac").stat().st_mtime_ns
    assert download(root, remotes)
    check_complete(root)
    assert (root / "LibriSpeech/dev-clean/20/7/20-7-0001.flac").stat().st_mtime_ns == kept
    assert len(server.asked) == 2


@pytest.mark.parametrize("writes", range(10))
def test_goes_on_with_unpacking(
    server: FaultServer, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each file of the archives; ``writes`` files were written before."""
    remotes, root = publish(server), tmp_path / "root"
    with killed_at_write(writes, monkeypatch), pytest.raises(Killed):
        download(root, remotes)
    there = {path.name for path in (root / "LibriSpeech").glob("*-*")}
    assert there == ({"train-clean-100"} if writes >= 5 else set())  # a part appears when its five files are there
    download(root, remotes)
    check_complete(root)
    assert len(server.asked) == 2


def test_the_archive_of_another_part_is_refused(server: FaultServer, tmp_path: Path) -> None:
    remotes = publish(server)
    with pytest.raises(UnpackFailed, match="holds no folder LibriSpeech/dev-other"):
        download(tmp_path / "root", {"dev-other": remotes["dev-clean"]})
    assert not (tmp_path / "root" / "LibriSpeech").exists()


def test_all_parts_are_known_and_an_unknown_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(REMOTES) == {*TRAIN_PARTS, *DEV_PARTS, *TEST_PARTS}
    assert all(len(remote.md5) == 32 and remote.url.startswith("https://") for remote in REMOTES.values())
    with pytest.raises(typer.Exit):
        main(tmp_path, ["train-clean-10"])
    assert "there is no part train-clean-10; take some of train-clean-100" in capsys.readouterr().err
