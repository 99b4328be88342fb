"""Tables and the audio that they name on a server that fails: as files, in archives, and in indexed archives."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from archive_files import heard, tone, write_archive, write_table
from fault_server import FaultServer

import uio_pipes as uio
from uio_pipes.tools.data.index import index_archives

NAMES = {"key": "id", "wav": "path", "txt": "text"}
TONES = {f"{n}-{i}": 5 * n + i for n in range(3) for i in range(4)}
ROWS = [("id", "path", "text"), *((key, f"{key.replace('-', '/')}.wav", "文") for key in TONES), ("x", "no.wav", "文")]
FAULTS = ("503 0", "reset 3000", "short 2000", "500")  # of the first requests for each file


@pytest.fixture
def table(tmp_path: Path, server: FaultServer) -> str:
    """The URL of the table, which is read on the third try."""
    return server.add("d/t.tsv", write_table(tmp_path / "t.tsv", ROWS).read_bytes(), "503 0", "reset 40")


def read(table: Any, lanes: int = 2, **options: Any) -> tuple[Counter[str], Counter[str]]:
    loader = uio.Loader(uio.from_table(table, fields=NAMES, **options).decode_audio().batch(2), lanes=lanes)
    samples = [sample for batch in loader for sample in batch]
    assert all(heard(sample["wav"]) == TONES[sample["key"]] for sample in samples)
    return Counter(sample["key"] for sample in samples), Counter(loader.stats().skipped)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_archives_on_a_server_that_fails(tmp_path: Path, server: FaultServer, table: str, kind: str) -> None:
    for number in range(3):
        members = [(f"{number}/{i}.wav", tone(5 * number + i)) for i in range(4)]
        archive = write_archive(tmp_path / f"{number}.{kind}", members)
        server.add(f"d/{number}.{kind}", archive.read_bytes(), *FAULTS)
    archives = [f"{number}.{kind}" for number in range(3)]
    lost = {"no_audio": 1} if kind == "zip" else {}
    assert read(table, archives=archives) == (Counter([*TONES]), lost)
    assert read(table, archives="{0..2}." + kind) == (Counter([*TONES]), lost)


def test_indexes_on_a_server_tell_what_no_archive_has(tmp_path: Path, server: FaultServer, table: str) -> None:
    archives = []
    for number in range(3):
        members = [(f"{number}/{i}.wav", tone(5 * number + i)) for i in range(4)]
        packed = write_archive(tmp_path / f"{number}.tar.gz", members + [("0/0.wav", tone(0))] * (number == 2))
        assert not index_archives([str(packed)]).problems
        archives.append(server.add(f"d/{number}.tar.gz", packed.read_bytes()))
        server.add(f"d/{number}.tar.gz.uioidx", Path(f"{packed}.uioidx").read_bytes(), "503 0")
    assert read(table, archives=archives) == (Counter([*TONES]), {"no_audio": 1, "duplicate_member": 1})


def test_audio_files_on_a_server_that_fails(tmp_path: Path, server: FaultServer, table: str) -> None:
    for key, number in TONES.items():
        server.add(f"d/{key.replace('-', '/')}.wav", tone(number), *(["503 0"] if number % 5 == 2 else []))
    expected = Counter([*TONES]), {"no_audio": 1}
    assert read(table) == read(str(tmp_path / "t.tsv"), root=f"{server.url}/d") == expected
    assert read(table, absent="not_kept") == (Counter([*TONES]), {"not_kept": 1})
    loader = uio.Loader(uio.from_table(table, fields=NAMES).decode_audio().batch(1), failures="raise")
    with pytest.raises(uio.DataError, match=r"no such file \(http://.*/d/no\.wav\): fetch it.*\[no_audio\]"):
        list(loader)


def test_a_file_url_names_local_audio(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(tone(1))
    rows = [
        {"id": key, "path": f"file://{tmp_path}/{name}", "text": "文"}
        for key, name in (("0-1", "a.wav"), ("x", "b.wav"))
    ]
    assert read(rows, 1) == (Counter(["0-1"]), {"no_audio": 1})


def test_a_table_that_is_not_there_is_said(server: FaultServer) -> None:
    with pytest.raises(uio.ListError, match=r"cannot read the table http://.*/none\.tsv: no such file"):
        read(f"{server.url}/none.tsv")
