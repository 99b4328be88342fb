"""Damage in corpora: what is lost is counted under its reason, and all else is delivered."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from corpora_small import Making, made
from corpora_small.making import damaged

import uio_pipes as uio


def read(name: str, folder: Path, **options: str | list[str]) -> tuple[Counter[str], dict[str, int]]:
    """Keys that are delivered, and how many are left out by reason."""
    loader = uio.Loader(uio.from_corpus(name, folder, **options).decode_audio().batch(2), lanes=1)
    return Counter(sample["key"] for batch in loader for sample in batch), loader.stats().skipped


def wanted(making: Making, part: str) -> Counter[str]:
    return Counter(said.key for said in making.said if said.part == part)


@pytest.mark.parametrize("downloaded", [False, True])
def test_a_row_too_many_is_counted(tmp_path: Path, downloaded: bool) -> None:
    making = made("fleurs", tmp_path, downloaded)
    table = tmp_path / "data" / "en_us" / "train.tsv"
    table.write_text(table.read_text() + "999\tnone.wav\traw\tnormalized\tn |\t16000\tMALE\n")
    found, lost = read("fleurs", tmp_path, lang="en_us")
    assert (found.total(), lost) == (3, {"no_audio": 1})
    assert found < wanted(making, "train")


def test_a_member_that_is_missing_is_counted(tmp_path: Path) -> None:
    made("spgispeech", tmp_path, downloaded=True)
    (tmp_path / "spgispeech" / "train" / "97ab" / "12.wav").unlink()
    found, lost = read("spgispeech", tmp_path)
    assert (sorted(found), lost) == (["5e1f/1", "5e1f/12", "97ab/1"], {"no_audio": 1})


def test_a_row_that_does_not_have_all_columns_is_counted(tmp_path: Path) -> None:
    making = made("ljspeech", tmp_path, downloaded=False)
    table = tmp_path / "LJSpeech-1.1" / "metadata.csv"
    table.write_text(table.read_text() + 'LJ001-0009|"only one text\n')
    found, lost = read("ljspeech", tmp_path)
    assert (found, lost) == (wanted(making, "train"), {"bad_row": 1})


@pytest.mark.parametrize("cut", [1, 8, 400, 800])
def test_an_archive_that_is_cut_off_is_counted_and_the_others_are_read(tmp_path: Path, cut: int) -> None:
    made("gigaspeech2", tmp_path, downloaded=True)
    archive = tmp_path / "data" / "th" / "train" / "0.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-cut])
    found, lost = read("gigaspeech2", tmp_path, part="raw", lang="th")
    assert set(found) >= {"1-0-0", "1-0-1", "1-1-0", "1-1-1"}
    assert lost["truncated"] == 1
    assert found.total() + lost.get("no_audio", 0) == 8


@pytest.mark.parametrize(
    ("name", "archive"), [("gigaspeech2", "data/th/train/1"), ("yodas2", "data/en000/audio/00000001")]
)
def test_rows_of_an_archive_that_is_not_there_are_counted(tmp_path: Path, name: str, archive: str) -> None:
    made(name, tmp_path, downloaded=True)
    (tmp_path / f"{archive}.tar.gz").unlink()
    choice = {"part": "raw", "lang": "th"} if name == "gigaspeech2" else {"lang": "en000"}
    found, lost = read(name, tmp_path, **choice)
    assert (found.total(), lost) == (4, {"missing_file": 1, "no_audio": 4})


def test_a_recording_that_is_damaged_is_counted(tmp_path: Path) -> None:
    making = made("libritts", tmp_path, downloaded=False)
    (wav,) = tmp_path.glob("LibriTTS/train-clean-100/1092/134562/1092_134562_000000_000000.wav")
    wav.write_bytes(damaged(wav.read_bytes()))
    found, lost = read("libritts", tmp_path, part="train-clean-100")
    assert wanted(making, "train-clean-100") - found == Counter([wav.stem])
    assert sum(lost.values()) == 1


@pytest.mark.parametrize("cut", [1, 8, 400, 800, 3000])
def test_a_table_in_an_archive_that_is_cut_off_is_an_error(tmp_path: Path, cut: int) -> None:
    made("librispeech", tmp_path, downloaded=True)
    archive = tmp_path / "dev-clean.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-cut])
    with pytest.raises(uio.ListError, match=r"dev-clean.tar.gz cannot be read: .* is cut off after .* fetch"):
        read("librispeech", tmp_path, part="dev-clean")


def test_a_member_that_is_there_twice_is_counted(tmp_path: Path) -> None:
    making = made("reazonspeech", tmp_path, downloaded=True)
    with tarfile.open(tmp_path / "v2" / "000.tar", "a") as tar:
        again = tarfile.TarInfo(next(name for name in tar.getnames() if name.endswith(".flac")))
        again.size = 3
        tar.addfile(again, io.BytesIO(b"abc"))
    assert read("reazonspeech", tmp_path, part="tiny") == (wanted(making, "tiny"), {"duplicate_member": 1})


@pytest.mark.parametrize("name", ["librispeech", "libritts"])
def test_rows_without_audio_are_counted_in_several_compressed_archives_too(tmp_path: Path, name: str) -> None:
    made(name, tmp_path, downloaded=True)
    for archive in tmp_path.glob("*.tar.gz"):
        without_first_audio(archive)
    parts = sorted(archive.name.removesuffix(".tar.gz") for archive in tmp_path.glob("*.tar.gz"))
    found, lost = read(name, tmp_path, part=parts)
    assert len(parts) > 1
    assert lost == {"no_audio": len(parts)}
    assert found


def without_first_audio(archive: Path) -> None:
    with tarfile.open(archive) as old:
        members = [(member, old.extractfile(member).read()) for member in old if member.isfile()]  # type: ignore[union-attr]
    audio = next(member for member, _ in members if member.name.endswith((".flac", ".wav")))
    with tarfile.open(archive, "w:gz") as new:
        for member, data in members:
            if member is not audio:
                new.addfile(member, io.BytesIO(data))
