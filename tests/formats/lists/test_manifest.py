"""Manifests are read in blocks: as line by line, with the same errors."""

import json
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.formats.lists import manifest
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.manifest import Manifest, ShardEntry, read_manifest
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.prep.writing.journal import write_manifest

NAMES = st.lists(st.sampled_from([f"{name}.tar" for name in "abcdefg"]), min_size=1, max_size=7, unique=True)


def entry_of(shard: str) -> ShardEntry:
    return ShardEntry(shard, ord(shard[0]), 7, 1024, f"{ord(shard[0]):08x}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


@given(listed=NAMES, written=NAMES)
def test_each_shard_gets_its_entry_whatever_the_order(folder: Path, listed: list[str], written: list[str]) -> None:
    path = folder / "some.list"
    path.write_text("".join(f"{name}\n" for name in listed))
    write_manifest(path, map(entry_of, written))
    with patch.object(manifest, "BLOCK", 2):
        table = ItemTable((str(path), "direct.tar"))
        assert list(table.each_expected()) == [table.expected(number) for number in range(len(table))]
        assert list(table.each_expected()) == [*(entry_of(n) if n in written else None for n in listed), None]
        assert list(Manifest(str(path), Lines(f"{path}.manifest"))) == list(map(entry_of, written))


BAD = {
    "no JSON": '{"shard"',
    "no object": "[1]",
    "two in a line": ", ".join([json.dumps(entry_of("a.tar")._asdict())] * 2),
    "a CRC32 of capitals": json.dumps(entry_of("a.tar")._asdict() | {"crc32": "ABCDEF00"}),
    "no name": json.dumps(entry_of("a.tar")._asdict() | {"shard": 1}),
    "a truth value": json.dumps(entry_of("a.tar")._asdict() | {"utterances": True}),
    "below 0": json.dumps(entry_of("a.tar")._asdict() | {"frames": -1}),
    "too large": json.dumps(entry_of("a.tar")._asdict() | {"bytes": 1 << 60}),
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_damaged_line_is_named(tmp_path: Path, line: str, at: int) -> None:
    lines = [json.dumps(entry_of(f"{name}.tar")._asdict()) for name in "abcde"]
    lines[at] = line
    body = "".join(f"{each}\n" for each in lines).encode()
    head = {"manifest": 1, "shards": len(lines), "crc32": f"{crc32(body):08x}"}
    (tmp_path / "x.list.manifest").write_bytes(json.dumps(head).encode() + b"\n" + body)
    with pytest.raises(uio.ListError, match=rf"is damaged \(line {at + 2}: .*write it anew with uio index"):
        read_manifest(str(tmp_path / "x.list"))
