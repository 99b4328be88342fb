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
from helpers_bad import END, Members, audio, keys, members, raw_items, run, shard, shard_list, tar

import uio_pipes as uio

COUNT = 5  # utterances in the damaged shard, K005 … K009; before it K000 … K004, after it K010 … K014
FIRST, LAST = [f"K{i:03d}" for i in range(5)], [f"K{i:03d}" for i in range(10, 15)]
Text = Callable[[str], Any]


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
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        got, stats = delivered(corpus(tmp_path, damage), num_workers=workers)
    assert got == intact(damage)
    assert stats.failures == 1
    assert list(stats.skipped.values()) == [1]
    assert next(iter(stats.skipped)) in damage.reason.split("|")
    message, summary = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert summary.startswith("epoch 0 on rank 0: 1 of ")
    for each in damage.names:
        assert each in message


@pytest.mark.parametrize("name", DAMAGES)
def test_a_strict_run_stops_with_the_reason(tmp_path: Path, name: str) -> None:
    damage = DAMAGES[name]
    with pytest.raises(uio.DataError) as error:
        delivered(corpus(tmp_path, damage), failures="raise")
    assert error.value.reason in damage.reason.split("|")
    assert "bad.tar" in error.value.url


def test_a_strict_run_stops_in_a_worker_with_the_reason(tmp_path: Path) -> None:
    for name in ("broken header", "undecodable wav", "missing shard"):
        root = tmp_path / name
        root.mkdir()
        path = corpus(root, DAMAGES[name])
        with pytest.raises(uio.DataError) as error:
            delivered(path, failures="raise", num_workers=1)
        assert error.value.reason == DAMAGES[name].reason


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("suffix", ["gz", "memory"])
def test_streams_find_the_same(tmp_path: Path, name: str, suffix: str) -> None:
    """A gzipped shard and a remote one are read as streams; what is wrong with them is found there too."""

    damage = DAMAGES[name]
    if suffix == "gz":
        data = damage.data if damage.data in (None, b"") else gzip.compress(damage.data or b"", 1)
        path = corpus(tmp_path, damage._replace(data=data, suffix=".gz"))
    else:
        fs = fsspec.filesystem("memory")
        fs.pipe("/bad_input/a.tar", tar(members(5)))
        fs.rm("/bad_input/bad.tar") if fs.exists("/bad_input/bad.tar") else None
        if damage.data is not None:
            fs.pipe("/bad_input/bad.tar", damage.data)
        fs.pipe("/bad_input/c.tar", tar(members(5, 10)))
        path = shard_list(tmp_path / "m.list", [f"memory://bad_input/{n}.tar" for n in ("a", "bad", "c")])
    got, stats = delivered(path)
    assert got == intact(damage)
    assert stats.failures == 1
    assert next(iter(stats.skipped)) in damage.reason.split("|")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_resumed_run_skips_the_same_and_counts_nothing_twice(tmp_path: Path, name: str) -> None:
    damage = DAMAGES[name]
    pipeline = uio.from_shard_list(corpus(tmp_path, damage)).decode_audio().shuffle(4).sort(3).batch(2).pad()
    whole, loader = run(pipeline, seed=3)
    want = loader.stats()
    for cut in range(1, len(whole)):
        first = uio.Loader(pipeline, seed=3, snapshot_every=1 + cut % 3)
        iterator = iter(first)
        before = [next(iterator) for _ in range(cut)]
        second = uio.Loader(pipeline, seed=3)
        second.load_state_dict(first.state_dict())
        after = list(second)
        assert keys(before + after) == keys(whole)
        got = second.stats()
        assert (got.utterances, got.failures, got.skipped) == (want.utterances, want.failures, want.skipped)
        assert (got.batches, got.frames, got.padded) == (want.batches, want.frames, want.padded)


# Compressed streams


def compressed(root: Path, suffix: str, change: Callable[[bytes], bytes]) -> str:
    data = change(COMPRESS[suffix](tar(members(30, 5, samples=4000))))
    return corpus(root, Damage(data, (), "", suffix=f".{suffix}"))


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_compressed_shards_are_read(tmp_path: Path, suffix: str) -> None:
    got, stats = delivered(compressed(tmp_path, suffix, lambda data: data))
    assert (len(got), stats.failures) == (40, 0)


def flipped(part: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = int(len(data) * part)
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]

    return change


@pytest.mark.parametrize("part", [0.3, 0.7, 0.98])
@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_flipped_byte_is_never_silent(
    tmp_path: Path, suffix: str, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = compressed(tmp_path, suffix, flipped(part))
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        got, stats = delivered(path)
    assert stats.failures >= 1
    assert set(FIRST) <= set(got)
    assert {f"K{i:03d}" for i in range(10, 15)} <= set(got)
    assert stats.utterances == len(got)
    assert f"bad.tar.{suffix}" in caplog.text
    with pytest.raises(uio.DataError) as error:
        delivered(path, failures="raise")
    assert f"bad.tar.{suffix}" in error.value.url


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_cut_off_stream_is_never_silent(tmp_path: Path, suffix: str) -> None:
    path = compressed(tmp_path, suffix, lambda data: data[: len(data) * 3 // 5])
    got, stats = delivered(path)
    assert stats.failures == 1
    assert set(FIRST) <= set(got)
    assert "K014" in got
    with pytest.raises(uio.DataError) as error:
        delivered(path, failures="raise")
    assert error.value.reason in ("truncated", "corrupt_stream")


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_named_as_compressed_but_is_not(tmp_path: Path, suffix: str) -> None:
    damage = Damage(b"<html>not found</html>" * 50, (5, 6, 7, 8, 9), "corrupt_stream", suffix=f".{suffix}")
    got, stats = delivered(corpus(tmp_path, damage))
    assert got == FIRST + LAST
    assert stats.skipped == {"corrupt_stream": 1}


def test_web_page_instead_of_a_shard(tmp_path: Path) -> None:
    got, stats = delivered(corpus(tmp_path, Damage(b"<html>not found</html>" * 50, (5, 6, 7, 8, 9), "bad_header")))
    assert got == FIRST + LAST
    assert stats.failures >= 1


# Budgets


def all_bad(root: Path, count: int) -> str:
    """Good and bad utterances in turn: every second without a text."""
    parts = [(n, d) for n, d in members(count) if not (n.endswith(".txt") and int(n[1:4]) % 2)]
    return shard(root / "x.tar", parts)


@pytest.mark.parametrize("workers", [0, 1])
def test_total_budget_stops_and_names_the_last_error_and_the_remedy(tmp_path: Path, workers: int) -> None:
    path = all_bad(tmp_path, 20)
    assert delivered(path, failures=uio.Failures(max_failures=10))[1].failures == 10
    with pytest.raises(uio.TooManyFailures) as error:
        delivered(path, failures=uio.Failures(max_failures=9), num_workers=workers)
    message = str(error.value)
    assert "10 failures" in message
    assert "max_failures=9" in message
    assert "x.tar" in message
    assert "K019" in message
    assert "Loader(failures=uio.Failures(max_failures=" in message


def test_a_budget_of_none_stops_at_the_first(tmp_path: Path) -> None:
    with pytest.raises(uio.TooManyFailures, match="K001"):
        delivered(all_bad(tmp_path, 20), failures=uio.Failures(max_failures=0))


@pytest.mark.parametrize("workers", [0, 1])
def test_failures_in_a_row_stop_and_name_the_last_error_and_the_remedy(tmp_path: Path, workers: int) -> None:
    names = [shard(tmp_path / "a.tar", members(2)), *(tmp_path / f"none{i}.tar" for i in range(8))]
    path = shard_list(tmp_path / "x.list", names)
    assert delivered(path, failures=uio.Failures(max_consecutive_failures=8))[1].failures == 8
    with pytest.raises(uio.TooManyFailures) as error:
        delivered(path, failures=uio.Failures(max_consecutive_failures=7), num_workers=workers)
    message = str(error.value)
    assert "8 failures in a row" in message
    assert "max_consecutive_failures=7" in message
    assert "none7.tar" in message
    assert re.search(r"[Mm]end|[Cc]heck|[Rr]epair|allow more", message), "the remedy is missing"


def test_a_success_between_ends_a_row(tmp_path: Path) -> None:
    got, stats = delivered(all_bad(tmp_path, 20), failures=uio.Failures(max_consecutive_failures=1))
    assert (len(got), stats.failures) == (10, 10)


def test_budget_goes_on_after_a_resume(tmp_path: Path) -> None:
    pipeline = graph(all_bad(tmp_path, 20))
    first = uio.Loader(pipeline, failures=uio.Failures(max_failures=9))
    iterator = iter(first)
    next(iterator)
    second = uio.Loader(pipeline, failures=uio.Failures(max_failures=9))
    second.load_state_dict(first.state_dict())
    with pytest.raises(uio.TooManyFailures, match="10 failures"):
        list(second)


def test_total_budget_is_one_for_all_lanes_of_a_rank(tmp_path: Path) -> None:
    path = shard_list(tmp_path / "x.list", [tmp_path / f"none{i}.tar" for i in range(6)] + [all_bad(tmp_path, 2)] * 2)
    for workers in (0, 2):
        with pytest.raises(uio.TooManyFailures, match="max_failures=5"):
            delivered(path, lanes=4, num_workers=workers, failures=uio.Failures(max_failures=5))


def test_all_shards_missing_ends_with_counts_not_in_silence(tmp_path: Path) -> None:
    path = shard_list(tmp_path / "x.list", [tmp_path / f"none{i}.tar" for i in range(3)])
    got, stats = delivered(path)
    assert (got, stats.failures, stats.skipped) == ([], 3, {"missing_file": 3})


# Functions of the user's


def refuse(sample: Any) -> Any:
    if sample["key"] in ("R001", "R003"):
        raise LookupError(f"no entry for {sample['key']}")
    return sample


def refuse_text(text: str) -> list[int]:
    return [1 // (text != "字1"), 2 // (text != "字3")]


def refuse_each(sample: Any) -> Iterator[Any]:
    yield refuse(sample)


FUNCTIONS: dict[str, tuple[Callable[[uio.Pipeline], uio.Pipeline], str]] = {
    "map_failed": (lambda p: p.map(refuse), "LookupError: 'no entry for R001'|LookupError: no entry for R001"),
    "filter_failed": (lambda p: p.filter(lambda s: bool(refuse(s))), "no entry for R001"),
    "flat_map_failed": (lambda p: p.flat_map(refuse_each), "no entry for R001"),
    "tokenize_failed": (lambda p: p.tokenize(refuse_text), "ZeroDivisionError"),
}


@pytest.mark.parametrize("reason", FUNCTIONS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_that_raises_is_a_failure_with_its_own_message(
    tmp_path: Path, reason: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    add, text = FUNCTIONS[reason]
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


def test_a_deferred_function_that_raises_is_a_failure_too(tmp_path: Path) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 6)).decode_audio().map(refuse, length="same").batch(2).pad()
    batches, loader = run(pipeline)
    assert sorted(keys(batches)) == ["R000", "R002", "R004", "R005"]
    assert loader.stats().skipped == {"map_failed": 2}


def test_a_strict_run_shows_the_users_exception_as_well(tmp_path: Path) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(refuse)
    with pytest.raises(uio.DataError) as error:
        run(pipeline, failures="raise")
    assert isinstance(error.value.__cause__ or error.value.__context__, LookupError)


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


class Unpicklable(Exception):
    """Cannot travel between processes."""

    def __init__(self) -> None:
        super().__init__("told to fail")
        self.stuck = lambda: None


class TwoArguments(Exception):
    """Pickles, and fails to come back."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [RuntimeError("told to fail"), Unpicklable(), TwoArguments("told", "to fail")])
def test_a_function_on_batches_that_raises_ends_the_run_with_its_message(
    tmp_path: Path, error: Exception, workers: int
) -> None:
    def fail(batch: Any) -> Any:
        if "R002" in batch["keys"]:
            raise error
        return batch

    pipeline = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().batch(1).pad().map(fail)
    with pytest.raises(Exception, match=r"told.*to fail"):
        run(pipeline, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_from_a_users_function_does_not_end_the_epoch(tmp_path: Path, workers: int) -> None:
    def fail(item: Any) -> Any:
        if "R002" in (item["keys"] if "keys" in item else item["key"]):
            next(iter(()))
        return item

    items = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio()
    batches, _ = run(items.map(fail).batch(1).pad(), num_workers=workers)
    assert keys(batches) == ["R000", "R001", "R003", "R004"]
    with pytest.raises(Exception):  # noqa: B017
        run(items.batch(1).pad().map(fail), num_workers=workers)
