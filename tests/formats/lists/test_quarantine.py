"""Quarantine: each failure as a line, once; read back by ``exclude``; shared by ranks; hostile files."""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import corpus
import pytest
from contract import Case, check_cuts, record
from corpus import DAMAGE, Corpus
from helpers_bad import keys, members, run, shard
from indexed_corpus import indexed
from processes import environment

import uio_pipes as uio
from uio_pipes.base.errors import DataError
from uio_pipes.formats.lists.quarantine import Known, Quarantine, entry_of, read_quarantine

REASONS = sorted(DAMAGE.values())


def graph(source: uio.Pipeline) -> uio.Pipeline:
    return source.decode_audio().batch(2).pad()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_failure_is_a_line(bad_corpus: Corpus, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "bad.jsonl"
    run(graph(uio.from_shard_list(bad_corpus.list)), failures=uio.Failures(quarantine=path), num_workers=workers)
    found = lines(path)
    assert sorted(entry["reason"] for entry in found) == REASONS
    for entry in found:
        assert set(entry) >= {"reason", "url", "member", "offset", "message", "key", "item", "epoch", "rank"}
        assert entry["url"].endswith(f"s{entry['item']:03d}.tar")
        assert (entry["epoch"], entry["rank"]) == (0, 0)
    by_reason = {entry["reason"]: entry for entry in found}
    assert by_reason["missing_text"]["key"] == "K0005"
    assert by_reason["bad_audio"]["stage"] == "realize"


def test_raw_lists_too(tmp_path: Path) -> None:
    listed = tmp_path / "raw.list"
    listed.write_text('{"key": "a", "wav": "nothing.wav", "txt": ""}\n{"key": "b"}\n')
    run(graph(uio.from_raw_list(listed)), failures=uio.Failures(quarantine=tmp_path / "q"))
    found = sorted((e["reason"], e["key"], e["item"]) for e in lines(tmp_path / "q"))
    assert found == [("missing_audio", "b", 1), ("missing_file", "a", 0)]


def test_a_resumed_run_repeats_no_line(bad_corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    pipeline = graph(uio.from_shard_list(bad_corpus.list))
    loader = uio.Loader(pipeline, failures=uio.Failures(quarantine=path))
    state = None
    for number, _ in enumerate(loader):
        state = loader.state_dict() if number == 4 else state
    assert state is not None
    before = path.read_text()
    resumed = uio.Loader(pipeline, failures=uio.Failures(quarantine=path))
    resumed.load_state_dict(state)
    assert resumed.stats().failures > 0
    assert len(list(resumed)) > 0
    assert len(list(resumed)) > 0  # the next epoch, too
    assert path.read_text() == before
    assert resumed.stats().failures == len(DAMAGE)


def test_ranks_share_a_file(bad_corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for rank in range(2):
        run(
            graph(uio.from_shard_list(bad_corpus.list)),
            failures=uio.Failures(quarantine=path),
            rank=rank,
            world_size=2,
            uneven="join",
        )
    assert sorted(entry["reason"] for entry in lines(path)) == REASONS
    assert {entry["rank"] for entry in lines(path)} == {0, 1}


def write_many(path: str, who: int) -> None:
    file = Quarantine(path)
    for i in range(300):
        error = DataError("bad_audio", "x" * 500, url=f"{who}.tar", member=f"{i}", offset=i)
        file.add(entry_of(error, "test", rank=who))


def test_lines_of_processes_do_not_mix(tmp_path: Path) -> None:
    path = str(tmp_path / "q.jsonl")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_many, args=(path, who)) for who in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(read_quarantine(path)) == 1200


SOURCES = {
    "through": lambda path, folder: uio.from_shard_list(path),
    "shuffled": lambda path, folder: uio.from_shard_list(path, shuffle=True),
    "index": lambda path, folder: uio.from_tar_index(path, shuffle=True, indexes=folder),
}


@pytest.mark.parametrize("source", SOURCES)
def test_excluded_is_left_out_and_no_failure(bad_corpus: Corpus, tmp_path: Path, source: str) -> None:
    indexed(bad_corpus.list, tmp_path / "i")
    made = SOURCES[source](bad_corpus.list, str(tmp_path / "i"))
    run(graph(uio.from_shard_list(bad_corpus.list)), failures=uio.Failures(quarantine=tmp_path / "q"))
    recorded = record(
        Case(
            graph(made.exclude(tmp_path / "q")),
            {"failures": uio.Failures(on_error="raise", max_failures=0), "lanes": 2},
        )
    )
    assert sorted(recorded.keys) == sorted(bad_corpus.keys)
    assert (recorded.stats.failures, recorded.stats.skipped) == (0, {"excluded": len(DAMAGE)})
    check_cuts(recorded, range(len(recorded.digests) + 1))


def test_what_is_not_known_still_fails(bad_corpus: Corpus, tmp_path: Path) -> None:
    run(graph(uio.from_shard_list(bad_corpus.list)), failures=uio.Failures(quarantine=tmp_path / "q"))
    known = [entry for entry in (tmp_path / "q").read_text().split("\n") if entry and "bad_header" not in entry]
    (tmp_path / "q").write_text("\n".join(known) + "\n")
    stats = run(graph(uio.from_shard_list(bad_corpus.list).exclude(tmp_path / "q")))[1].stats()
    assert (stats.failures, stats.skipped) == (1, {"excluded": 4, "bad_header": 1})


def test_only_the_second_of_two_of_a_key_is_excluded(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", members(2) + members(1, 1) + members(1, 2))
    run(graph(uio.from_shard_list(path)), failures=uio.Failures(quarantine=tmp_path / "q"))
    assert [e["reason"] for e in lines(tmp_path / "q")] == ["duplicate_key"]
    batches, loader = run(graph(uio.from_shard_list(path).exclude(tmp_path / "q")))
    assert sorted(keys(batches)) == ["K000", "K001", "K002"]
    assert loader.stats().skipped == {"excluded": 1}


def test_the_same_key_in_another_shard_stays(tmp_path: Path) -> None:
    error = DataError("bad_audio", "", url="other.tar", member="K0001")
    error.key = "K0001"
    known = Known([entry_of(error)])
    assert known.utterance("other.tar", "K0001")
    assert not known.utterance("this.tar", "K0001")


def test_lines_of_raw_lists_may_move(tmp_path: Path) -> None:
    corpus.raw_list(tmp_path, 6)
    path = tmp_path / "raw.list"
    (tmp_path / "r002.wav").write_bytes(b"")
    run(graph(uio.from_raw_list(path)), failures=uio.Failures(quarantine=tmp_path / "q"))
    path.write_text("\n".join(reversed(path.read_text().strip().split("\n"))) + "\n")
    stats = run(graph(uio.from_raw_list(path).exclude(tmp_path / "q")))[1].stats()
    assert (stats.utterances, stats.failures, stats.skipped) == (5, 0, {"excluded": 1})


def test_within_a_mix(bad_corpus: Corpus, raw_corpus: Corpus, tmp_path: Path) -> None:
    run(graph(uio.from_shard_list(bad_corpus.list)), failures=uio.Failures(quarantine=tmp_path / "q"))
    good, bad = uio.from_raw_list(raw_corpus.list), uio.from_shard_list(bad_corpus.list)
    for pipeline in (
        uio.mix({"a": good, "b": bad.exclude(tmp_path / "q")}),
        uio.mix({"a": good, "b": bad}).exclude(tmp_path / "q"),
    ):
        stats = run(graph(pipeline), lanes=2)[1].stats()
        assert (stats.failures, set(stats.skipped)) == (0, {"excluded"})


def test_another_file_is_another_run(bad_corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "q").write_text("")
    pipeline = graph(uio.from_shard_list(bad_corpus.list).exclude(tmp_path / "q"))
    loader = uio.Loader(pipeline)
    next(iter(loader))
    state = loader.state_dict()
    (tmp_path / "q").write_text('{"reason": "bad_audio", "url": "s.tar", "key": "x"}\n')
    with pytest.raises(uio.StateError, match="list changed since the state was saved"):
        uio.Loader(pipeline).load_state_dict(state)


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"url": "x"}', b'{"reason": 3}', b"[" * 99_999, b"\xff\xfe", b"\0"])
def test_what_is_no_quarantine_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"reason": "bad_audio"}\n' + data + b"\n")
    with pytest.raises(uio.ListError, match=r"the quarantine file .*q\.jsonl is damaged \(line 2"):
        run(graph(uio.from_shard_list(shard(tmp_path / "s.tar", members(2))).exclude(path)))


def test_one_that_is_open_at_the_end_of_a_script_is_closed(plain_corpus: Corpus, tmp_path: Path) -> None:
    loader = (
        f"uio.Loader(uio.from_shard_list({str(plain_corpus.list)!r}).batch(1), failures=uio.Failures(quarantine='q'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import uio_pipes as uio; it = iter({loader}); next(it)"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Exception ignored" not in done.stderr


def test_a_line_cut_off_by_a_crash_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"reason": "bad_audio", "url": "a.tar"}\n{"reason": "bad_')
    file = Quarantine(path)
    file.add(entry_of(DataError("bad_crc", "", url="b.tar")))
    file.add(entry_of(DataError("bad_audio", "", url="c.tar")))
    file.close()
    assert [json.loads(line)["url"] for line in path.read_text().split("\n") if line.endswith("}")] == [
        "a.tar",
        "b.tar",
        "c.tar",
    ]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    file = Quarantine(tmp_path / "q")
    file.add(entry_of(DataError("bad_member_name", "", url="b.tar", member="a\udcff.wav")))
    assert read_quarantine(tmp_path / "q")[0]["member"] == "a\udcff.wav"


def test_arguments(tmp_path: Path) -> None:
    pipeline = uio.from_shard_list("x.list")
    with pytest.raises(uio.PipelineError, match="path must be that of a quarantine file, not 3"):
        pipeline.exclude(3)  # type: ignore[arg-type]
    with pytest.raises(uio.PipelineError, match="move exclude before the stage that makes batches"):
        pipeline.decode_audio().batch(2).exclude("x")
    with pytest.raises(uio.PipelineError, match="is the file that the pipeline excludes"):
        uio.Loader(graph(pipeline.exclude(tmp_path / "q")), failures=uio.Failures(quarantine=tmp_path / "q"))
    with pytest.raises(uio.PipelineError, match="cannot write quarantine="):
        uio.Loader(graph(pipeline), failures=uio.Failures(quarantine=tmp_path / "nowhere" / "q"))
    with pytest.raises(uio.ListError, match="cannot read the quarantine file"):
        list(uio.Loader(graph(uio.from_shard_list(shard(tmp_path / "s.tar", members(2))).exclude(tmp_path / "none"))))
