"""States as a broken disk leaves them: every flipped byte and every cut is told, before anything is read."""

from collections.abc import Callable
from typing import Any

import pytest
from contract import digest, restored
from helpers_bad import code_points
from torchdata.nodes import BaseNode

import uio_pipes as uio
from uio_pipes.run.state import lane_name, lanes_in, read_lane, read_meta

State = dict[str, str]


def graphs(pipelines: list[uio.Pipeline]) -> dict[str, uio.Pipeline]:
    tar, raw, kaldi, shar, cuts, index, touch, *others = pipelines
    several = {"a": tar.decode_audio().shuffle(4), "b": index.decode_audio(), "c": raw.decode_audio().take(2)}
    return {
        **{each.stages[0].name: each.shuffle(4).batch(3) for each in (cuts, *others)},
        "tar": tar.decode_audio().shuffle(6).sort(4).dynamic_batch(max_frames=300).pad(),
        "raw list": raw.decode_audio().shuffle(5).bucket_batch([80], [2, 2]).pad(),
        "kaldi": kaldi.decode_audio().sort(5).bucket_batch(max_frames=300, num_buckets=3).pad(),
        "pairs": raw.decode_audio().tokenize(code_points).bucket_batch(num_buckets=(2, 2), max_frames=300).pad(),
        "shar": shar.segments(of="recording", cut_seconds=(0.2, 0.6)).decode_audio().shuffle(4).batch(2),
        "tar index": index.decode_audio().bucket_batch(max_frames=300, window=6).pad(),
        "indexed": touch.decode_audio().skip(1).concat(max_seconds=2).take(9).repeat(2).batch(2).pad(),
        "mix": uio.mix(several, stop="cycle").batch(3),
        "interleave": uio.interleave([touch.decode_audio().sort(3), kaldi.decode_audio()]).shuffle(5).batch(3),
    }


def saved(graph: uio.Pipeline) -> State:
    loader = uio.Loader(graph, lanes=2)
    for _ in zip(range(4), loader, strict=False):
        pass
    return loader.state_dict()


def read(state: State) -> None:
    meta = read_meta(state)
    for lane in lanes_in(state, meta.lanes):
        read_lane(state, lane)


def untold(state: State, damage: Callable[[bytes, int], bytes]) -> list[tuple[str, int, str]]:
    """The places in the entries of ``state`` where damage is not refused under the name of the entry."""
    found = []
    for key, text in state.items():
        data = text.encode()
        for at in range(len(data)):
            if not (said := refusal({**state, key: damage(data, at).decode("utf-8", "surrogateescape")})).startswith(
                key
            ):
                found.append((key, at, said))
    return found


def refusal(state: State) -> str:
    try:
        read(state)
    except uio.StateError as error:
        return str(error)
    return ""


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def test_every_flipped_byte_and_every_cut_is_told(pipelines: list[uio.Pipeline]) -> None:
    for name, graph in graphs(pipelines).items():
        state = saved(graph)
        assert refusal(state) == ""
        assert untold(state, flipped) == [], name
        assert untold(state, lambda data, at: data[:at]) == [], name


def test_a_loader_refuses_it_before_the_first_batch(pipelines: list[uio.Pipeline]) -> None:
    graph = graphs(pipelines)["tar"]
    state = saved(graph)
    loader = uio.Loader(graph, lanes=2)
    lane = state["lane_000001"]
    for damaged in (lane.replace('"k": ', '"k": 1', 1), lane[:-1], state["lane_000000"], lane.replace("shuffle", "s")):
        if damaged != lane:
            with pytest.raises(uio.StateError, match=r"^lane_000001 (is damaged|does not end in a checksum)"):
                loader.load_state_dict({**state, "lane_000001": damaged})
    loader.load_state_dict(state)
    assert [digest(batch) for batch in loader] == [digest(batch) for batch in resumed(graph, state)]


def resumed(graph: uio.Pipeline, state: State) -> uio.Loader:
    return restored(graph, state, lanes=2)


@pytest.mark.parametrize("thing", [{}, {"meta": b"x"}, {"meta": 3}, {3: "x"}, [], None, "x", {"meta": "{}"}])
def test_other_things_than_states(pipelines: list[uio.Pipeline], thing: Any) -> None:
    with pytest.raises(uio.StateError, match="meta"):
        uio.Loader(pipelines[0].batch(2)).load_state_dict(thing)


class Renamed(uio.Node):
    """A node whose state has another field than it had when it was saved."""

    state_fields = ("count",)

    def start(self) -> None:
        setattr(self, self.state_fields[0], 0)

    def next(self) -> Any:
        return self.source.next()


class Refusing(BaseNode[Any]):
    """A node of torchdata's whose reset has a mistake."""

    def __init__(self, source: BaseNode[Any]) -> None:
        super().__init__()
        self.source = source

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.source.reset(None if initial_state is None else initial_state["sauce"])

    def next(self) -> Any:
        return next(self.source)

    def get_state(self) -> dict[str, Any]:
        return {"source": self.source.state_dict()}


@pytest.mark.parametrize(("node", "field"), [(Renamed, "total"), (Refusing, "sauce")])
def test_a_node_of_the_users_that_cannot_take_its_state_is_named(
    pipelines: list[uio.Pipeline], monkeypatch: pytest.MonkeyPatch, node: type[BaseNode[Any]], field: str
) -> None:
    graph = pipelines[0].through(node).batch(2)
    loader = resumed(graph, saved(graph))
    if node is Renamed:
        monkeypatch.setattr(Renamed, "state_fields", ("total",))
    says = (
        rf"^lane 0: the node {node.__name__} given to .through\(…\) refused .* \(KeyError: '{field}'\): it has changed"
    )
    with pytest.raises(uio.StateError, match=says) as raised:
        next(iter(loader))
    assert "damaged" not in str(raised.value)


def test_a_node_of_ours_that_cannot_take_an_edited_state_is_named(pipelines: list[uio.Pipeline]) -> None:
    graph = graphs(pipelines)["tar"]
    state = saved(graph)
    lane = read_lane(state, 1)
    assert lane.nodes.count('"position":') == 2, "of the list, and of the shuffle"
    at = lane.nodes.index('"position":')
    lane.nodes = lane.nodes[:at] + lane.nodes[at:].replace('"position":', '"place":', 1)
    loader = resumed(graph, state | {lane_name(1): lane.text(1)})
    with pytest.raises(uio.StateError, match=r"^lane 1: shuffle cannot restore what it saved \(KeyError: 'position'\)"):
        list(loader)


def test_keys_with_halves_of_surrogate_pairs_are_saved_and_read(pipelines: list[uio.Pipeline]) -> None:
    """Names of files that are not UTF-8 have them."""
    graph = pipelines[0].batch(2)
    loader = uio.Loader(graph)
    loader.exclude(["\udcff"])
    state = loader.state_dict()
    resumed = restored(graph, state)
    assert resumed.state_dict() == state
