"""Lists: every way to name them, every way to get them wrong, and the order that they are dealt in."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from helpers_bad import audio, keys, members, raw_items, raw_list, run, shard, shard_list, tar

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger


def texts(
    paths: Any, *, shuffle: bool = False, lane: int = 0, lanes: int = 1, seed: int = 0, epoch: int = 0
) -> list[str]:
    """The items that a lane gets."""
    pipeline = uio.list_files(paths, shuffle=shuffle).sharding_filter()
    node = pipeline.build(Lane(Ledger(), lane, lanes, seed, epoch))
    node.reset(None)
    return [item.text for item in node]


def write(root: Path, name: str, text: str) -> str:
    (root / name).write_text(text)
    return str(root / name)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on this machine: (its URL, the folder that it shows)."""
    handler = functools.partial(_Silent, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", tmp_path
    server.shutdown()
    thread.join()
    server.server_close()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


# What may be named


def test_blank_lines_comments_blanks_around_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    text = "\ufeff# head\n\n  a.tar  \n   # indented comment\n\r\nb.tar\r\n\t\nc#1.tar"
    assert texts(write(tmp_path, "x.list", text)) == ["a.tar", "b.tar", "c#1.tar"]


def test_several_lists_keep_their_order(tmp_path: Path) -> None:
    b, a = write(tmp_path, "b.list", "1\n2\n"), write(tmp_path, "a.list", "3\n")
    assert texts([b, Path(a), b]) == ["1", "2", "3", "1", "2"]


def test_globs_are_sorted(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        write(tmp_path, f"{name}.list", f"{name}1\n{name}2\n")
    assert texts(f"{tmp_path}/*.list") == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert texts(f"{tmp_path}/[ac].list") == ["a1", "a2", "c1", "c2"]
    assert texts(f"{tmp_path.parent}/**/{tmp_path.name}/a.list") == ["a1", "a2"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{a,b}.list", ["a", "b"]),
        ("{b,a}.list", ["b", "a"]),
        ("s{00..03}.list", ["s00", "s01", "s02", "s03"]),
        ("{a,s{00..01}}.list", ["a", "s00", "s01"]),
        ("{a,s}*.list", ["a", "s00", "s01", "s02", "s03"]),
    ],
)
def test_braces_come_before_globs(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("a", "b", "s00", "s01", "s02", "s03"):
        write(tmp_path, f"{name}.list", name)
    assert texts(f"{tmp_path}/{pattern}") == expected


def test_tar_names_are_items_themselves(tmp_path: Path) -> None:
    names = [f"x/s{i:02d}.tar" for i in range(4)]
    assert texts("x/s{00..03}.tar") == names
    assert texts(names) == names
    assert texts(["a.tar.gz", "b.tgz", "c.tar.zst", "d.tar.bz2", "e.tar.xz"])[2:4] == ["c.tar.zst", "d.tar.bz2"]
    for name in ("b.tar", "a.tar.gz", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert texts(f"{tmp_path}/*.tar*") == [f"{tmp_path}/a.tar.gz", f"{tmp_path}/b.tar"]


def test_dicts_are_utterances_of_a_raw_list(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    items[1]["txt"] = "braces {a,b} and a # and a glob *"
    batches, _ = run(uio.from_raw_list(items).decode_audio())
    assert [b["key"] for b in batches] == ["R000", "R001", "R002"]
    assert batches[1]["txt"] == items[1]["txt"]


def test_file_url(tmp_path: Path) -> None:
    assert texts(f"file://{write(tmp_path, 'x.list', 'a.tar')}") == ["a.tar"]
    assert texts(f"file://{tmp_path}/*.list") == ["a.tar"]


def test_memory_url_list_shard_and_glob() -> None:
    fs = fsspec.filesystem("memory")
    for i in range(3):
        fs.pipe(f"/list_files/s{i}.tar", tar(members(2, 2 * i)))
    fs.pipe("/list_files/x.list", b"memory://list_files/s0.tar\nmemory://list_files/s1.tar\n")
    batches, _ = run(uio.from_shard_list("memory://list_files/x.list").decode_audio())
    assert keys(batches) == ["K000", "K001", "K002", "K003"]
    batches, _ = run(uio.from_shard_list("memory://list_files/*.tar").decode_audio())
    assert keys(batches) == [f"K{i:03d}" for i in range(6)]


def test_web_server_list_shard_and_audio(web: tuple[str, Path]) -> None:
    url, root = web
    shard(root / "a.tar", members(3))
    (root / "x.wav").write_bytes(audio(900))
    shard_list(root / "x.list", [f"{url}/a.tar"])
    raw_list(root / "raw.list", [{"key": "x", "wav": f"{url}/x.wav", "txt": "t"}])
    batches, _ = run(uio.from_shard_list(f"{url}/x.list").decode_audio())
    assert keys(batches) == ["K000", "K001", "K002"]
    batches, _ = run(uio.from_raw_list(f"{url}/raw.list").decode_audio())
    assert batches[0]["wav"].shape == (1, 900)


def test_web_server_without_the_shard_names_the_url_and_the_line(web: tuple[str, Path]) -> None:
    url, root = web
    path = shard_list(root / "x.list", ["# one", f"{url}/none.tar"])
    with pytest.raises(uio.DataError) as error:
        run(uio.from_shard_list(path), failures="raise")
    assert error.value.reason == "missing_file"
    assert f"{url}/none.tar" in str(error.value)
    assert "x.list, line 2" in str(error.value)


def test_a_line_may_hold_any_character_but_a_newline(tmp_path: Path) -> None:
    """JSON leaves U+2028, U+0085 and others unescaped with ensure_ascii=False; only a newline ends a line."""
    items = raw_items(tmp_path, 3)
    items[1]["txt"] = "a\u2028b\u0085c\u2029d"
    batches, loader = run(uio.from_raw_list(raw_list(tmp_path / "x.list", items)).decode_audio())
    assert [b["txt"] for b in batches] == ["字0", items[1]["txt"], "字2"]
    assert loader.stats().failures == 0


def test_line_numbers_count_comments(tmp_path: Path) -> None:
    path = write(tmp_path, "x.list", "# 1\n\na.tar\n# 4\nb.tar\n")
    table = uio.list_files([path, "c.tar"]).stages[0].table()
    assert [table.place(i) for i in range(3)] == [f"{path}, line 3", f"{path}, line 5", "c.tar"]


# What is wrong is said, with list, line and remedy


def listing(pipeline: uio.Pipeline) -> str:
    with pytest.raises(uio.ListError) as error:
        run(pipeline)
    return str(error.value)


def test_missing_list_is_named_when_the_pipeline_runs(tmp_path: Path) -> None:
    pipeline = uio.from_shard_list(tmp_path / "none.list")
    assert f"cannot read the list {tmp_path}/none.list: no such file" in listing(pipeline)
    assert "memory://nothing/none.list" in listing(uio.from_shard_list("memory://nothing/none.list"))


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n # comments\n"])
def test_empty_list_is_named(tmp_path: Path, text: str) -> None:
    full = write(tmp_path, "full.list", "a.tar\n")
    path = write(tmp_path, "x.list", text)
    assert f"the list {path} is empty" in listing(uio.from_shard_list([full, path]))


def test_binary_list_names_line_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "x.list").write_bytes(b"a.tar\nb.tar\n\xff\xfe\x00")
    message = listing(uio.from_shard_list(tmp_path / "x.list"))
    assert "x.list is not UTF-8 text (line 3)" in message
    assert ".tar.zst" in message
    (tmp_path / "x.list").write_bytes(b"a.tar\n\0\0")
    assert "a NUL in line 2" in listing(uio.from_shard_list(tmp_path / "x.list"))


def test_shard_under_another_name_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(tar(members(1)))
    assert "shard is no" in listing(uio.from_shard_list(tmp_path / "shard"))


def test_folder_is_no_list(tmp_path: Path) -> None:
    message = listing(uio.from_shard_list(tmp_path))
    assert str(tmp_path) in message
    assert "folder" in message
    assert "*.tar" in message


def test_raw_list_for_shards_names_line_and_remedy(tmp_path: Path) -> None:
    path = raw_list(tmp_path / "x.list", ["# head", *raw_items(tmp_path, 2)])
    message = listing(uio.from_shard_list(path))
    assert f"{path}, line 2" in message
    assert "from_raw_list" in message


def test_shard_list_for_raw_names_line_and_remedy(tmp_path: Path) -> None:
    path = shard_list(tmp_path / "x.list", ["# head", "", "a.tar"])  # the message would cut a long path
    message = listing(uio.from_raw_list(path))
    assert f"{path}, line 3" in message
    assert "a.tar" in message
    assert "from_shard_list" in message


@pytest.mark.parametrize("name", ["x{a,b.list", "xa,b}.list", "{a,{b}.list"])
def test_unbalanced_braces(name: str) -> None:
    message = listing(uio.from_shard_list(name))
    assert "unbalanced braces" in message
    assert name in message


def test_glob_without_match(tmp_path: Path) -> None:
    assert f"no file matches '{tmp_path}/*.tar'" in listing(uio.from_shard_list(f"{tmp_path}/*.tar"))
    write(tmp_path, "a1.list", "x.tar")
    message = listing(uio.from_shard_list(f"{tmp_path}/{{a,b}}*.list"))
    assert f"no file matches '{tmp_path}/b*.list'" in message
    assert "{a,b}*.list" in message


def test_existing_file_with_brackets_in_its_name(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "part[1].list", "a.tar")) == ["a.tar"]


def test_lists_are_wrong_in_a_worker_as_they_are_here(tmp_path: Path) -> None:
    path = raw_list(tmp_path / "x.list", raw_items(tmp_path, 2))
    with pytest.raises(uio.ListError, match=r"x\.list, line 1"):
        run(uio.from_shard_list(path), num_workers=1)


def test_describing_reads_nothing_from_an_iterator_later() -> None:
    assert texts(iter(["b.tar", "a.tar"])) == ["b.tar", "a.tar"]


# Order and shares

NAMES = [f"s{i:03d}.tar" for i in range(50)]


def test_shuffled_order_is_a_permutation_that_seed_and_epoch_choose() -> None:
    orders = {(s, e): tuple(texts(NAMES, shuffle=True, seed=s, epoch=e)) for s in range(3) for e in range(3)}
    assert all(sorted(order) == NAMES for order in orders.values())
    assert len(set(orders.values())) == 9
    assert tuple(texts(NAMES, shuffle=True, seed=1, epoch=2)) == orders[1, 2]
    assert texts(NAMES) == texts(NAMES, seed=1, epoch=1) == NAMES


def test_shuffling_is_uniform() -> None:
    """First places over many epochs: chi-squared with 9 degrees of freedom, below its 99.99 % quantile."""
    counts = dict.fromkeys(NAMES[:10], 0)
    for epoch in range(1000):
        counts[texts(NAMES[:10], shuffle=True, epoch=epoch)[0]] += 1
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 33.7


@pytest.mark.parametrize(("world", "workers"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 4)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shares_are_those_of_wenet(world: int, workers: int, shuffle: bool) -> None:
    lanes = world * workers
    data = texts(NAMES, shuffle=shuffle, seed=5, epoch=1)
    for rank in range(world):
        for worker in range(workers):
            lane = worker * world + rank
            share = texts(NAMES, shuffle=shuffle, lane=lane, lanes=lanes, seed=5, epoch=1)
            assert share == data[rank::world][worker::workers]


def test_ranks_and_workers_of_a_loader_share_as_wenet_does(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 11, samples=400)
    for rank in range(2):
        batches, _ = run(uio.from_raw_list(items).decode_audio(), rank=rank, world_size=2, num_workers=2)
        mine = [item["key"] for item in items][rank::2]
        assert sorted(keys(batches)) == mine
        assert [k for k in keys(batches) if k in mine[0::2]] == mine[0::2]


@pytest.mark.parametrize("build", [lambda p: p.sharding_filter(), lambda p: p.load_from_raw().sharding_filter()])
def test_a_second_sharding_filter_would_lose_utterances(tmp_path: Path, build: Any) -> None:
    """Either refused when described, or without effect: never silently a share of a share."""
    items = raw_items(tmp_path, 8, samples=400)
    try:
        pipeline = build(uio.list_files(items).sharding_filter())
    except uio.PipelineError:
        return
    pipeline = pipeline if pipeline._kind == "sample" else pipeline.load_from_raw()
    batches, _ = run(pipeline.decode_audio(), lanes=2)
    assert sorted(keys(batches)) == [item["key"] for item in items]


def test_shuffle_before_sharding_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Either refused when described, or the lanes' shares are a partition."""
    items = raw_items(tmp_path, 24, samples=400)
    try:
        pipeline = uio.list_files(items).shuffle(6).sharding_filter().load_from_raw().decode_audio()
    except uio.PipelineError:
        return
    batches, _ = run(pipeline, lanes=3)
    assert sorted(keys(batches)) == [item["key"] for item in items]
