"""One numbering of steps: whatever names a batch by its step means the one that the trainer got at that step."""

import json
from typing import Any

import pytest
from contract import carried, digest
from corpus import Corpus
from journeys import training
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.reports.steps import seen, steps
from uio_pipes.run.replay import Replay

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
        step = 0
        for world, count in journey:
            self.ranks = self.loaders(world, state)
            iterators = [iter(loader) for loader in self.ranks]
            for _ in range(count):
                if options.get("steps_per_epoch") == step:
                    assert [next(one, None) for one in iterators] == [None] * world
                    iterators, step = [iter(loader) for loader in self.ranks], 0
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


@pytest.fixture(params=[(None, 0), (100, 0), (3, 0), (3, 2)], ids=["all data", "one epoch", "steps", "steps, workers"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    steps_per_epoch, workers = request.param
    return {"steps_per_epoch": steps_per_epoch, "num_workers": workers}


@pytest.mark.parametrize(("lanes", "journey"), JOURNEYS[:3])
def test_batch_at_gives_what_was_delivered_and_will_be(
    many_shards: Corpus, lanes: int, journey: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    run = Run(training(many_shards.list), lanes, journey, **options)
    before = dict(run.now)
    for loader in run.ranks:
        goes_on = options["steps_per_epoch"] == 100
        wanted = [digest(loader.batch_at(run.states[-1][1] + n)) for n in range(2 * goes_on)]
        for step, rank in before:
            if rank == loader.rank:
                assert digest(loader.batch_at(step)) == digest(before[step, rank])
        batches = iter(loader)
        assert [digest(next(batches)) for _ in wanted] == wanted


def test_it_is_known_in_a_state_that_any_ranks_load(many_shards: Corpus, options: dict[str, Any]) -> None:
    run = Run(training(many_shards.list), *JOURNEYS[0], **options)
    for world in (1, 2, 4):
        for loader in run.loaders(world, run.state()):
            for step, rank in run.now:
                if rank == loader.rank:
                    assert digest(loader.batch_at(step)) == digest(run.now[step, rank])
    (alone,) = run.loaders(1, run.state())
    if options["steps_per_epoch"] is None:
        with pytest.raises(uio.PipelineError, match="step 0 of epoch 0 was made by 3 ranks, so rank 3 had no batch"):
            run.loaders(4, run.state())[3].batch_at(0)
    alone.skip(2)
    next(iter(alone))
    assert digest(alone.batch_at(0)) == digest(run.now[0, 0])


@pytest.mark.parametrize(("lanes", "journey"), JOURNEYS)
def test_steps_and_seen_by_plan(
    many_shards: Corpus, lanes: int, journey: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    run = Run(training(many_shards.list), lanes, journey, **options)
    epoch, made, state = run.states[-1]
    planned = {(one.step, one.rank): one for one in steps(run.graph, state, last=made - 1)}
    assert {place: sorted(one.keys) for place, one in planned.items()} == {
        place: sorted(batch["keys"]) for place, batch in run.now.items()
    }
    assert all(one.before and one.epoch == epoch for one in planned.values())
    for (step, rank), batch in run.now.items():
        found = seen(run.graph, state, None, batch["keys"][:1], last=made - 1)
        assert (step, rank) in [(one.step, one.rank) for one in found]
    coming = {(one.step, one.rank): one for one in steps(run.graph, state, 2, made, made)}
    for loader in run.loaders(2, state):
        batch = loader.batch_at(made)
        assert sorted(coming[made, loader.rank].keys) == sorted(batch["keys"])


def test_replay_takes_the_ranks_that_made_the_step_from_the_states(
    many_shards: Corpus, options: dict[str, Any]
) -> None:
    run = Run(training(many_shards.list), *JOURNEYS[0], **options)
    states = [state for *_, state in run.states]
    for kept in (states, states[1::2], states[-1:]):
        for (epoch, step, rank), batch in run.got.items():
            if options["steps_per_epoch"] is None or any(json.loads(one["meta"])["epoch"] == epoch for one in kept):
                assert digest(Replay(run.graph, kept, step, rank, None, epoch).batch()) == digest(batch)


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
    to_come = list(steps(graph, loader.state_dict(), last=4))
    assert [one.step for one in to_come if one.over] == [2] * 4
    batches = iter(loader)
    got = {step: next(batches) for step in range(2, 6)}
    assert [sorted(one.keys) for one in to_come if not one.over][2:] == [sorted(got[n]["keys"]) for n in (2, 3, 4)]
    for one in (loader, Run(graph, 6, [(1, 0)], steps_per_epoch=30).loaders(1, loader.state_dict())[0]):
        assert [digest(one.batch_at(step)) for step in got] == [digest(batch) for batch in got.values()]
    planned = {one.step: sorted(one.keys) for one in steps(graph, loader.state_dict(), first=2, last=5)}
    assert planned == {step: sorted(batch["keys"]) for step, batch in got.items()}


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


def test_a_state_of_an_earlier_version_does_not_know_how_many_ranks_there_were(many_shards: Corpus) -> None:
    run = Run(training(many_shards.list), 6, [(3, 2)], steps_per_epoch=3)
    state = {name: json.loads(text) for name, text in run.state().items()}
    del state["meta"]["stretches"]
    old = {name: json.dumps(text) for name, text in state.items()}
    for loader in run.loaders(3, old):
        for step, rank in run.now:
            if rank == loader.rank:
                assert digest(loader.batch_at(step)) == digest(run.now[step, rank])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_which_nothing_is_left_has_no_number_in_a_stream(workers: int) -> None:
    bad = (3, 7, 17, 21)
    items = [{"key": f"U{i}", "wav": b"RIFF" if i in bad else wav_bytes(tone(8000, i))} for i in range(30)]
    graph = uio.from_iterable(items).sharding_filter().decode_audio().batch(1).pad()
    run = Run(graph, 4, [(1, 6), (2, 5), (1, 6), (4, 3)], steps_per_epoch=100, num_workers=workers)
    keys = {place: batch["keys"] for place, batch in run.now.items()}
    for world in (1, 4):
        for loader in run.loaders(world, run.state()):
            assert all(
                loader.batch_at(step)["keys"] == got for (step, rank), got in keys.items() if rank == loader.rank
            )
    planned = {(one.step, one.rank): one.keys for one in steps(graph, run.state(), last=19)}
    assert {place: planned[place] for place in keys} == keys
    loader = run.ranks[0]
    loader.set_epoch(1)
    assert "lost" not in "".join(loader.state_dict().values())


@pytest.mark.parametrize(
    "forged",
    [
        {"stretches": []},
        {"stretches": [[0]]},
        {"stretches": [[0, 0]]},
        {"stretches": [[4, 1], [2, 1]]},
        {"stretches": [[0, 1, 2]]},
        {"places": [[0, 0, 0]]},
        {"places": [[0, 0, 0, -1]]},
        {"lost": [3]},
    ],
    ids=str,
)
def test_a_forged_record_is_refused(many_shards: Corpus, forged: dict[str, Any]) -> None:
    run = Run(training(many_shards.list), 6, [(2, 1)])
    state = run.state()
    key = "meta" if "stretches" in forged else "lane_000000"
    with pytest.raises(uio.StateError, match=next(iter(forged))):
        run.loaders(1, state | {key: json.dumps(json.loads(state[key]) | forged)})
