"""Lists: every way to name them, every way to get them wrong, and the order that they are dealt in."""

from pathlib import Path
from typing import Any

import fsspec
import pytest
from helpers_bad import keys, members, raw_items, raw_list, run, tar

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


# What may be named


def test_several_lists_keep_their_order(tmp_path: Path) -> None:
    b, a = write(tmp_path, "b.list", "1\n2\n"), write(tmp_path, "a.list", "3\n")
    assert texts([b, Path(a), b]) == ["1", "2", "3", "1", "2"]


def test_globs_are_sorted(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        write(tmp_path, f"{name}.list", f"{name}1\n{name}2\n")
    assert texts(f"{tmp_path}/*.list") == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert texts(f"{tmp_path}/[ac].list") == ["a1", "a2", "c1", "c2"]
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "deep" / "er", "d.list", "d1\n")
    assert texts(f"{tmp_path}/**/er/d.list") == ["d1"]
    assert texts(write(tmp_path, "part[1].list", "a.tar")) == ["a.tar"]


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
    assert texts(names) == texts(iter(names)) == names
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


def test_urls_of_lists_and_shards_and_their_globs(tmp_path: Path) -> None:
    assert texts(f"file://{write(tmp_path, 'x.list', 'a.tar')}") == ["a.tar"]
    assert texts(f"file://{tmp_path}/*.list") == ["a.tar"]
    fs = fsspec.filesystem("memory")
    for i in range(3):
        fs.pipe(f"/list_files/s{i}.tar", tar(members(2, 2 * i)))
    fs.pipe("/list_files/x.list", b"memory://list_files/s0.tar\nmemory://list_files/s1.tar\n")
    batches, _ = run(uio.from_shard_list("memory://list_files/x.list").decode_audio())
    assert keys(batches) == ["K000", "K001", "K002", "K003"]
    batches, _ = run(uio.from_shard_list("memory://list_files/*.tar").decode_audio())
    assert keys(batches) == [f"K{i:03d}" for i in range(6)]


def test_line_numbers_count_comments(tmp_path: Path) -> None:
    path = write(tmp_path, "x.list", "# 1\n\na.tar\n# 4\nb.tar\n")
    table = uio.list_files([path, "c.tar"]).stages[0].table()
    assert [table.place(i) for i in range(3)] == [f"{path}, line 3", f"{path}, line 5", "c.tar"]


def test_lists_are_wrong_in_a_worker_as_they_are_here(tmp_path: Path) -> None:
    path = raw_list(tmp_path / "x.list", raw_items(tmp_path, 2))
    with pytest.raises(uio.ListError, match=r"x\.list, line 1"):
        run(uio.from_shard_list(path), num_workers=1)


# Order and shares

NAMES = [f"s{i:03d}.tar" for i in range(50)]


def test_shuffled_order_is_a_permutation_that_seed_and_epoch_choose() -> None:
    orders = {(s, e): tuple(texts(NAMES, shuffle=True, seed=s, epoch=e)) for s in range(3) for e in range(3)}
    assert all(sorted(order) == NAMES for order in orders.values())
    assert len(set(orders.values())) == 9
    assert tuple(texts(NAMES, shuffle=True, seed=1, epoch=2)) == orders[1, 2]
    assert texts(NAMES) == texts(NAMES, seed=1, epoch=1) == NAMES


def test_what_is_drawn_twice_fails_twice_and_is_excluded_each_time(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 8, samples=400)
    pipeline = uio.from_raw_list(items, resampled=True).decode_audio()
    loader = uio.Loader(pipeline, seed=1)
    drawn = [sample["key"] for sample in loader]
    often = max(drawn, key=drawn.count)
    assert (len(drawn), drawn.count(often) > 1) == (8, True)
    rest = [key for key in drawn if key != often]
    without = uio.Loader(pipeline, seed=1)
    without.exclude([often])
    assert [sample["key"] for sample in without] == rest
    assert without.stats().skipped == {"excluded": drawn.count(often)}
    Path(next(item["wav"] for item in items if item["key"] == often)).unlink()
    failing = uio.Loader(pipeline, seed=1)
    assert [sample["key"] for sample in failing] == rest
    assert failing.stats().skipped == {"missing_file": drawn.count(often)}
    with pytest.raises(uio.TooManyFailures, match="max_failures=1"):
        list(uio.Loader(pipeline, seed=1, failures=uio.Failures(max_failures=1)))


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
