"""Exact resume, for every stage there is and for nodes of a user's own."""

from pathlib import Path
from typing import Any

import pytest
from contract import (
    ROLES,
    Case,
    Record,
    all_stages,
    check_cuts,
    check_node,
    check_twice,
    digest,
    example_of,
    in_fresh_process,
    record,
    some_cuts,
)
from examples import CHAINS
from torchdata.nodes import BaseNode, Batcher

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Op
from uio_pipes.core.stage import Deferred, Stage

STAGES = all_stages()
OPTIONS: tuple[dict[str, Any], ...] = {}, {"lanes": 3, "snapshot_every": 3}  # others: test_generated_graphs.py


class EveryThird(BaseNode[Any]):
    """A torchdata node that knows nothing of this package. It hands out its live state."""

    def __init__(self, source: BaseNode[Any]) -> None:
        super().__init__()
        self.source, self.state = source, {"seen": 0, "passed": []}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.source.reset(None if initial_state is None else initial_state["source"])
        self.state = {"seen": 0, "passed": []} if initial_state is None else initial_state["own"]

    def next(self) -> Any:
        while True:
            item = next(self.source)
            self.state["seen"] += 1
            if self.state["seen"] % 3:
                self.state["passed"].append(item["key"])
                return item

    def get_state(self) -> dict[str, Any]:
        return {"own": self.state, "source": self.source.state_dict()}


class Backwards(uio.Node):
    """Windows of samples in reverse order. Its state is where its window began, as for the package's own buffers."""

    def __init__(self, source: uio.Node, size: int) -> None:
        super().__init__(source)
        self.size = size

    def start(self) -> None:
        self.window: list[Any] = []
        self.given = 0
        self.before: dict[str, Any] | None = None

    def next(self) -> Any:
        if not self.window:
            self.before, self.given = self.source.get_state(), 0
            self._fill()
        self.given += 1
        return self.window.pop()

    def _fill(self) -> None:
        try:
            while len(self.window) < self.size:
                self.window.append(self.source.next())
        except StopIteration:
            if not self.window:
                raise

    def get_state(self) -> dict[str, Any]:
        if not self.window:
            return {"source": self.source.get_state(), "given": 0}
        return {"source": self.before, "given": self.given}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(None if initial_state is None else initial_state["source"])
        for _ in range(initial_state["given"] if initial_state is not None else 0):
            self.next()


class Remembers(uio.Node):
    """Drops what it has seen, by a declared list that the base class copies."""

    state_fields = ("keys",)

    def start(self) -> None:
        self.keys: list[str] = []

    def next(self) -> Any:
        while True:
            item = self.source.next()
            ending = item.key[-1]
            if self.keys[-2:].count(ending) == 0:
                self.keys.append(ending)
                return item


class Numbered(uio.Node):
    """Works on whole batches behind ``pad``, and needs them whole."""

    state_fields = ("number",)

    def start(self) -> None:
        self.number = 0

    def next(self) -> Any:
        batch = self.source.next()
        self.number += len(batch["keys"])
        return {**batch, "number": self.number}


def _with_streams(sample: uio.Sample) -> uio.Sample:
    sample["prompt"], sample["answer"], sample["question"] = sample["wav"], sample["wav"], 2 * sample["txt"]
    return sample


def _code_points(text: str) -> list[int]:
    return [ord(character) for character in text]


def _together(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + lengths["prompt"].frames + lengths["answer"].frames // 2 + lengths["question"].tokens


def three_streams(corpus: uio.Pipeline) -> uio.Pipeline:
    """Four, with the usual one."""
    streams = corpus.map(_with_streams).decode_audio().fbank(num_mel_bins=8, dither=0.1).tokenize(_code_points)
    prompt = streams.decode_audio(of="prompt").speed_perturb(of="prompt").fbank(10, dither=0.1, of="prompt")
    answer = prompt.decode_audio(of="answer").random_crop(max_seconds=0.3, of="answer").resample(8000, of="answer")
    question = answer.normalize_text(str.upper, of="question").tokenize(_code_points, of="question")
    kept = question.filter(length="prompt.frames", min_length=40).shuffle(5).sort(7, length="question.tokens")
    return kept.dynamic_batch(max_tokens=900, length=_together).pad(keep=["txt"])


def _joint(frames: int, tokens: int) -> int:
    return frames // 4 * (tokens + 1)


def in_pairs(corpus: uio.Pipeline) -> uio.Pipeline:
    """Buckets by frames and tokens, found from the data, and a cost of both."""
    labelled = corpus.decode_audio().fbank(num_mel_bins=8, dither=0.1).tokenize(_code_points).shuffle(5)
    return labelled.bucket_batch(num_buckets=(2, 2), max_cost=800, cost=_joint, max_wait=9, min_batch_size=2).pad()


def by_cost(corpus: uio.Pipeline) -> uio.Pipeline:
    """A window by a cost of frames and tokens, both padded."""
    labelled = corpus.decode_audio().fbank(num_mel_bins=8, dither=0.1).tokenize(_code_points)
    return labelled.bucket_batch(max_cost=250, cost=_joint, window=8).pad()


def given_pairs(corpus: uio.Pipeline) -> uio.Pipeline:
    """Given buckets by frames and tokens with their sizes, in some of which an utterance waits."""
    labelled = corpus.decode_audio().shuffle(5).tokenize(_code_points)
    return labelled.bucket_batch([(100, 3), (100, 20), (900, 3), (900, 20)], [2, 3, 4, 3], max_wait=9).pad()


def _talking(sample: uio.Sample) -> uio.Sample:
    count = int(sample["txt"][-1]) % 3
    asked = [{"type": "audio"}] * count + [{"type": "text", "text": "what was said?"}]
    sample["audio"] = [sample["wav"]] * count
    sample["messages"] = [{"role": "user", "content": asked}, {"role": "assistant", "content": sample["txt"]}]
    return sample


def _quarter(lengths: uio.Lengths) -> int:
    return lengths.frames // 4


def conversations(corpus: uio.Pipeline) -> uio.Pipeline:
    """Of none to two recordings."""
    talks = corpus.map(_talking).decode_audio(of="audio").speed_perturb(of="audio").fbank(8, dither=0.1, of="audio")
    said = talks.chat(_code_points, {"user": "<u>{}", "assistant": "<a>{}</a>"}, places=_quarter)
    return said.filter(length="tokens", max_length=150).shuffle(5).pack(170, window=4, keep=["audio_places"])


def following_steps(corpus: uio.Pipeline) -> uio.Pipeline:
    """Weights, bounds and a budget that follow the step, before and after buffers."""
    read, heard = corpus.tag({"kind": "read"}), corpus.tag({"kind": "heard"})
    weights = {"read": uio.by_step({0: 1.0, 4: 0.0, 9: 2.0}), "heard": 1.0}
    mixed = uio.mix({"read": read, "heard": heard}, weights).decode_audio().fbank(num_mel_bins=8, dither=0.1)
    kept = mixed.shuffle(5).filter(max_frames=uio.by_step({0: 80.0, 3: 10_240.0})).sort(4)
    return kept.dynamic_batch(uio.by_step({0: 300, 5: 700, 8: 150})).pad()


def packed_audio(corpus: uio.Pipeline) -> uio.Pipeline:
    """Waveforms without padding, aligned, with labels, some of them too long."""
    heard = corpus.decode_audio().speed_perturb([0.9, 1.1]).tokenize(_code_points).shuffle(5)
    return heard.pack(max_frames=160, window=4, multiple_of=8, overflow="drop", keep=["txt"])


def in_rows(corpus: uio.Pipeline) -> uio.Pipeline:
    """Chunks of waveforms, whose rows take recordings that are shuffled and some of which are left out."""
    heard = corpus.decode_audio().speed_perturb([0.9, 1.1]).tokenize(_code_points).shuffle(5).filter(min_frames=40)
    return heard.chunks(0.3, right=0.05, rows=2).pad(keep=["txt"])


USERS = {
    "in_rows": in_rows,
    "packed_audio": packed_audio,
    "following_steps": following_steps,
    "in_pairs": in_pairs,
    "by_cost": by_cost,
    "given_pairs": given_pairs,
    "three_streams": three_streams,
    "conversations": conversations,
    "torchdata_node": lambda p: p.decode_audio().through(EveryThird).batch(2).pad(),
    "torchdata_batcher": lambda p: p.decode_audio().through(Batcher, 3, False),
    "buffering_node": lambda p: p.decode_audio().through(Backwards, 4).batch(3).pad(),
    "buffering_node_between_buffers": lambda p: (
        p.decode_audio().shuffle(6).through(Backwards, 4).sort(5).batch(2).pad()
    ),
    "declared_list": lambda p: p.decode_audio().through(Remembers),
    "behind_pad": lambda p: p.decode_audio().batch(2).pad().through(Numbered),
}


def graph(name: str, pipelines: list[uio.Pipeline]) -> uio.Pipeline:
    """A stage's example by its class's name, a chain of Ops or a user's graph by its own."""
    stages = {stage.__name__: stage for stage in STAGES}
    return example_of(stages[name], pipelines) if name in stages else {**CHAINS, **USERS}[name](pipelines[0])


def recording(name: str, options: dict[str, Any], pipelines: list[uio.Pipeline]) -> Record:
    """The record of a graph, which several tests look at and none changes."""
    key = name, str(options)
    if key not in RECORDS:
        RECORDS[key] = record(Case(graph(name, pipelines), options))
    return RECORDS[key]


EXAMPLES_OF_OTHERS = {"ListFiles", "LoadFromParquet", "LoadFromShar", "LoadRecords", "ShardingFilter"}
OWN_NODES = {"AddNoise", "Chat", "CtcFilter", "Reverberate"}  # Ops that are more than a link of a chain
ALONE = [stage.__name__ for stage in STAGES if not issubclass(stage, Op) or stage.__name__ in OWN_NODES]
STOPPED = [*CHAINS, *(name for name in ALONE if name not in EXAMPLES_OF_OTHERS), *USERS]
RECORDS: dict[tuple[str, str], Record] = {}


def test_discovery_finds_the_stages_of_every_module() -> None:
    names = {stage.name for stage in STAGES}
    assert {"load_from_tar", "load_from_raw", "shuffle", "sort", "bucket_batch", "flat_map", "through", "pad"} <= names


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_every_stage_has_one_role(stage: type[Stage]) -> None:
    assert sum(issubclass(stage, role) for role in ROLES) == 1


def test_no_stage_is_without_a_role() -> None:
    assert {c for c in Stage.__subclasses__() if c.__module__.startswith("uio_pipes.")} == set(ROLES)


def test_every_stage_is_in_a_graph_that_is_stopped(pipelines: list[uio.Pipeline]) -> None:
    """One that runs in a node of its own is, in its example; others are in a chain: put a new one into one of them."""
    chained = {type(stage).__name__ for name in CHAINS for stage in graph(name, pipelines).stages}
    assert {stage.__name__ for stage in STAGES} - chained <= set(ALONE)
    stopped = {str(graph(name, pipelines)) for name in STOPPED}
    assert {str(graph(name, pipelines)) for name in EXAMPLES_OF_OTHERS} <= stopped


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_chained_is_one_kind_of_node(name: str, pipelines: list[uio.Pipeline]) -> None:
    """Else a state of its own would be stopped in one place only."""
    stages = graph(name, pipelines).stages
    node, kinds = graph(name, pipelines).build(Lane(Ledger(), 0, 1, seed=5, epoch=0)), []
    while isinstance(node, uio.Node) and node.source is not None:
        node, kinds = node.source, [*kinds, type(node)]
    assert sum(issubclass(kind, Deferred) for kind in kinds) == sum(isinstance(stage, Op) for stage in stages)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", STOPPED)
def test_rest_is_identical_after_every_cut(name: str, options: dict[str, Any], pipelines: list[uio.Pipeline]) -> None:
    recorded = recording(name, options, pipelines)
    total = len(recorded.digests)
    few = options or name in CHAINS
    check_cuts(recorded, range(total + 1) if total <= 12 and not options else some_cuts(total, 3 if few else 8))
    check_twice(recorded, total // 2)
    check_twice(recorded, total)


@pytest.mark.parametrize("name", STOPPED)
def test_lanes_move_between_ranks_in_the_middle(name: str, pipelines: list[uio.Pipeline]) -> None:
    """Two ranks, stopped after two batches each; four ranks and one go on, and all give what one rank gives.

    Where something follows the step, it is what the two ranks give undisturbed: a step is a batch of each.
    """
    graph_, options = graph(name, pipelines), {"seed": 5, "lanes": 4, "uneven": "join"}
    world = 2 if graph_._follows_steps else 1
    ranks = [uio.Loader(graph_, rank=rank, world_size=world, **options) for rank in range(world)]  # type: ignore[arg-type]
    whole = sorted(digest(batch) for loader in ranks for batch in loader)
    begun, states = [], []
    for rank in range(2):
        loader = uio.Loader(graph_, rank=rank, world_size=2, **options)  # type: ignore[arg-type]
        begun += [digest(b) for _, b in zip(range(2), loader, strict=False)]
        states.append(loader.state_dict())
    for world in (1, 4):
        rest = []
        for rank in range(world):
            loader = uio.Loader(graph_, rank=rank, world_size=world, **options)  # type: ignore[arg-type]
            loader.set_epoch(0)
            loader.load_state_dict(uio.merge_states(states))
            rest += [digest(b) for b in loader]
        assert sorted(begun + rest) == whole


@pytest.mark.parametrize("name", STOPPED)
def test_epochs_differ_in_order(name: str, pipelines: list[uio.Pipeline]) -> None:
    recorded = recording(name, {}, pipelines)
    assert recorded.after != recorded.digests


@pytest.mark.parametrize("lane", [(0, 1), (1, 3)], ids=["only_lane", "lane_1_of_3"])
@pytest.mark.parametrize("name", STOPPED)
def test_node_contract(name: str, lane: tuple[int, int], pipelines: list[uio.Pipeline]) -> None:
    check_node(graph(name, pipelines), *lane)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rest_is_identical_in_a_fresh_process(
    options: dict[str, Any], pipelines: list[uio.Pipeline], tmp_path: Path
) -> None:
    recorded = [recording(name, options, pipelines) for name in STOPPED]
    cuts = [(i * 7 + 3) % (len(r.digests) + 1) for i, r in enumerate(recorded)]
    jobs = [(r.case, r.states[cut]) for r, cut in zip(recorded, cuts, strict=True)]
    made = in_fresh_process(jobs, tmp_path)
    wrong = [name for name, r, cut, got in zip(STOPPED, recorded, cuts, made, strict=True) if got != r.digests[cut:]]
    assert wrong == []
