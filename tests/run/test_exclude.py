"""``loader.exclude``: utterances left out from a step on, wherever a run is stopped, and on any ranks it goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import uio as run_uio
from contract import restored
from corpus import shards
from helpers_bad import ones
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_skip import ranks

import uio_pipes as uio
from uio_pipes.tools.reports.replay import Replay

LANES = 6
OPTIONS: dict[str, Any] = {"seed": 3, "lanes": LANES}
KEYS = [f"u{i}" for i in range(120)]


def texts() -> uio.Pipeline:
    lines = [{"key": key, "txt": "a" * (1 + i * 7 % 11)} for i, key in enumerate(KEYS)]
    pipeline = uio.from_iterable(lines).sharding_filter().tokenize(ones)
    return pipeline.shuffle(9).dynamic_batch(max_tokens=24)


def keys(batch: Any) -> list[str]:
    return [sample["key"] for sample in batch]


def some(batches: Iterator[Any], count: int) -> list[list[str]]:
    return [keys(batch) for _, batch in zip(range(count), batches, strict=False)]


def resumed(state: dict[str, str], **options: Any) -> uio.Loader:
    return restored(texts(), state, **{**OPTIONS, "uneven": "join", **options})


def meta(state: dict[str, str]) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(state["meta"])
    return saved


Legs = st.lists(
    st.tuples(st.integers(1, LANES), st.integers(0, 4), st.frozensets(st.sampled_from(KEYS), max_size=30)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(legs=Legs)
def test_stopped_anywhere_and_on_other_ranks_the_stream_is_the_same(legs: Any) -> None:
    """Each leg runs so many steps on so many ranks, then leaves out more."""
    lanes = [some(iter(one), 10**6) for one in ranks(texts(), LANES, **OPTIONS)]
    stood, out = [0] * LANES, frozenset[str]()
    state: dict[str, str] | None = None
    for world, count, more in [*legs, (1, 10**6, frozenset())]:
        if all(out.issuperset(batch) for of, at in zip(lanes, stood, strict=True) for batch in of[at:]):
            break  # nothing is due in this epoch
        states = []
        for rank in range(world):
            place: dict[str, Any] = {"rank": rank, "world_size": world, "uneven": "join"}
            loader = uio.Loader(texts(), **OPTIONS, **place) if state is None else resumed(state, **place)
            for number, batch in enumerate(loader if count else (), 1):
                due: list[str] = []
                while not due:  # a batch of which nothing is left is not delivered
                    k, lane = min((stood[i], i) for i in range(rank, LANES, world) if stood[i] < len(lanes[i]))
                    due, stood[lane] = [key for key in lanes[lane][k] if key not in out], k + 1
                assert keys(batch) == due
                if number == count:
                    break
            loader.exclude(more)
            states.append(loader.state_dict())
        state, out = uio.merge_states(states), out | more


def test_steps_before_and_after_can_be_made_again() -> None:
    loader = uio.Loader(texts(), **OPTIONS)
    batches = iter(loader)
    made, states = some(batches, 5), []
    for key in ("u20", "u40", "u60"):
        loader.exclude([key, made[1][0]])
        states.append(loader.state_dict())
        made += some(batches, 4)
    states.append(loader.state_dict())
    made += some(batches, 10**6)
    assert len(meta(states[-1])["excluded"]) == 3
    for number, state in enumerate(states):
        first, upto = min(5 + 4 * number, 17), min(9 + 4 * number, 17)
        again = resumed(state)
        assert [keys(again.batch_at(step)) for step in range(first, upto)] == made[first:upto]
    assert [keys(loader.batch_at(step)) for step in range(len(made))] == made
    assert some(iter(resumed(states[-1], num_workers=2, snapshot_every=3)), 10**6) == made[17:]


def test_later_epochs_are_without_them_and_earlier_ones_as_they_were() -> None:
    loader = uio.Loader(texts(), **OPTIONS)
    whole = some(iter(loader), 10**6)
    loader.exclude(KEYS[:30])
    loader.set_epoch(1)
    state = loader.state_dict()
    later = some(iter(loader), 10**6)
    assert {key for batch in later for key in batch} == set(KEYS[30:])
    assert some(iter(resumed(state)), 10**6) == later
    loader.set_epoch(0)
    assert [keys(loader.batch_at(step)) for step in range(3)] == [
        [key for key in batch if key not in KEYS[:30]] for batch in whole[:3]
    ], "an epoch that begins again is without them, too"


def test_a_stream_makes_up_for_batches_of_which_nothing_is_left() -> None:
    pipeline = uio.from_iterable([{"key": key, "txt": "a"} for key in KEYS]).sharding_filter().repeat().batch(2)
    loader = uio.Loader(pipeline, lanes=2, steps_per_epoch=40)
    batches = iter(loader)
    made = some(batches, 10)
    loader.exclude(KEYS[40:60])
    made += some(batches, 10**6)
    assert len(made) == 40
    assert {key for batch in made[10:] for key in batch}.isdisjoint(KEYS[40:60])
    assert [keys(loader.batch_at(step)) for step in range(40)] == made
    loader.set_epoch(1)
    again = restored(pipeline, loader.state_dict(), lanes=2, steps_per_epoch=40)
    assert some(iter(again), 50) == some(iter(loader), 50)


def test_a_list_names_utterances_by_shard_and_key(tmp_path: Path) -> None:
    first, second = (shards(tmp_path / name, [3, 3], seconds=(0.3, 0.4)) for name in "ab")
    assert first.keys == second.keys
    tars = sorted(map(str, tmp_path.rglob("*.tar")))
    pipeline = uio.from_shard_list(tars).decode_audio().batch(2).pad()
    entry = {"reason": "high_loss", "url": tars[0], "key": first.keys[1]}
    (tmp_path / "bad.jsonl").write_text(json.dumps(entry) + "\n")
    loader = uio.Loader(pipeline)
    loader.exclude(tmp_path / "bad.jsonl")
    state = loader.state_dict()
    left = [key for batch in loader for key in batch["keys"]]
    assert left == [key for number, key in enumerate([*first.keys, *second.keys]) if number != 1]
    again = restored(pipeline, state)
    again.exclude(str(tmp_path / "bad.jsonl"))
    assert again.state_dict() == state, "what is excluded already changes nothing"


def test_a_replay_wants_a_state_that_knows_them() -> None:
    loader = uio.Loader(texts(), **OPTIONS)
    batches = iter(loader)
    some(batches, 4)
    states = [loader.state_dict()]
    some(batches, 4)
    loader.exclude(["u3"])
    states.append(loader.state_dict())
    some(batches, 4)
    states.append(loader.state_dict())
    for of, step in ((states, 6), (states[:2], 10), (states[::2], 6)):
        assert keys(Replay(texts(), of, step, 0, None, None).batch()) == keys(loader.batch_at(step))
    with pytest.raises(uio.StateError, match="what is left out, changed at step 8 of epoch 0: name a state"):
        Replay(texts(), states[::2], 10, 0, None, None)


@pytest.mark.parametrize(("wrong", "error", "says"), [
    *((w, uio.PipelineError, "exclude: give keys of utterances, or the path of a list")
      for w in (5, [5], [""], b"u1", {"u1": 1}, [["u1"]])),
    ("u1", uio.ListError, r'there is no file u1; if it is the key .* write exclude\(\["u1"\]\)'),
    ("bad/u1", uio.ListError, "cannot read the quarantine file bad/u1"),
])  # fmt: skip
def test_what_is_no_key_and_no_list_is_refused(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        uio.Loader(texts(), **OPTIONS).exclude(wrong)


def test_the_command_shows_what_is_left_out_from_which_step_on(tmp_path: Path) -> None:
    loader = uio.Loader(texts(), **OPTIONS)
    some(iter(loader), 4)
    loader.exclude(KEYS[:12])
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    shown = run_uio("state", str(tmp_path / "state.json")).stdout
    assert "Excluded" in shown
    assert "u0, u1, u2" in shown
    told = json.loads(run_uio("state", str(tmp_path / "state.json"), "--json").stdout)
    assert [(one["step"], one["keys"]) for one in told["meta"]["excluded"]] == [(4, {"": KEYS[:12]})]
