"""Indexed tars: the samples that reading through gives, in any order; stale, missing, damaged, hostile indexes."""

import gzip
import io
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import corpus
import fsspec
import pytest
from contract import digest, restored
from corpus import DAMAGE, Corpus
from failing import fails_as
from helpers_bad import audio, keys, members, run, shard, shard_list, tar
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_corpus import indexed

import uio_pipes as uio
from uio_pipes.base.errors import ListError
from uio_pipes.formats.tar.checks import sidecar_path
from uio_pipes.formats.tar.index import ArchiveIndex, dumps, load
from uio_pipes.io.local import LocalFile
from uio_pipes.sources.tar_index import ListTarIndex
from uio_pipes.tools.data.index import index_lists, index_shard
from uio_pipes.tools.data.scan import Scanning


@pytest.fixture
def own(tmp_path: Path) -> Corpus:
    """Shards that a test may change."""
    return corpus.shards(tmp_path / "own", [4, 5, 3], seconds=(0.3, 1.0))


def shards_of(listed: Corpus) -> list[Path]:
    return [Path(line) for line in listed.list.read_text().split("\n") if line.endswith(".tar")]


def samples(pipeline: uio.Pipeline, **options: Any) -> dict[str, str]:
    """Digest of all fields by key, and of the plan."""
    found = {}
    for sample in run(pipeline, **options)[0]:
        assert sample["key"] not in found
        found[sample["key"]] = digest(sample)
    return found


def both(path: Path, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    indexed(path, folder)
    return samples(uio.from_shard_list(path)), samples(uio.from_tar_index(path, indexes=str(folder)))


@pytest.mark.parametrize("name", ["plain_corpus", "feature_corpus", "bad_corpus"])
def test_the_same_samples_as_reading_through(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    through, by_index = both(request.getfixturevalue(name).list, tmp_path)
    assert by_index == through
    assert len(through) >= 20


def test_the_same_samples_of_odd_members(tmp_path: Path) -> None:
    """Other suffixes, small and large; two recordings of an utterance; no length in the header; a long text."""
    parts = [("a.json", b"{}"), ("a.txt", b" text \n"), ("a.wav", audio()), ("a.flac", audio(form="FLAC"))]
    parts += [("d/b.mp3", audio(9000, form="MP3", subtype="MPEG_LAYER_III")), ("d/b.txt", "字".encode() * 900)]
    parts += [("c.big", bytes(range(256)) * 40), ("c.ogg", audio(9000, form="OGG", subtype="VORBIS")), ("c.txt", b"")]
    shard_list(tmp_path / "l.list", [shard(tmp_path / "s.tar", parts)])
    through, by_index = both(tmp_path / "l.list", tmp_path / "i")
    assert by_index == through
    assert len(through) == 3
    listed, named = tmp_path / "l.list", str(tmp_path / "s.tar")
    records, same = (samples(uio.from_tar_index(path, indexes=str(tmp_path / "i"))) for path in (listed, named))
    assert records == same == by_index


def test_webdataset_names_and_text_in_json(tmp_path: Path) -> None:
    parts = [("a.x.json", '{"words": "好"}'.encode()), ("a.wav", audio())]
    shard_list(tmp_path / "l.list", [shard(tmp_path / "s.tar", parts)])
    index_lists([str(tmp_path / "l.list")], grouping="webdataset", text="x.json:words")
    (sample,), loader = run(uio.from_tar_index(tmp_path / "l.list"))
    assert (sample["key"], sample["txt"], loader.stats().failures) == ("a", "好", 0)


def test_planning_and_restoring_read_no_shard(own: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run reads only the utterances that it delivers, each once."""
    indexed(own.list, tmp_path)
    pipeline = uio.from_tar_index(own.list, shuffle=True, indexes=str(tmp_path))
    graph = pipeline.decode_audio().filter(max_frames=9999).shuffle(6).sort(4).batch(2).pad()
    loader = uio.Loader(graph)
    batches = iter(loader)
    before = [key for _ in range(4) for key in next(batches)["keys"]]
    state = loader.state_dict()
    read: list[str] = []
    real = LocalFile.read

    def counted(self: LocalFile, offset: int, size: int) -> bytes:
        read.append(f"{self.path}:{offset}")
        return real(self, offset, size)

    monkeypatch.setattr(LocalFile, "read", counted)
    again = restored(graph, state)
    after = keys(again)
    assert sorted(before + after) == sorted(own.keys)
    assert len(read) == len(set(read)) == len(after)


def test_damage_is_in_the_index_and_counted_again(bad_corpus: Corpus, tmp_path: Path) -> None:
    report = indexed(bad_corpus.list, tmp_path)
    assert sorted(error.reason for error in report.problems) == sorted(DAMAGE.values())
    pipeline = uio.from_tar_index(bad_corpus.list, shuffle=True, indexes=str(tmp_path)).decode_audio()
    batches, loader = run(pipeline, lanes=3)
    assert sorted(keys(batches)) == sorted(bad_corpus.keys)
    assert loader.stats().skipped == dict.fromkeys(DAMAGE.values(), 1)
    assert len(uio.Loader(pipeline.batch(1))) == len(bad_corpus.keys) + 1  # what only decoding tells is not left out


def test_a_shard_without_an_index_is_named_with_the_remedy(own: Corpus) -> None:
    with pytest.raises(ListError, match=r"s000\.tar has no index \(.*s000\.tar\.uioidx\): make it with uio index"):
        run(uio.from_tar_index(own.list))
    with pytest.raises(ListError, match="has no index"):
        run(uio.from_shard_list(own.list, verify="crc"))


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_stale_index_is_noticed(own: Corpus, change: str) -> None:
    index_lists([str(own.list)])
    path = shards_of(own)[1]
    if change == "size":
        path.write_bytes(path.read_bytes() + bytes(512))
        os.utime(path, ns=(1, 1))
    else:
        os.utime(path, ns=(1, 1))
    for pipeline in (uio.from_tar_index(own.list), uio.from_shard_list(own.list, verify="crc")):
        with pytest.raises(ListError, match=r"the index of \S*s001\.tar is stale: .* make it with uio index"):
            run(pipeline)
    assert index_shard(str(path)).fresh is False
    assert index_shard(str(path)).fresh is True
    assert len(run(uio.from_tar_index(own.list))[0]) == len(own.keys)


def test_a_shard_that_is_replaced_after_its_index_was_opened(own: Corpus) -> None:
    index_lists([str(own.list)])
    table = ListTarIndex((str(own.list),)).table()
    os.utime(shards_of(own)[0], ns=(1, 1))
    with fails_as("changed_file"):
        table.fields(1)


def test_compressed_shards_are_counted_and_refused(gz_corpus: Corpus, tmp_path: Path) -> None:
    report = indexed(gz_corpus.list, tmp_path)
    assert report.utterances == len(gz_corpus.keys)
    with pytest.raises(ListError, match=r"is compressed \(gzip\): .* Unpack it and index it again, or read it with"):
        run(uio.from_tar_index(gz_corpus.list, indexes=str(tmp_path)))


def flipped(path: Path, at: int) -> None:
    """One byte, with the file's time as it was."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("source", ["from_tar_index", "from_shard_list"])
@pytest.mark.parametrize("member", ["K0001.txt", "K0001.wav"])
def test_verify_finds_a_flipped_bit(own: Corpus, source: str, member: str) -> None:
    index_lists([str(own.list)])
    path = shards_of(own)[0]
    flipped(path, path.read_bytes().index(member.encode()) + 512 + (1 if member.endswith("txt") else 300))
    batches, loader = run(getattr(uio, source)(own.list, verify="crc").decode_audio())
    if source == "from_tar_index" and member.endswith("txt"):  # the text is in the index, and right
        assert loader.stats().failures == 0
        return
    assert loader.stats().skipped == {"bad_crc": 1}
    assert sorted(keys(batches)) == [key for key in sorted(own.keys) if key != "K0001"]


def test_indexes_beside_remote_shards(own: Corpus) -> None:
    memory = fsspec.filesystem("memory")
    names = []
    for path in shards_of(own):
        memory.pipe_file(f"/far/{path.name}", path.read_bytes())
        names.append(f"memory://far/{path.name}")
    assert index_lists(names, jobs=1).utterances == len(own.keys)
    assert samples(uio.from_tar_index(names)) == samples(uio.from_shard_list(own.list))
    memory.pipe_file("/far/s000.tar", shards_of(own)[0].read_bytes() + bytes(512))
    with pytest.raises(ListError, match="stale"):
        run(uio.from_tar_index(names))


def test_processes_index_the_same(own: Corpus, tmp_path: Path) -> None:
    one = index_lists([str(own.list)], into=str(tmp_path / "1"))
    two = index_lists([str(own.list)], into=str(tmp_path / "2"), jobs=2)
    assert vars(two) | {"manifests": []} == vars(one) | {"manifests": []}
    names = [sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*.uioidx")) for n in ("1", "2")]
    assert names[0] == names[1]
    assert all((tmp_path / "1" / n).read_bytes() == (tmp_path / "2" / n).read_bytes() for n in names[0])


@pytest.mark.parametrize(
    ("url", "folder", "expected"),
    [
        ("a/b.tar", None, "a/b.tar.uioidx"),
        ("https://h/b.tar?key=1", None, "https://h/b.tar.uioidx?key=1"),
        ("https://h/b.tar?key=1", "i", "i/h/b.tar.uioidx"),
        ("/a/b.tar", "i", "i/a/b.tar.uioidx"),
        ("../../b.tar", "i", "i/b.tar.uioidx"),
    ],
)
def test_where_an_index_is(url: str, folder: str | None, expected: str) -> None:
    assert sidecar_path(url, folder) == expected


def test_a_half_written_index_is_never_seen(own: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    path = shards_of(own)[0]
    with pytest.raises(ListError, match="No space left"):
        index_shard(str(path))
    assert sorted(p.name for p in path.parent.iterdir()) == ["s000.tar", "s001.tar", "s002.tar", "shards.list"]


# Hostile bytes


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "s.tar"
    path.write_bytes(tar(members(3)) + tar([("x.txt", b"no audio")]))
    return dumps(Scanning(str(path)).whole())


def loads(data: bytes) -> ArchiveIndex:
    return load(io.BytesIO(data), "i")


def test_an_index_survives_writing_and_reading(good: bytes) -> None:
    index = loads(good)
    assert [index.key(i) for i in range(len(index))] == ["K000", "K001", "K002"]
    assert [error.reason for error in index.errors] == ["missing_audio"]
    assert dumps(index) == good


def test_every_cut_is_rejected(good: bytes) -> None:
    for end in range(len(good)):
        with pytest.raises(ListError, match="the index i is damaged, or not an index"):
            loads(good[:end])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bytes_are_rejected(good: bytes, data: st.DataObject) -> None:
    changed = bytearray(good)
    changed[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ListError, match="uio index"):
        loads(bytes(changed))


def resealed(data: bytes) -> bytes:
    """As one who knows the format would change it: with the right checksum."""
    return data[:16] + zlib.crc32(data[20:]).to_bytes(4, "little") + data[20:]


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"utterances": ' + b"9" * 5000 + b"}",
        b"\xff",
        b"null",
        b"\x80\x04cos\n.",
    ],
    ids=["list", "empty", "deep", "huge int", "no UTF-8", "null", "pickle"],
)
def test_forged_headers(header: bytes) -> None:
    body = b"UIOINDEX" + (2).to_bytes(4, "little") + len(header).to_bytes(4, "little") + bytes(4) + header
    with pytest.raises(ListError):
        loads(resealed(body))


def test_another_version_is_said_to_be_one(good: bytes) -> None:
    with pytest.raises(ListError, match="version 1, this program reads 2"):
        loads(good[:8] + b"\1\0\0\0" + good[12:])


def test_a_thousand_shards_are_few_objects(tmp_path: Path) -> None:
    """Opened, a shard is some arrays over its index's bytes, however many utterances it has."""
    path = Path(shard(tmp_path / "s.tar", members(60)))
    index_shard(str(path))
    names = []
    for i in range(40):
        names.append(str(tmp_path / f"{i}.tar"))
        os.link(path, names[-1])
        shutil.copy(sidecar_path(str(path)), sidecar_path(names[-1]))
    table = ListTarIndex(tuple(names)).table()
    assert len(table) == 2400
    views = [column for s in table.shards for column in s.columns.values()]
    assert all(column.base is not None for column in views)


def test_gzip_is_recognized_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "named.tar"
    path.write_bytes(gzip.compress(tar(members(2))))
    assert Scanning(str(path)).whole().shard.compression == "gzip"
