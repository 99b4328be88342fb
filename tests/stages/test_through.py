"""Nodes of the user's own: of this package or of torchdata."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from helpers_bad import keys, raw_items, run
from torchdata.nodes import BaseNode

import uio_pipes as uio


class Every(uio.Node):
    """Passes on every ``n``-th."""

    state_fields = ("seen",)

    def __init__(self, source: BaseNode[Any], n: int = 2, *, first: int = 0) -> None:
        super().__init__(source)
        self.n, self.first = n, first

    def start(self) -> None:
        self.seen = self.first

    def next(self) -> Any:
        while True:
            item = self.source.next()
            self.seen += 1
            if self.seen % self.n == 0:
                return item


class Keys(uio.Node):
    """Gives something that is no utterance."""

    def next(self) -> Any:
        return self.source.next().key


class Pairs(BaseNode[Any]):
    """Of torchdata's kind: makes lists of two, and hands out its live state."""

    def __init__(self, source: BaseNode[Any]) -> None:
        super().__init__()
        self.source, self.state = source, {"made": 0}

    def reset(self, initial_state: Any = None) -> None:
        super().reset(initial_state)
        self.source.reset(initial_state["source"] if initial_state else None)
        self.state["made"] = initial_state["made"] if initial_state else 0

    def next(self) -> Any:
        pair = [self.source.next()]
        with contextlib.suppress(StopIteration):
            pair.append(self.source.next())
        self.state["made"] += 1
        return pair

    def get_state(self) -> Any:
        self.state["source"] = self.source.state_dict()
        return self.state


class BadState(Every):
    def get_state(self) -> dict[str, Any]:
        return {"what": {1, 2}}


def test_arguments_reach_the_node(tmp_path: Path) -> None:
    source = uio.from_raw_list(raw_items(tmp_path, 7))
    assert keys(run(source.through(Every))[0]) == ["R001", "R003", "R005"]
    assert keys(run(source.through(Every, 3, first=2))[0]) == ["R000", "R003", "R006"]


@pytest.mark.parametrize("every", [1, 2])
def test_nodes_of_both_kinds_resume(tmp_path: Path, every: int) -> None:
    source = uio.from_raw_list(raw_items(tmp_path, 11)).decode_audio()
    for graph in (source.through(Every).batch(2).pad(), source.through(Pairs).pad(), source.through(Pairs)):
        whole = keys(run(graph)[0])
        for cut in range(1, 4):
            first = uio.Loader(graph, snapshot_every=every)
            iterator = iter(first)
            before = keys([next(iterator) for _ in range(cut)])
            second = uio.Loader(graph)
            second.load_state_dict(first.state_dict())
            assert before + keys(second) == whole


def test_a_state_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with pytest.raises(uio.UioError, match=r"ints, strings, lists.*through"):
        run(uio.from_raw_list(raw_items(tmp_path, 3)).through(BadState))


def test_arguments_are_part_of_the_graph() -> None:
    source = uio.from_raw_list("x")
    assert source.through(Every, 2).fingerprint() != source.through(Every, 3).fingerprint()
    assert source.through(Every, first=1).fingerprint() != source.through(Every).fingerprint()
    assert "Every" in str(source.through(Every))


def texts(name: str, count: int) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{name}{i}", "txt": name} for i in range(count)]).sharding_filter()


def test_a_source_that_ends_in_a_node_of_the_users_is_mixed_with_others() -> None:
    graph = uio.mix({"own": texts("a", 8).through(Every), "other": texts("b", 5)}).shuffle(3)
    assert graph.stages[0].gives == "sample"
    whole = keys(uio.Loader(graph))
    assert sorted(whole) == ["a1", "a3", "a5", "a7", "b0", "b1", "b2", "b3", "b4"]
    loader = uio.Loader(graph)
    begun = [sample["key"] for _, sample in zip(range(4), loader, strict=False)]
    resumed = uio.Loader(graph)
    resumed.load_state_dict(loader.state_dict())
    assert begun + keys(resumed) == whole


def test_where_all_sources_end_in_nodes_of_the_users_anything_may_come_out() -> None:
    mixed = uio.interleave([texts("a", 4).through(Pairs), texts("b", 4).through(Pairs)])
    assert mixed._kind == "any"
    assert [[sample["key"] for sample in pair] for pair in uio.Loader(mixed)] == [
        ["a0", "a1"], ["b0", "b1"], ["a2", "a3"], ["b2", "b3"],
    ]  # fmt: skip


@pytest.mark.parametrize("node", [Keys, Pairs])
def test_a_node_that_gives_no_utterances_among_sources_that_do_is_named(node: type[BaseNode[Any]]) -> None:
    graph = uio.mix({"own": texts("a", 8).through(node), "other": texts("b", 5)}).shuffle(3)
    with pytest.raises(uio.PipelineError, match=r"at the end of own must give samples as the other sources do, not a"):
        list(uio.Loader(graph))


def test_a_buffer_behind_a_node_that_gives_no_utterances_says_so() -> None:
    with pytest.raises(
        uio.PipelineError,
        match=r"sort takes utterances, not a str: check what the \.through\(…\) node before it returns",
    ):
        list(uio.Loader(texts("a", 8).through(Keys).sort(3)))
