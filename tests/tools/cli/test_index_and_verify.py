"""``uio index`` and ``uio verify``: what they write, say, and their exit codes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import corpus
import numpy as np
import pytest
import touchdataset
from archive_files import tone, write_archive
from command import uio
from corpus import DAMAGE, Corpus

from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.verify import verify


@pytest.fixture
def good(tmp_path: Path) -> Corpus:
    return corpus.shards(tmp_path / "good", [4, 5, 3], seconds=(0.3, 1.0))


@pytest.fixture
def bad(tmp_path: Path) -> Corpus:
    return corpus.shards(tmp_path / "bad", [4, 5, 3, 4, 5, 6], seconds=(0.3, 1.0), damage=tuple(DAMAGE))


def test_index_writes_indexes_and_a_manifest(good: Corpus) -> None:
    done = uio("index", good.list, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (report["shards"], report["fresh"], report["utterances"], report["problems"]) == (3, 0, 12, [])
    assert report["manifests"] == [f"{good.list}.manifest"]
    assert 0 < report["overhead"] <= 0.02
    manifest = read_manifest(str(good.list))
    assert manifest is not None
    assert [entry.utterances for entry in manifest.values()] == [4, 5, 3]
    assert sum(entry.frames for entry in manifest.values()) == report["frames"]
    again = json.loads(uio("index", good.list, "--json", "--jobs", 1).stdout)
    assert (again["fresh"], again["manifests"]) == (3, [])


def test_index_into_a_folder(good: Corpus, tmp_path: Path) -> None:
    assert uio("index", good.list, "--into", tmp_path / "i").returncode == 0
    assert len(list((tmp_path / "i").rglob("*.uioidx"))) == 3
    assert list(good.list.parent.glob("*.uioidx")) == []
    assert uio("verify", good.list, "--crc", "--indexes", tmp_path / "i").returncode == 0
    missing = uio("verify", good.list, "--crc", "--json")
    assert (missing.returncode, json.loads(missing.stdout)["reasons"]) == (1, {"missing_index": 3})


def test_damage_is_shown_and_the_exit_code_is_1(bad: Corpus) -> None:
    done = uio("index", bad.list)
    assert done.returncode == 1
    assert "5 problems" in done.stdout
    assert all(f"[{reason}]" in done.stderr for reason in DAMAGE.values())
    assert not Path(f"{bad.list}.manifest").exists()  # counts of damaged shards are no promise


def test_verify_finds_and_writes_each_failure_once(bad: Corpus, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    done = uio("verify", bad.list, "--decode", "--quarantine", file, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["reasons"] == dict.fromkeys(sorted(DAMAGE.values()), 1)
    assert len(file.read_text().strip().split("\n")) == len(DAMAGE)
    uio("verify", bad.list, "--decode", "--quarantine", file)
    assert len(file.read_text().strip().split("\n")) == len(DAMAGE)


def test_verify_raw_lists(tmp_path: Path) -> None:
    listed = corpus.raw_list(tmp_path, 9)
    assert uio("verify", listed.list, "--decode").returncode == 0
    (tmp_path / "r003.wav").write_bytes(b"")
    (tmp_path / "r004.wav").unlink()
    report = json.loads(uio("verify", listed.list, "--json", "--rate", 16_000).stdout)
    assert report["reasons"] == {"empty_audio": 1, "missing_file": 1, "wrong_rate": 7}


def test_a_quarantine_file_that_cannot_be_written_is_said_before_the_scan(good: Corpus, tmp_path: Path) -> None:
    done = uio("verify", good.list, "--quarantine", tmp_path / "nodir/q.jsonl")
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path}/nodir/q.jsonl: No such file or directory\n"  # no bar: nothing was read


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["index", "nothing.list"], "cannot read the list nothing.list: no such file"),
        (["verify", "nothing.list"], "nothing was checked: there is no nothing.list"),
        (["verify", "x.tar", "--grouping", "kaldi"], "'kaldi' is not one of 'wenet', 'webdataset'"),
        (["index", "x.tar", "--text", "json:"], "--text: load_from_tar: text must be a suffix"),
        (["verify", "x.tar", "--text", "json:"], "--text: load_from_tar: text must be a suffix"),
        (["index"], "Missing argument"),
        (["index", "raw.list"], "pack it first"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], text: str, tmp_path: Path) -> None:
    corpus.raw_list(tmp_path, 3)
    done = uio(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


# TouchDatasets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A TouchDataset with checksums."""
    made = touchdataset.write(tmp_path / "d", touchdataset.speech(9))
    assert index_lists([str(made)]).problems == []
    return made


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


DAMAGES: dict[str, tuple[Callable[[Path], object], dict[str, int]]] = {
    "sound": (lambda d: None, {}),
    "audio": (lambda d: flip(d / "audio.bin", 5), {"bad_crc": 1}),
    "text": (lambda d: flip(d / "metainfo.bin", 9), {"bad_crc": 1}),
    "no_checksums": (lambda d: (d / "audio.bin.uioidx").unlink(), {"missing_index": 1}),
    "stale": (lambda d: touchdataset.write_pair(d / "audio", [np.ones(7, "<i2")] * 9), {"stale_index": 1}),
    "damaged": (lambda d: flip(d / "metainfo.bin.uioidx", 40), {"stale_index": 1}),
    "index": (lambda d: flip(d / "audio.idx", 34), {"bad_index": 1}),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_verify_compares_touchdatasets_with_their_checksums(name: str, folder: Path) -> None:
    hurt, reasons = DAMAGES[name]
    hurt(folder)
    (folder.parent / "data.list").write_text(f"{folder} audio+metainfo\n")
    *_, report = verify([str(folder.parent / "data.list")], WantedChecks(crc=True))
    assert report.reasons == reasons


def test_index_writes_checksums_of_touchdatasets(folder: Path) -> None:
    shutil.rmtree(folder)
    touchdataset.write(folder, touchdataset.speech(9))
    done = uio("index", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{9} utterances (")
    assert " in 1 TouchDataset (0 indexed before), indexes of " in done.stdout
    assert sorted(path.name for path in folder.glob("*.uioidx")) == ["audio.bin.uioidx", "metainfo.bin.uioidx"]
    assert json.loads(uio("index", folder, "--json").stdout)["fresh"] == 1
    assert uio("verify", folder, "--crc", "--jobs", 1).returncode == 0


def test_members_of_archives_are_indexed_once(tmp_path: Path) -> None:
    members = [(f"{number}.wav", tone(number)) for number in range(3)]
    paths = [str(write_archive(tmp_path / name, members)) for name in ("a.tar.gz", "b.tar", "c.zip")]
    made = uio("index", "--members", *paths, "--json", "--jobs", 1)
    report = json.loads(made.stdout)
    assert (report["members"], report["archives"], report["fresh"]) == (6, 3, 1)  # a zip has its own directory
    size = sum(Path(f"{path}.uioidx").stat().st_size for path in paths[:2])
    again = json.loads(uio("index", "--members", *paths, "--json", "--jobs", 1).stdout)
    assert (again["fresh"], report["index_bytes"], again["index_bytes"]) == (3, size, size)


def test_what_cannot_be_indexed_by_members_is_said(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.gz", [("a.wav", tone(1))])
    archive.write_bytes(archive.read_bytes()[:-30])
    done = uio("index", "--members", archive, "--jobs", 1)
    assert done.returncode == 1
    assert "truncated" in done.stderr
    assert "can still only be read in its order" in done.stderr
    (tmp_path / "a.wav").write_bytes(tone(1))
    assert "is no archive by its name" in uio("index", "--members", tmp_path / "a.wav").stderr
    assert "stands alone" in uio("index", "--members", archive, "--into", tmp_path).stderr
