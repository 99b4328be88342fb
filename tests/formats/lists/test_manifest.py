"""Entries of manifests are the same by number, by name and in order, and their damage is named."""

import json
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.manifest import Manifest, ShardEntry, read_manifest
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.tools.data.writing.journal import write_manifest

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
    write_manifest(path, ((name, entry_of(name)) for name in written))
    table = ItemTable((str(path), "direct.tar"))
    assert list(table.each_expected()) == [table.expected(number) for number in range(len(table))]
    assert list(table.each_expected()) == [*(entry_of(n) if n in written else None for n in listed), None]
    assert list(Manifest(str(path), Lines(f"{path}.manifest"))) == list(map(entry_of, written))


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), fields=st.permutations(ShardEntry._fields))
def test_an_entry_is_the_same_however_its_json_is_written(name: str, fields: list[str], folder: Path) -> None:
    """Also as we do not write it: such a line is not found by the pattern."""
    entry = entry_of(name)._asdict()
    ordered = {field: entry[field] for field in fields}
    for options in ({}, {"separators": (",", ":")}, {"ensure_ascii": False}):
        body = f"{json.dumps(ordered, **options)}\n".encode()
        head = {"manifest": 1, "shards": 1, "crc32": f"{crc32(body):08x}"}
        (folder / "y.list.manifest").write_bytes(json.dumps(head).encode() + b"\n" + body)
        assert read_manifest(str(folder / "y.list")) == {name: entry_of(name)}


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
    with pytest.raises(uio.ListError, match=rf"is damaged \(line {at + 2}: .*recreate it with uio index"):
        read_manifest(str(tmp_path / "x.list"))
