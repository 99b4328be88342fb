"""Decoding on any number of ranks, killed at any moment: the files are those of an undisturbed run, byte by byte."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("jiwer")

import torch
from command import programs
from corpus import raw_list, shards

import uio_pipes as uio
from recipes.common import decoding
from recipes.common.config import Config
from recipes.common.decode import DecodeError, decode, decode_pipeline
from recipes.common.model import AsrModel
from recipes.common.results import Results
from recipes.common.score import read_texts
from recipes.common.search import Mode, Search
from uio_pipes.base.processes import Busy
from uio_pipes.run.partial import DecodedBatch, Partial

SIZES = (12, 9, 10, 8, 11)
COUNT = sum(SIZES)
MOST_KILLS = 4
NBEST = Search("attention_rescoring", beam_size=3, nbest=2)
FILES = ("test.attention_rescoring.hyp", "test.attention_rescoring.nbest", "test.attention_rescoring.failed")
MODEL = {
    "num_mel_bins": 20, "channels": 4, "dim": 16, "heads": 2, "feed_forward": 16, "layers": 1, "kernel": 3,
    "decoder_layers": 1, "decoder_feed_forward": 16, "cmvn": False,
}  # fmt: skip


def write_experiment(exp: Path, seed: int = 0, **model: Any) -> Path:
    """A tiny model of random weights, that has much to say."""
    config = Config.of({"model": {**MODEL, **model}, "data": {"sample_rate": 8000}})
    exp.mkdir(parents=True, exist_ok=True)
    config.save(exp / "config.yaml")
    tokens = ["<blank>", "<unk>", "<sos/eos>", *"天地人你我他"]
    (exp / "lang_char.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(tokens)))
    torch.manual_seed(seed)
    network = AsrModel(config.model, len(tokens))
    with torch.no_grad():
        network.ctc.weight.mul_(8)
    torch.save({"model": network.state_dict()}, exp / "average.pt")
    return exp


def write_data(data: Path, damage: tuple[str, ...] = ("undecodable", "missing_audio", "truncated")) -> Path:
    folder = data / "test"
    shards(folder, SIZES, damage=damage, seconds=(0.3, 1.5)).list.rename(folder / "shards.list")
    keys = [f"K{i:04d}" for i in range(COUNT)]
    (folder / "text").write_text("".join(f"{key} 文{i}\n" for i, key in reversed(list(enumerate(keys)))))
    return data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    return write_experiment(tmp_path / "exp")


def bytes_of(exp: Path) -> dict[str, bytes]:
    return {name: (exp / name).read_bytes() for name in FILES if (exp / name).is_file()}


# What comes out


@pytest.mark.parametrize("mode", ["ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring"])
def test_every_utterance_once_in_the_order_of_the_input(data: Path, exp: Path, mode: str) -> None:
    path = decode(data, exp, "test", Search(mode, beam_size=3), max_frames=600)  # type: ignore[arg-type]
    lines = path.read_text().splitlines()
    assert path.name == f"test.{mode}.hyp"
    assert [line.split()[0] for line in lines] == [f"K{i:04d}" for i in reversed(range(COUNT))]
    assert sum(bool(text) for text in read_texts(path).values()) > COUNT // 2
    assert not (exp / f"test.{mode}.partial").exists()


@pytest.mark.parametrize(
    ("encoder", "mode"), [("conformer", "ctc_prefix_beam_search"), ("transformer", "attention_rescoring")]
)
def test_texts_are_those_of_each_utterance_by_itself(data: Path, tmp_path: Path, encoder: str, mode: Mode) -> None:
    texts = []
    for name, max_frames in (("together", 900), ("alone", 160)):
        exp = write_experiment(tmp_path / name, encoder=encoder)
        texts.append(read_texts(decode(data, exp, "test", Search(mode, 3), max_frames=max_frames)))
    assert texts[0] == texts[1]
    assert len(set(texts[0].values())) > 3


def test_what_failed_is_listed_with_its_reason(data: Path, exp: Path) -> None:
    path = decode(data, exp, "test", Search("ctc_greedy_search"))
    failed = read_texts(path.with_suffix(".failed"))
    assert [key for key in failed if key != "#"] == ["K0030", "K0013", "K0001"]
    assert "[bad_audio]" in failed["K0001"]
    assert "[missing_audio]" in failed["K0013"]
    assert "[truncated]" in failed["K0030"]
    texts = read_texts(path)
    assert not any(texts[key] for key in failed)
    summary = json.loads(path.with_suffix(".json").read_text())["summary"]
    assert (summary["utterances"], summary["failed"]) == (COUNT - 3, 3)
    assert summary["hours"] > 0


def test_what_failed_is_decoded_again_when_asked_for(tmp_path: Path, exp: Path) -> None:
    data = write_data(tmp_path / "data", ())
    first = data / "test" / "s000.tar"
    whole = first.read_bytes()
    first.unlink()
    path = decode(data, exp, "test", Search("ctc_greedy_search"))
    assert len(read_texts(path.with_suffix(".failed"))) == SIZES[0] + 1  # and the shard itself
    first.write_bytes(whole)
    decode(data, exp, "test", Search("ctc_greedy_search"))
    assert path.with_suffix(".failed").exists()
    decode(data, exp, "test", Search("ctc_greedy_search"), on_change="restart")
    assert not path.with_suffix(".failed").exists()
    assert all(read_texts(path).values())


def test_nothing_at_all_is_an_error(tmp_path: Path, exp: Path) -> None:
    data = write_data(tmp_path / "data", ())
    for shard in (data / "test").glob("*.tar"):
        shard.unlink()
    for _ in range(2):
        with pytest.raises(DecodeError, match=r"nothing could be decoded: see .*\.failed"):
            decode(data, exp, "test", Search("ctc_greedy_search"))


def test_nbest(data: Path, exp: Path) -> None:
    path = decode(data, exp, "test", NBEST)
    best = read_texts(path)
    lines = [line.split(" ", 3) for line in path.with_suffix(".nbest").read_text().splitlines()]
    assert {line[1] for line in lines} == {"1", "2"}
    scores: dict[str, list[float]] = {}
    for key, _, score, *_ in lines:
        scores.setdefault(key, []).append(float(score))
    assert all(pair == sorted(pair, reverse=True) for pair in scores.values())
    assert {line[0]: line[3] if len(line) > 3 else "" for line in lines if line[1] == "1"}.items() <= best.items()


def test_raw_lists_in_the_order_of_the_list(tmp_path: Path, exp: Path) -> None:
    corpus = raw_list(tmp_path / "test", 20)
    corpus.list.rename(tmp_path / "test" / "data.list")
    path = decode(tmp_path, exp, "test", Search("ctc_greedy_search"), data_type="raw", max_frames=500)
    assert list(read_texts(path)) == list(corpus.keys)


def test_workers_change_nothing(data: Path, exp: Path) -> None:
    decode(data, exp, "test", NBEST, max_frames=300)
    other = write_experiment(exp.parent / "other")
    decode(data, other, "test", NBEST, max_frames=300, num_workers=2)
    assert bytes_of(other) == bytes_of(exp)


# What it goes on from


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupted(data: Path, exp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment with partial results of some batches."""
    interrupt(data, exp, monkeypatch)
    return exp


def interrupt(data: Path, exp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = iter(range(6))
    texts = decoding.Decoding._texts

    def some(self: decoding.Decoding, batch: dict[str, Any]) -> Any:
        if next(batches, None) is None:
            raise Interrupted
        return texts(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(decoding.Decoding, "_texts", some)
        with pytest.raises(Interrupted):
            decode(data, exp, "test", NBEST, max_frames=300)
    assert len(list(Partial(exp / "test.attention_rescoring.partial").records())) == 6


def decoded_now(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    keys: list[str] = []
    texts = decoding.Decoding._texts

    def noted(self: decoding.Decoding, batch: dict[str, Any]) -> Any:
        keys.extend(batch["keys"])
        return texts(self, batch)

    monkeypatch.setattr(decoding.Decoding, "_texts", noted)
    return keys


def test_what_is_complete_is_not_decoded_again(data: Path, exp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = decode(data, exp, "test", NBEST)
    now = decoded_now(monkeypatch)
    assert decode(data, exp, "test", NBEST) == first
    assert now == []
    decode(data, exp, "test", Search("attention_rescoring", beam_size=2))
    assert len(now) == COUNT - 3


CHANGES = {
    "beam": (Search("attention_rescoring", 4, nbest=2), {}, 300, "beam_size was 3, now 4"),
    "weight": (Search("attention_rescoring", 3, 0.3, nbest=2), {}, 300, "ctc_weight was 0.5, now 0.3"),
    "model": (NBEST, {"seed": 1}, 300, "model was '.*', now '.*'"),
    "batches": (NBEST, {}, 400, "graph was .*300.*, now .*400"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_partial_results_of_something_else_are_an_error_or_dropped(data: Path, interrupted: Path, change: str) -> None:
    search, model, frames, message = CHANGES[change]
    write_experiment(interrupted, **model)
    with pytest.raises(DecodeError, match=f"{message}.*--on-change restart"):
        decode(data, interrupted, "test", search, max_frames=frames)
    decode(data, interrupted, "test", search, max_frames=frames, on_change="restart")
    undisturbed = write_experiment(interrupted.parent / "undisturbed", **model)
    decode(data, undisturbed, "test", search, max_frames=frames)
    assert bytes_of(interrupted) == bytes_of(undisturbed)


def test_shards_that_changed_meanwhile_are_an_error_or_dropped(
    tmp_path: Path, exp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_data(tmp_path / "data", ())
    interrupt(data, exp, monkeypatch)
    first, last = (data / "test" / f"s00{i}.tar" for i in (0, 4))
    first.write_bytes(last.read_bytes())
    with pytest.raises(DecodeError, match=r"changed since .*--on-change restart"):
        decode(data, exp, "test", NBEST, max_frames=300)
    path = decode(data, exp, "test", NBEST, max_frames=300, on_change="restart")
    undisturbed = write_experiment(tmp_path / "undisturbed")
    assert decode(data, undisturbed, "test", NBEST, max_frames=300).read_bytes() == path.read_bytes()


def test_a_model_of_ctc_alone_has_no_attention(data: Path, tmp_path: Path) -> None:
    exp = write_experiment(tmp_path, ctc_weight=1.0, decoder_layers=0)
    with pytest.raises(DecodeError, match="CTC alone: use ctc_greedy_search"):
        decode(data, exp, "test", Search("attention"))
    assert decode(data, exp, "test", Search("ctc_greedy_search")).is_file()


# Partial results


@pytest.fixture
def partial(tmp_path: Path) -> Partial:
    corpus = raw_list(tmp_path, 4)
    loader = uio.Loader(decode_pipeline(Config(), str(corpus.list), "raw"), lanes=2)
    partial = Partial(tmp_path / "partial")
    partial.begin({"beam": 3}, loader.state_dict())
    return partial


RECORDS = [DecodedBatch({}, [(f"K{i}", [(-1.5, "天\u2028地")])], ["report"], 7, 0.5) for i in range(3)]


def as_read(records: list[DecodedBatch]) -> list[Any]:
    return [json.loads(json.dumps([r.utterances, r.failures, r.frames])) for r in records]


@pytest.mark.parametrize("lost", [1, 2, 17, 60])
def test_a_torn_line_counts_for_nothing_and_the_next_one_is_whole(partial: Partial, lost: int) -> None:
    with partial.writer(0) as writer:
        for record in RECORDS:
            writer.add(record)
    path = partial.folder / "rank0.jsonl"
    os.truncate(path, path.stat().st_size - lost)
    assert as_read(list(partial.records())) == as_read(RECORDS[:2])
    with partial.writer(0) as writer:
        writer.add(RECORDS[2])
    assert as_read(list(partial.records())) == as_read(RECORDS)


def test_zeros_where_power_was_lost_count_for_nothing(partial: Partial) -> None:
    with partial.writer(0) as writer:
        writer.add(RECORDS[0])
    with (partial.folder / "rank0.jsonl").open("ab") as file:
        file.write(b"\0" * 100 + b"\n" + b'{"lanes": {}}\n')
    assert as_read(list(partial.records())) == as_read(RECORDS[:1])


def test_only_one_may_write(partial: Partial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uio_pipes.run.partial.PATIENCE", 0.1)
    with partial.writer(1), pytest.raises(Busy, match=r"another decoding writes to .*rank1\.jsonl"):
        partial.begin({"beam": 3}, {})
    partial.begin({"beam": 3}, {})


def test_a_key_decoded_twice_and_one_unknown(tmp_path: Path) -> None:
    """The list has a file twice, and one that `text` lacks: nothing is hidden."""
    records = [
        DecodedBatch({}, [(key, [(-1.0, text)])]) for key, text in (("b", "2"), ("a", "1"), ("z", "3"), ("a", "1"))
    ]
    results = Results(tmp_path, "test.x", nbest=False)
    results.write({}, ["a", "b"], records)
    assert results.hyp.read_text().splitlines() == ["a 1", "a 1", "b 2", "z 3"]


# Killed: processes of their own


def test_killed_anywhere_on_any_ranks_the_files_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    out = programs(__file__, tmp_path, random.randrange(10**6))
    print(out)
    assert "as undisturbed" in out


def test_command_line_killed_and_resumed(data: Path, exp: Path) -> None:
    command = [sys.executable, "-m", "recipes.common.decode", str(data), str(exp), "--mode", "ctc_greedy_search"]
    command += ["--max-frames", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    file = exp / "test.ctc_greedy_search.partial" / "rank0.jsonl"
    while process.poll() is None and not (file.is_file() and file.stat().st_size):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    out = programs(*torchrun, *command[1:])
    assert f"{COUNT - 3} utterances" in out
    assert "3 failed: see" in out
    assert "real-time factor" in out
    undisturbed = write_experiment(exp.parent / "undisturbed")
    hyp = decode(data, undisturbed, "test", Search("ctc_greedy_search"), max_frames=200)
    assert (exp / hyp.name).read_bytes() == hyp.read_bytes()


def test_errors_are_one_line(data: Path, exp: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from recipes.common.decode import main

    app = typer.Typer()
    app.command()(main)
    for options, message in (
        (["--mode", "greedy"], "mode must be one of"),
        (["--split", "nowhere"], "has neither `text` nor `data.list`"),
        (["--model", "latest"], "no complete checkpoint"),
        (["--on-change", "what"], "must be error or restart"),
        (["--data-type", "tar"], "--data-type must be one of raw, shard"),
    ):
        result = CliRunner().invoke(app, [str(data), str(exp), *options])
        assert result.exit_code == 1, options
        assert message in " ".join(result.output.split()), options
        assert "Traceback" not in result.output


# The script that the test above launches: ranks are forked, so that many runs take little time


def start_rank(rank: int, size: int, port: int, data: Path, exp: Path, after: int | None) -> int:
    """Fork a rank, which kills itself with its ``after``-th operation that changes files. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if after is not None:
            die_in_operation(after)
        decode(data, exp, "test", NBEST, max_frames=160)
        os._exit(0)
    except RuntimeError:  # another rank is gone
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def die_in_operation(after: int) -> None:
    """Before or after a file is synced, moved or removed."""
    left = iter(range(2 * after - random.randrange(2)))

    def wrap(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            count()
            result = function(*args, **kwargs)
            count()
            return result

        return wrapped

    def count() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("fsync", "replace", "unlink", "rmdir", "truncate"):
        setattr(os, name, wrap(getattr(os, name)))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(size: int, data: Path, exp: Path, after: int | None = None) -> bool:
    """One run on ``size`` ranks; a random one may kill itself, then the others are killed. Returns whether none was."""
    port, victim = free_port(), random.randrange(size)
    pids = [start_rank(r, size, port, data, exp, after if r == victim else None) for r in range(size)]
    codes = []
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        codes.append(os.waitstatus_to_exitcode(status))
        for other in pids if status else ():
            os.kill(other, signal.SIGKILL)
    killed = -signal.SIGKILL in codes
    assert killed or not any(codes), f"a rank failed by itself: {codes}"
    return not killed


def sizes_of(exp: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in exp.glob("*.partial/rank*.jsonl")}


def tear(exp: Path, before: dict[Path, int]) -> None:
    """Sometimes the last line of the last run is not whole. (What was there before it, is on the disk.)"""
    for path, size in sizes_of(exp).items():
        if random.random() < 0.4:
            os.truncate(path, max(before.get(path, 0), size - random.randrange(40)))


def noted(exp: Path) -> Iterator[str]:
    for record in Partial(exp / "test.attention_rescoring.partial").records():
        yield from (key for key, _ in record.utterances)


def kill_until_done(sizes: tuple[int, ...], data: Path, exp: Path) -> list[int]:
    """Kill runs until one comes to its end; return the number of utterances noted after each kill."""
    counts: list[int] = []
    before = sizes_of(exp)
    while not run(random.choice(sizes), data, exp, random.randint(1, 12) if len(counts) < MOST_KILLS else None):
        keys = list(noted(exp))
        assert len(keys) == len(set(keys)), "an utterance was noted twice"
        counts.append(len(keys))
        tear(exp, before)
        before = sizes_of(exp)
    return counts


def main(folder: Path, seed: int) -> None:
    print(f"seed {seed}")
    random.seed(seed)
    torch.set_num_threads(1)
    data = write_data(folder / "data")
    wanted = {}
    for size in (1, 2):
        exp = write_experiment(folder / f"undisturbed{size}")
        assert run(size, data, exp)
        wanted[size] = bytes_of(exp)
    assert wanted[1] == wanted[2]
    assert len(wanted[1]) == len(FILES)
    for sizes in ((1,), (2,), (1, 2, 3)):
        exp = write_experiment(folder / f"killed{''.join(map(str, sizes))}")
        counts = kill_until_done(sizes, data, exp)
        assert bytes_of(exp) == wanted[1], f"not as undisturbed: {exp}"
        assert sorted(path.name for path in exp.glob("test.*")) == sorted([*FILES, FILES[0].replace("hyp", "json")])
        print(f"ranks {sizes}: killed {len(counts)} times, with {counts} utterances done: as undisturbed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
