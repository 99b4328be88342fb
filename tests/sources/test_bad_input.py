"""Damaged shards and utterances through the loader: all that is intact comes, the rest is counted, named, budgeted."""

import gzip
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest
from archive_files import COMPRESS
from contract import Case, check_cuts, record
from helpers_bad import END, Members, audio, keys, members, raw_items, run, shard, shard_list, tar

import uio_pipes as uio

COUNT = 5  # utterances in the damaged shard, K005 … K009; before it K000 … K004, after it K010 … K014
FIRST, LAST = [f"K{i:03d}" for i in range(5)], [f"K{i:03d}" for i in range(10, 15)]


class Damage(NamedTuple):
    """``data``: of the middle shard; ``lost``: what cannot come; ``reason``; ``names``: what the message must hold."""

    data: bytes | None
    lost: tuple[int, ...]
    reason: str
    names: tuple[str, ...] = ("bad.tar",)
    suffix: str = ""


def offset_of(parts: Members, name: str) -> int:
    """Of a member's header."""
    at = 0
    for each, data in parts:
        if each == name:
            return at
        at += 512 + -(-len(data) // 512) * 512
    raise KeyError(name)


def swapped(name: str, data: bytes | None) -> Members:
    """The middle shard's members, one with other data (None: left out)."""
    parts = [(n, data if n == name else d) for n, d in members(COUNT, 5)]
    return [(n, d) for n, d in parts if d is not None]


def damages() -> Iterator[tuple[str, Damage]]:
    parts = members(COUNT, 5)
    good = tar(parts)
    header, payload = offset_of(parts, "K007.txt"), offset_of(parts, "K009.wav") + 512
    yield "truncated in audio", Damage(good[: payload + 700], (9,), "truncated", ("bad.tar", "K009.wav", "byte"))
    yield "truncated in header", Damage(good[: payload - 200], (9,), "truncated", ("bad.tar", "byte"))
    broken = good[: header + 100] + b"\xff" * 30 + good[header + 130 :]
    yield "broken header", Damage(broken, (7,), "bad_header", ("bad.tar", f"byte {header}"))
    yield "no end marker", Damage(good[:-END], (), "missing_end", ("bad.tar", f"byte {len(good) - END}"))
    yield "half an end marker", Damage(good[: -END // 2], (), "missing_end", ("bad.tar",))
    at = offset_of(parts, "K007.txt")
    no_wav = ("bad.tar", "utterance 'K007'", f"byte {at}")
    yield "no audio", Damage(tar(swapped("K007.wav", None)), (7,), "missing_audio", no_wav)
    yield "no text", Damage(tar(swapped("K007.txt", None)), (7,), "missing_text", no_wav)
    yield "missing shard", Damage(None, (5, 6, 7, 8, 9), "missing_file", ("bad.tar", "shards.list, line 2"))
    empty = ("bad.tar", "shards.list, line 2")
    yield "shard of 0 bytes", Damage(b"", (5, 6, 7, 8, 9), "empty_file", empty)
    wav = ("bad.tar", "utterance 'K007'", f"byte {at}")
    yield "web page", Damage(b"<html>not found</html>" * 50, (5, 6, 7, 8, 9), "bad_header")
    yield "undecodable wav", Damage(tar(swapped("K007.wav", b"RIFF, or so " * 99)), (7,), "bad_audio", wav)
    yield "noise as wav", Damage(tar(swapped("K007.wav", bytes(range(256)) * 9)), (7,), "bad_audio", wav)
    yield "wav of 0 samples", Damage(tar(swapped("K007.wav", audio(0))), (7,), "empty_audio", wav)
    yield "wav of 0 bytes", Damage(tar(swapped("K007.wav", b"")), (7,), "empty_audio", wav)
    yield "truncated wav", Damage(tar(swapped("K007.wav", audio(1600)[:-400])), (7,), "truncated_audio", wav)
    yield "flac cut off", Damage(tar(flac(-900)), (7,), "truncated_audio|bad_audio", wav)
    yield "text not UTF-8", Damage(tar(swapped("K007.txt", b"\xd6\xd0\xce\xc4")), (7,), "bad_text", wav[:1])


def flac(cut: int) -> Members:
    data = audio(1600, form="FLAC")[:cut]
    return [("K007.flac", data) if n == "K007.wav" else (n, d) for n, d in members(COUNT, 5)]


DAMAGES = dict(damages())
A_FEW = ("truncated in audio", "broken header", "missing shard", "undecodable wav", "no text")


def corpus(root: Path, damage: Damage) -> str:
    """A list of three shards of which the second is damaged."""
    bad = root / f"bad.tar{damage.suffix}"
    if damage.data is not None:
        bad.write_bytes(damage.data)
    names = [shard(root / "a.tar", members(5)), bad, shard(root / "c.tar", members(5, 10))]
    return shard_list(root / "shards.list", names)


def intact(damage: Damage) -> list[str]:
    return FIRST + [f"K{i:03d}" for i in range(5, 10) if i not in damage.lost] + LAST


def graph(path: str) -> uio.Pipeline:
    return uio.from_shard_list(path).decode_audio().batch(2).pad()


def delivered(path: str, **options: Any) -> tuple[list[str], uio.Stats]:
    batches, loader = run(graph(path), **options)
    return sorted(keys(batches)), loader.stats()


@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in DAMAGES), *((name, 1) for name in A_FEW)])
def test_skipped_counted_and_named(tmp_path: Path, name: str, workers: int, caplog: pytest.LogCaptureFixture) -> None:
    damage = DAMAGES[name]
    path = corpus(tmp_path, damage)
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        got, stats = delivered(path, num_workers=workers)
    assert (got, stats.failures, list(stats.skipped.values())) == (intact(damage), 1, [1])
    message, summary = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert summary.startswith("epoch 0 on rank 0: 1 of ")
    assert [each for each in damage.names if each not in message] == []
    with pytest.raises(uio.DataError) as error:
        delivered(path, failures="raise", num_workers=workers)
    assert error.value.reason in damage.reason.split("|")
    assert "bad.tar" in error.value.url


def far(root: Path, damage: Damage) -> str:
    fs = fsspec.filesystem("memory")
    fs.rm("/bad_input/bad.tar") if fs.exists("/bad_input/bad.tar") else None
    shards = {"a": tar(members(5)), "bad": damage.data, "c": tar(members(5, 10))}
    for shard_name, data in shards.items():
        if data is not None:
            fs.pipe(f"/bad_input/{shard_name}.tar", data)
    return shard_list(root / "m.list", [f"memory://bad_input/{each}.tar" for each in shards])


def gzipped(root: Path, damage: Damage) -> str:
    return corpus(root, damage._replace(data=damage.data and gzip.compress(damage.data, 1), suffix=".gz"))


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("make", [corpus, gzipped, far])
def test_a_resumed_run_skips_the_same_and_counts_nothing_twice(
    tmp_path: Path, name: str, make: Callable[[Path, Damage], str]
) -> None:
    """A gzipped shard and a remote one are read as streams; what is wrong with them is found there too."""
    damage = DAMAGES[name]
    pipeline = uio.from_shard_list(make(tmp_path, damage)).decode_audio().shuffle(4).sort(3).batch(2).pad()
    recorded = record(Case(pipeline))
    assert sorted(recorded.keys) == intact(damage)
    assert (recorded.stats.failures, len(recorded.stats.skipped)) == (1, 1)
    assert next(iter(recorded.stats.skipped)) in damage.reason.split("|")
    check_cuts(recorded, range(len(recorded.digests) + 1))


# Compressed streams


def flipped(part: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = int(len(data) * part)
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]

    return change


CHANGES: list[Callable[[bytes], bytes]] = [
    *map(flipped, [0.3, 0.7, 0.98]),
    lambda data: data[: len(data) * 3 // 5],
    lambda data: b"<html>not found</html>" * 50,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_damage_to_a_compressed_stream_is_never_silent(
    tmp_path: Path, suffix: str, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    sound = COMPRESS[suffix](tar(members(30, 5, samples=4000)))
    assert len(delivered(corpus(tmp_path, Damage(sound, (), "", suffix=f".{suffix}")))[0]) == 40
    path = corpus(tmp_path, Damage(change(sound), (), "", suffix=f".{suffix}"))
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        got, stats = delivered(path)
    assert stats.failures >= 1
    assert set(FIRST) <= set(got)
    assert set(LAST) <= set(got)
    assert stats.utterances == len(got)
    assert f"bad.tar.{suffix}" in caplog.text
    with pytest.raises(uio.DataError) as error:
        delivered(path, failures="raise")
    assert f"bad.tar.{suffix}" in error.value.url


# Budgets


def all_bad(root: Path, count: int) -> str:
    """Good and bad utterances in turn: every second without a text."""
    parts = [(n, d) for n, d in members(count) if not (n.endswith(".txt") and int(n[1:4]) % 2)]
    return shard(root / "x.tar", parts)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [
        ("max_failures", 10, ["10 failures", "x.tar", "K019", "Loader(failures=uio.Failures(max_failures="]),
        ("max_consecutive_failures", 8, ["8 failures in a row", "none7.tar", "Loader(failures=uio.Failures("]),
    ],
)
def test_budgets_stop_and_name_the_last_error_and_the_remedy(
    tmp_path: Path, limit: str, most: int, words: list[str], workers: int
) -> None:
    names = [shard(tmp_path / "a.tar", members(2)), *(tmp_path / f"none{i}.tar" for i in range(8))]
    path = all_bad(tmp_path, 20) if limit == "max_failures" else shard_list(tmp_path / "x.list", names)
    options: list[dict[str, Any]] = [{limit: most}, {limit: most - 1}]
    assert delivered(path, failures=uio.Failures(**options[0]))[1].failures == most
    with pytest.raises(uio.TooManyFailures) as error:
        delivered(path, failures=uio.Failures(**options[1]), num_workers=workers)
    assert [each for each in (*words, f"{limit}={most - 1}") if each not in str(error.value)] == []


def test_total_budget_is_one_for_all_lanes_of_a_rank(tmp_path: Path) -> None:
    path = shard_list(tmp_path / "x.list", [tmp_path / f"none{i}.tar" for i in range(6)] + [all_bad(tmp_path, 2)] * 2)
    for workers in (0, 2):
        with pytest.raises(uio.TooManyFailures, match="max_failures=5"):
            delivered(path, lanes=4, num_workers=workers, failures=uio.Failures(max_failures=5))


# Functions of the user's


def refuse(sample: Any) -> Any:
    if sample["key"] in ("R001", "R003"):
        raise LookupError(f"no entry for {sample['key']}")
    return sample


def refuse_text(text: str) -> list[int]:
    return [1 // (text != "字1"), 2 // (text != "字3")]


def refuse_each(sample: Any) -> Iterator[Any]:
    yield refuse(sample)


def stop(sample: Any) -> Any:
    return sample if sample["key"] not in ("R001", "R003") else next(iter(()))


LOOKUP = "LookupError: 'no entry for R001'|LookupError: no entry for R001"
FUNCTIONS: dict[str, tuple[Callable[[uio.Pipeline], uio.Pipeline], str]] = {
    "map_failed": (lambda p: p.map(refuse), LOOKUP),
    "map_failed, deferred": (lambda p: p.map(refuse, length="same"), LOOKUP),
    "map_failed, by StopIteration": (lambda p: p.map(stop), "StopIteration"),
    "filter_failed": (lambda p: p.filter(lambda s: bool(refuse(s))), "no entry for R001"),
    "flat_map_failed": (lambda p: p.flat_map(refuse_each), "no entry for R001"),
    "tokenize_failed": (lambda p: p.tokenize(refuse_text), "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_that_raises_is_a_failure_with_its_own_message(
    tmp_path: Path, name: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    (add, text), reason = FUNCTIONS[name], name.partition(",")[0]
    pipeline = add(uio.from_raw_list(raw_items(tmp_path, 6)).decode_audio()).batch(2).pad()
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        batches, loader = run(pipeline, num_workers=workers)
    assert sorted(keys(batches)) == ["R000", "R002", "R004", "R005"]
    assert (loader.stats().failures, loader.stats().skipped) == (2, {reason: 2})
    assert re.search(text, caplog.text)
    assert "R001" in caplog.text
    with pytest.raises(uio.DataError, match=text) as error:
        run(pipeline, failures="raise", num_workers=workers)
    assert (error.value.reason, error.value.member) == (reason, "R001")
    assert workers or isinstance(
        error.value.__cause__ or error.value.__context__, (LookupError, ZeroDivisionError, StopIteration)
    )


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("length", [None, "same"])
def test_a_function_that_forgets_its_return_stops_the_run(tmp_path: Path, length: Any, workers: int) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(lambda s: None, length=length)
    with pytest.raises(uio.PipelineError, match=r"must return the utterance.*NoneType.*\.filter"):
        run(pipeline, num_workers=workers)


@pytest.mark.parametrize("result", [None, 3])
def test_a_function_on_batches_that_forgets_its_return_stops_the_run(tmp_path: Path, result: Any) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().batch(1).pad().map(lambda b: result)
    if result is None:
        with pytest.raises(uio.UioError, match="map"):
            run(pipeline)
    else:
        assert run(pipeline)[0] == [3, 3, 3]


@pytest.mark.parametrize("result", [None, 3, ["x"]])
def test_a_flat_map_that_yields_no_utterances_is_told(tmp_path: Path, result: Any) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 3)).flat_map(lambda s: result)
    with pytest.raises(uio.UioError, match="flat_map"):
        run(pipeline, failures="raise")
