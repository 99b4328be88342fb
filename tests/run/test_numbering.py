"""One numbering of steps: whatever names a batch by its step means the one that the trainer got at that step."""

from typing import Any

import pytest
from contract import carried, digest
from corpus import Corpus
from journeys import training
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.tools.reports.replay import Replay

State = dict[str, str]
OPTIONS: dict[str, Any] = {"seed": 3, "uneven": "join"}
# How many ranks make how many steps, one after the other.
JOURNEYS: list[tuple[int, list[tuple[int, int]]]] = [
    (6, [(3, 2), (2, 3), (1, 2)]),
    (6, [(1, 5), (6, 1), (2, 2)]),
    (7, [(4, 1), (3, 1), (3, 1), (5, 1)]),  # lanes that ranks cannot share evenly
    (4, [(2, 2), (4, 0), (1, 4), (2, 1)]),
]


class Run:
    """What a run delivered, by its steps, and the state after each of them."""

    def __init__(self, graph: uio.Pipeline, lanes: int, journey: list[tuple[int, int]], **options: Any) -> None:
        self.graph, self.options = graph, {**OPTIONS, "lanes": lanes, **options}
        self.got: dict[tuple[int, int, int], Any] = {}  # by epoch, step and rank
        self.states: list[tuple[int, int, State]] = []
        state: State | None = None
        step = self.first = 0  # of the ranks that ran last, in the last epoch
        for world, count in journey:
            self.ranks = self.loaders(world, state)
            self.states += [] if self.states else [(0, 0, self.state())]
            self.first = step
            iterators = [iter(loader) for loader in self.ranks]
            for _ in range(count):
                if options.get("steps_per_epoch") == step:
                    assert [next(one, None) for one in iterators] == [None] * world
                    iterators, step = [iter(loader) for loader in self.ranks], 0
                    self.first = 0
                    self.states.append((self.ranks[0].epoch, 0, self.state()))
                for rank, one in enumerate(iterators):
                    self.got[self.ranks[0].epoch, step, rank] = next(one)
                step += 1
                self.states.append((self.ranks[0].epoch, step, self.state()))
            state = self.state()

    def state(self) -> State:
        return uio.merge_states([loader.state_dict() for loader in self.ranks])

    def loaders(self, world: int, state: State | None) -> list[uio.Loader]:
        made = [uio.Loader(self.graph, rank=rank, world_size=world, **self.options) for rank in range(world)]
        for loader in made if state is not None else ():
            loader.load_state_dict(carried(state))
        return made

    @property
    def now(self) -> dict[tuple[int, int], Any]:
        """What was delivered in the last epoch, by step and rank."""
        return {(step, rank): batch for (epoch, step, rank), batch in self.got.items() if epoch == self.ranks[0].epoch}


@pytest.fixture(params=[(None, 0), (100, 0), (3, 2)], ids=["all data", "one epoch", "steps, workers"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    steps_per_epoch, workers = request.param
    return {"steps_per_epoch": steps_per_epoch, "num_workers": workers}


@pytest.mark.parametrize(("lanes", "journey"), JOURNEYS[:3])
def test_batch_at_gives_what_was_delivered_since_the_state_and_will_be(
    many_shards: Corpus, lanes: int, journey: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    run = Run(training(many_shards.list), lanes, journey, **options)
    for loader in run.ranks:
        goes_on = options["steps_per_epoch"] == 100
        wanted = [digest(loader.batch_at(run.states[-1][1] + n)) for n in range(2 * goes_on)]
        for (step, rank), batch in run.now.items():
            if rank == loader.rank and step >= run.first:
                assert digest(loader.batch_at(step)) == digest(batch)
        if run.first:
            early = f"step 0 of epoch 0 comes before step {run.first}.*load a checkpoint that was saved at step 0 or"
            with pytest.raises(uio.StateError, match=early):
                loader.batch_at(0)
        batches = iter(loader)
        assert [digest(next(batches)) for _ in wanted] == wanted


def test_replay_goes_on_from_the_last_state_before_the_step(many_shards: Corpus, options: dict[str, Any]) -> None:
    run = Run(training(many_shards.list), *JOURNEYS[0], **options)
    every = [state for *_, state in run.states]
    ranks = {(epoch, step): rank + 1 for epoch, step, rank in run.got}
    for (epoch, step, rank), batch in run.got.items():
        world = ranks[epoch, step]
        for asked in (world, None):
            assert digest(Replay(run.graph, every, step, rank, asked, epoch).batch()) == digest(batch)
    with pytest.raises(uio.StateError, match=f"step 0 of epoch {run.states[-1][0]} comes before step"):
        Replay(run.graph, every[-1:], 0, 0, None, None).batch()


def test_replay_says_which_state_it_needs_where_the_number_of_ranks_changed_and_back(many_shards: Corpus) -> None:
    run = Run(training(many_shards.list), 6, [(3, 2), (2, 2), (3, 2)])
    states = [state for _, _, state in run.states]
    ends = [states[1], states[-1]]  # both saved by 3 ranks, which began anew at step 4
    for step in (2, 5):
        told = rf"ranks changed at step 4 of epoch 0.* around step {step} .*name a state.*say --world-size"
        with pytest.raises(uio.StateError, match=told):
            Replay(run.graph, ends, step, 0, None, None)
    found = Replay(run.graph, [*ends, states[4]], 5, 0, None, None)
    assert (found.world_size, digest(found.batch())) == (3, digest(run.got[0, 5, 0]))


def test_a_range_is_of_the_trainer_s_steps(many_shards: Corpus, options: dict[str, Any]) -> None:
    state = Run(training(many_shards.list), 6, [(3, 1)], **options)
    for world in (1, 2):
        whole, loaders = state.loaders(world, state.state()), state.loaders(world, state.state())
        for plain, loader in zip(whole, loaders, strict=True):
            every = iter(plain)
            expected = {1: digest(next(every)), 2: digest(next(every))}
            loader.skip(range(0, 2))  # step 0 has passed
            assert digest(next(iter(loader))) == expected[2]
            assert digest(loader.batch_at(1)) == expected[1]
            assert digest(loader.batch_at(2)) == expected[2]


def test_a_count_that_is_passed_over_in_a_stream_takes_no_numbers(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    (loader,) = Run(graph, 6, [(1, 2)], steps_per_epoch=30).ranks
    loader.skip(4)
    batches = iter(loader)
    got = {step: next(batches) for step in range(2, 6)}
    assert [digest(loader.batch_at(step)) for step in got] == [digest(batch) for batch in got.values()]


@pytest.mark.parametrize(("lanes", "world"), [(4, 2), (6, 4), (7, 3), (5, 1)])
def test_what_follows_the_step_changes_with_the_batches_of_that_step_on_each_rank(lanes: int, world: int) -> None:
    items = [{"key": f"u{i}", "txt": "a" * (1 + i // lanes % 2)} for i in range(900)]
    texts = uio.from_iterable(items).sharding_filter().tokenize(lambda text: [1] * len(text))
    graph = texts.filter(length="tokens", max_length=uio.by_step({0: 1, 6: 2, 11: 1})).batch(2)
    place = {**OPTIONS, "lanes": lanes, "steps_per_epoch": 20}
    for rank in range(world):
        longest = [
            max(len(one["label"]) for one in batch) for batch in uio.Loader(graph, rank=rank, world_size=world, **place)
        ]
        assert [step for step, length in enumerate(longest) if length == 2] == [*range(6, 11)], rank


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_which_nothing_is_left_has_no_number_in_a_stream(workers: int) -> None:
    bad = (3, 7, 17, 21)
    items = [{"key": f"U{i}", "wav": b"RIFF" if i in bad else wav_bytes(tone(8000, i))} for i in range(30)]
    graph = uio.from_iterable(items).sharding_filter().decode_audio().batch(1).pad()
    for world in (1, 2):
        run = Run(graph, 4, [(world, 18 // world)], steps_per_epoch=100, num_workers=workers)
        assert not {f"U{i}" for i in bad} & {key for batch in run.now.values() for key in batch["keys"]}
        for (step, rank), batch in run.now.items():
            assert run.ranks[rank].batch_at(step)["keys"] == batch["keys"]
