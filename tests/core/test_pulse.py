"""Streams without an end of which nothing is left: they end in an error that says why, and none turns for ever."""

import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
from command import programs
from contract import Case, carried, check_cuts, keys_of, record
from helpers_bad import keys

import uio_pipes as uio
from uio_pipes.core.stage import Node

WORLD = 2
Graph = Callable[[uio.Pipeline], uio.Pipeline]


def never(sample: Any) -> bool:
    return False


def of_a(sample: Any) -> bool:
    return sample["key"][0] == "a"


def nothing_of(sample: Any) -> list[Any]:
    return []


def texts(count: int, name: str = "a") -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{name}{i:02d}", "txt": ""} for i in range(count)])


class Pairs(Node):
    """Two utterances as one: it holds one back that nobody sees."""

    def next(self) -> Any:
        self.source.next()
        return self.source.next()


class Swallows(Node):
    """Takes all and gives nothing."""

    def next(self) -> Any:
        while True:
            self.source.next()


GRAPHS: dict[str, tuple[Graph, str]] = {
    "filter": (lambda p: p.repeat().filter(never), "filter(never"),
    "before a buffer": (lambda p: p.repeat().filter(never).shuffle(50).batch(4), "filter(never"),
    "behind a buffer": (lambda p: p.repeat().shuffle(50).filter(never), "filter(never"),
    "buffer in the round": (lambda p: p.shuffle(3).repeat().filter(never), "filter(never"),
    "between buffers": (lambda p: p.repeat().shuffle(50).filter(never).shuffle(9).batch(4), "filter(never"),
    "flat_map": (lambda p: p.repeat().flat_map(nothing_of).batch(4), "flat_map(nothing_of"),
    "through": (lambda p: p.repeat().through(Swallows).batch(4), "through(Swallows"),
    "shares": (lambda p: p.repeat().sharding_filter().filter(never), "filter(never"),
    "taken": (lambda p: p.repeat().filter(never).take(5), "filter(never"),
    "over a mix": (lambda p: uio.mix([p, texts(9)]).repeat().filter(never), "filter(never"),
    "mix": (lambda p: uio.mix([p, texts(9)], stop="endless").filter(never), "filter(never"),
    "mix behind a buffer": (lambda p: uio.mix([p, texts(9)], stop="endless").shuffle(9).filter(never), "filter(never"),
    "mix of shares": (lambda p: uio.mix([p, p], stop="endless").sharding_filter().filter(never), "filter(never"),
    "mix of endless": (lambda p: uio.mix([p.repeat(), p.repeat()]).filter(never), "filter(never"),
    "mix of empty": (lambda p: uio.mix([p.filter(never)], stop="endless"), "filter(never"),
}


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 3}, {"num_workers": 1}], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_left_of_an_endless_stream_is_an_error_that_names_the_stage(name: str, options: dict[str, Any]) -> None:
    graph, stage = GRAPHS[name]
    taken = name == "taken" and "steps_per_epoch" not in options
    with pytest.raises(uio.TooManyFailures if taken else uio.ListError) as raised:  # which has an end
        keys(uio.Loader(graph(texts(5)), **options))
    assert stage in str(raised.value), str(raised.value)


@pytest.mark.parametrize("name", ["shares", "mix of shares"])
def test_shares_of_a_repeated_list_are_waited_for(name: str) -> None:
    graph, _ = GRAPHS[name]
    with pytest.raises(uio.ListError, match="filter"):
        keys(uio.Loader(graph(texts(5)), lanes=3))
    repeated = texts(3).repeat().sharding_filter().filter(lambda sample: sample["key"] == "a01")
    got = keys(uio.Loader(repeated, lanes=8, steps_per_epoch=20))
    assert got == ["a01"] * 20, "a lane gets each item at last"


def test_what_fills_slowly_does_not_rest() -> None:
    """One utterance of ten comes through, one at a time, into buffers that hold hundreds."""
    one = texts(10).repeat().filter(lambda sample: sample["key"] == "a03")
    assert len(keys(uio.Loader(one.shuffle(300).shuffle(200).batch(700), steps_per_epoch=2))) == 1400
    rare = texts(10).repeat().shuffle(300).filter(lambda sample: sample["key"] == "a03").batch(5)
    assert keys(uio.Loader(rare, steps_per_epoch=3)) == ["a03"] * 15
    assert len(keys(uio.Loader(texts(1).repeat().through(Pairs), steps_per_epoch=5))) == 5
    assert len(keys(uio.Loader(texts(3).repeat().skip(7), steps_per_epoch=5))) == 5


def test_a_source_of_a_mix_that_gives_nothing_rests_and_the_others_go_on() -> None:
    mixed = uio.mix({"a": texts(3), "b": texts(3, "b")}, stop="endless").filter(of_a)
    assert {key[0] for key in keys(uio.Loader(mixed, steps_per_epoch=50))} == {"a"}
    inner = uio.mix({"a": texts(3), "b": texts(3, "b").repeat().filter(never)})
    assert sorted(keys(uio.Loader(inner.take(3)))) == ["a00", "a01", "a02"]


@pytest.mark.slow
def test_what_a_mix_takes_of_an_endless_source_is_whole() -> None:
    """More than may pass before something must come out. The mix has an end: what comes out is seen all the same."""
    many = texts(9).sharding_filter().repeat().take(1500)
    mixed = uio.mix([many, texts(9, "b").sharding_filter().shuffle(5)], stop="cycle").shuffle(8).shuffle(30)
    recorded = record(Case(mixed, {"lanes": 2, "snapshot_every": 3}))
    assert sum(key[0] == "a" for key in recorded.keys) >= 3000
    check_cuts(recorded, [len(recorded.digests) - 400])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_lane_that_gives_nothing_rests_and_the_others_go_on(workers: int) -> None:
    graph = texts(6).sharding_filter().filter(lambda sample: sample["key"] in ("a00", "a03")).batch(1)
    loader = uio.Loader(graph, lanes=3, num_workers=workers, steps_per_epoch=7)
    assert [key for batch in loader for key in keys_of(batch)] == ["a00", "a03"] * 3 + ["a00"]


@pytest.mark.parametrize("lanes", [1, 3])
def test_resting_is_the_same_after_a_resume(lanes: int) -> None:
    """Sources of a mix that rest at once, later, or never."""
    shares = [texts(7, name).sharding_filter() for name in "abc"]
    mixed = uio.mix(shares, [3, 2, 1], stop="endless").shuffle(5).filter(of_a)
    one = mixed.shuffle(4).batch(2).take(30)
    recorded = record(Case(one, {"lanes": lanes}))
    assert len(recorded.digests) == 30 * lanes
    check_cuts(recorded, range(0, 30 * lanes, 3))


LEFT_OUT: dict[str, Graph] = {
    "of one": lambda p: p.repeat(),
    "repeat": lambda p: p.repeat().batch(2),
    "mix": lambda p: uio.mix([p, texts(3)], stop="endless").batch(2),
}


@pytest.mark.parametrize("how", ["skip", "exclude"])
@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 5}, {"num_workers": 1}], ids=str)
@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_endless_stream_of_which_the_loader_leaves_out_all_is_an_error(
    name: str, options: dict[str, Any], how: str
) -> None:
    graph = LEFT_OUT[name](texts(5))
    loader = uio.Loader(graph, **options)
    batches = iter(loader)
    next(batches)
    if how == "skip":
        loader.skip(lambda key: True)
    else:
        loader.exclude([f"a{i:02d}" for i in range(5)])
    with pytest.raises(uio.ListError, match=rf"loader\.{how} left out"):
        next(batches)


@pytest.mark.parametrize("how", ["resume", "skip", "exclude", "reweight"])
def test_a_source_that_rested_is_not_searched_again_for_longer(how: str) -> None:
    """It rested after the oldest utterance that a buffer holds had come, so that the buffer runs it once more."""
    read = []

    def spied(sample: Any) -> bool:
        read.append(sample["key"])
        return False

    inner = uio.mix({"a": texts(5).repeat().shuffle(30).filter(spied), "b": texts(90, "b").shuffle(9)})
    graph = uio.mix({"inner": inner, "c": texts(60, "c")}).shuffle(60).batch(3).take(40)
    made = [keys_of(batch) for batch in uio.Loader(graph)]
    first = len(read)
    assert first > 1000
    loader = uio.Loader(graph)
    batches = iter(loader)
    got = [keys_of(next(batches)) for _ in range(4)]
    read.clear()
    if how == "resume":
        state, loader = carried(loader.state_dict()), uio.Loader(graph)
        loader.load_state_dict(state)
        batches = iter(loader)
    elif how == "skip":
        loader.skip(range(900, 901))
    elif how == "exclude":
        loader.exclude(["none of these"])
    else:
        loader.reweight({"c": 1})
    got += [keys_of(batch) for batch in batches]
    assert got == made
    assert len(read) <= first


# A loader that deals its lanes again


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_of_steps_that_dries_up_ends_in_an_error_after_its_last_batch(workers: int) -> None:
    """As when a state is loaded whose lanes have nothing in the passes to come."""
    graph = texts(6).sharding_filter().filter(FirstPassOnly()).batch(1)
    loader = uio.Loader(graph, lanes=2, num_workers=workers, steps_per_epoch=20)
    batches = iter(loader)
    got = [key for batch in islice(batches, 6) for key in keys_of(batch)]
    state = loader.state_dict()
    with pytest.raises(uio.ListError, match="left out 6 as filter"):
        next(batches)
    assert sorted(got) == [f"a{i:02d}" for i in range(6)]
    resumed = uio.Loader(graph, lanes=2, steps_per_epoch=20)
    resumed.load_state_dict(carried(state))
    with pytest.raises(uio.ListError):
        list(resumed)
    resumed.load_state_dict(carried(state))
    resumed.skip(5)
    with pytest.raises(uio.ListError):
        list(resumed)


class FirstPassOnly:
    """A filter that lets an utterance pass when it comes for the first time."""

    def __call__(self, sample: Any) -> bool:
        return bool(sample.origin.pass_ == 0)

    __qualname__ = "FirstPassOnly"


# Under torchrun


def main(out: str, path: str) -> None:
    dist.init_process_group("gloo")
    report: dict[str, Any] = {}
    for workers in (0, 1):
        for name, options in WAYS.items():
            report[f"{name} {workers}"] = _tried(path, {**options, "num_workers": workers})
            dist.barrier()
    (Path(out) / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


def shard_one(sample: Any) -> bool:
    """Only the first shard's, and only in the first pass."""
    return bool(sample.origin.item == 0 or sample.origin.pass_ == 0)


WAYS: dict[str, dict[str, Any]] = {
    "steps": {"steps_per_epoch": 50},
    "endless": {"uneven": "stop"},
    "excluded": {"uneven": "stop", "excluded": ["K0009", "K0010", "K0011"]},
    "gone": {"gone": True, "uneven": "stop"},
}


def _tried(path: str, options: dict[str, Any]) -> list[Any]:
    source = uio.from_shard_list([f"{path}.tar", _first_of(path)] if "gone" in options else path)
    graph = source.filter(shard_one).batch(1)
    if "excluded" in options:
        graph = uio.from_shard_list(path).repeat().batch(1)
    elif options.get("uneven") == "stop" and "gone" not in options:
        graph = uio.list_files(path).sharding_filter().open_files().load_from_tar().repeat().filter(shard_once).batch(1)
    got = 0
    try:
        loader = uio.Loader(graph, **{name: of for name, of in options.items() if name not in ("gone", "excluded")})
        for _ in loader:
            dist.all_reduce(_one())  # as a step of training does
            got += 1
            if got == 4:
                loader.exclude(options.get("excluded", []))
    except uio.ListError as error:
        return [got, str(error)]
    return [got, ""]


def test_ranks_of_which_one_could_read_nothing_get_the_reason(reports: list[dict[str, Any]]) -> None:
    for workers in (0, 1):
        first, second = (report[f"gone {workers}"] for report in reports)
        assert first == second
        assert first[0] == 0
        assert "a rank has no batch at all" in first[1]
        assert "rank 0: 1 failed (1 as missing_file); for example" in first[1]


def shard_once(sample: Any) -> bool:
    return bool(sample.origin.item == 0 or sample.origin.pass_ < 2)


def _first_of(path: str) -> str:
    return next(line for line in Path(path).read_text().splitlines() if line.endswith(".tar"))


def _one() -> Any:
    import torch

    return torch.ones(1)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    root = tmp_path_factory.mktemp("rest")
    made = corpus.shards(root / "data", [9, 3], seconds=(0.1, 0.2))
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(WORLD)]
    programs(*ranks, __file__, root, made.list)
    return [json.loads((root / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("way", "count"), [("steps", 3), ("endless", 6), ("excluded", 4)])
def test_all_ranks_get_the_error_at_the_same_step(
    reports: list[dict[str, Any]], way: str, count: int, workers: int
) -> None:
    """Rank 1 has three utterances, and nothing of them is left when they are dealt again."""
    first, second = (report[f"{way} {workers}"] for report in reports)
    assert first == second
    got, message = first
    assert got == count
    assert "the stream cannot continue" in message
    assert ("rank 1: loader.exclude" if way == "excluded" else "rank 1: filter(shard_on") in message
    assert way == "excluded" or "left out 3 as filter" in message


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
