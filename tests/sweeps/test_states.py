"""States as a broken disk or an adversary would make them: one value after the other is put in another's place.

What can be told is refused by a ``StateError`` before the first batch. What cannot is another position that the lane
could be in: of such a value the run goes on from there, and no state could tell that it never was there.
"""

import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from contract import digest
from helpers_bad import code_points, replaced
from sweeps.sweep import Outcome, rows, trials

import uio_pipes as uio
from uio_pipes.base.hashing import pack

State = dict[str, str]
SECONDS = 60  # a trial that takes longer hangs
PUT = (None, True, -1, 0, 1, 3, 10**9, 1 << 31, 10**30, 1.5, "", "x", "H!!!", [], [1], [[]] * 3, {}, {"source": 3})

# What a lane could be at as well as where it was, by the name of the field: nothing in a state contradicts it.
POSITIONS = {
    "position": "another position within its bounds",
    "given": "another draw",
    "left": "another number within its bounds",
    "gap": "another number within its bounds",
    "round": "another round",
    "pass": "another pass",
    "window": "a window that ends elsewhere",
    "held": "others held, in another order",
    "exhausted": "an end that is asked for again",
    "k": "a batch further on",
    "ended": "an epoch that is over",
    "epoch": "another epoch",
    "delivered": "another result of the item",
    "passed": "another item",
    "at": "another place in the shard",
    "waiting": "others waiting for boundaries",
    "boundaries": "other boundaries that could have been found",
    "empty": "another source without data",
    "sources": "another source at its start",
}


def graphs(pipelines: list[uio.Pipeline]) -> dict[str, Callable[[], uio.Pipeline]]:
    tar, raw, kaldi, shar, cuts, index, touch, *others = pipelines
    return {
        **{each.stages[0].name: lambda each=each: each.shuffle(4).batch(3) for each in (cuts, *others)},  # type: ignore[misc]
        "tar": lambda: tar.decode_audio().shuffle(6).sort(4).dynamic_batch(max_frames=300).pad(),
        "raw list": lambda: raw.decode_audio().shuffle(5).bucket_batch([80], [2, 2]).pad(),
        "kaldi": lambda: kaldi.decode_audio().sort(5).bucket_batch(max_frames=300, num_buckets=3).pad(),
        "pairs": lambda: (
            raw.decode_audio().tokenize(code_points).bucket_batch(num_buckets=(2, 2), max_frames=300).pad()
        ),
        "shar": lambda: shar.segments(of="recording", cut_seconds=(0.2, 0.6)).decode_audio().shuffle(4).batch(2),
        "tar index": lambda: index.decode_audio().bucket_batch(max_frames=300, window=6).pad(),
        "indexed": lambda: touch.decode_audio().skip(1).concat(max_seconds=2).take(9).repeat(2).batch(2).pad(),
        "mix": lambda: uio.mix(
            {"a": tar.decode_audio().shuffle(4), "b": index.decode_audio(), "c": raw.decode_audio().take(2)},
            stop="cycle",
        ).batch(3),
        "interleave": lambda: uio.interleave([touch.decode_audio().sort(3), kaldi.decode_audio()]).shuffle(5).batch(3),
    }


def saved(graph: uio.Pipeline, batches: int) -> State:
    loader = uio.Loader(graph, lanes=2)
    for _ in zip(range(batches), loader, strict=False):
        pass
    return loader.state_dict()


def rest(graph: uio.Pipeline, state: State) -> list[str]:
    """Digests of what comes after ``state``. Raises: StateError, before the first batch."""
    loader, made = uio.Loader(graph, lanes=2), []
    loader.load_state_dict(state)
    try:
        for batch in loader:
            made.append(digest(batch))
    except uio.StateError:
        assert not made, "a StateError in the middle"
        raise
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for name, each in inner:
        yield from places(each, (*path, name))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def another(value: Any, draw: random.Random) -> Any:
    """Something else for a value: anything, or what is like it."""
    like: list[Any] = []
    if isinstance(value, int):
        like = [value + 1, value - 1, value + 2, -value, value ^ 1 << draw.randrange(40)]
    elif isinstance(value, str) and value[:1] in ("H", "I"):
        numbers = [draw.randrange(70) for _ in range(draw.randrange(1, 9))]
        like = [value[:-1], value + "A", pack(numbers), pack([*numbers, numbers[0]]), pack(range(5000)), pack([])]
    elif isinstance(value, str):
        like = [value + "x", value[1:]]
    elif isinstance(value, list):
        like = [value[::-1], value * 2, [*value, 0], value[1:]]
    elif isinstance(value, dict) and value:
        like = [{k: v for k, v in value.items() if k != draw.choice(list(value))}]
    return draw.choice([draw.choice(like), draw.choice(PUT)] if like else PUT)


@contextmanager
def not_longer_than(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("the forged state hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def forged(thing: str, graph: uio.Pipeline, state: State, expected: list[str], seed: str) -> Outcome | None:
    """One value put in another's place; None if that is another position that the lane could be in."""
    draw = random.Random(seed)
    key = draw.choice(sorted(state))
    parsed = json.loads(state[key])
    path = draw.choice(list(places(parsed)))
    new = another(at(parsed, path), draw)
    names = [name for name in path if isinstance(name, str) and not name.isdigit()]
    damage = f"{names[-1] if names else 'all'} of {'meta' if key == 'meta' else 'a lane'} replaced"
    where = f"{seed}: {key} {path} = {new!r:.60}"
    try:
        with not_longer_than(SECONDS):
            got = rest(graph, state | {key: json.dumps(replaced(parsed, path, new))})
    except uio.StateError:
        return Outcome(thing, damage, "reported", ("StateError",), where)
    except uio.TooManyFailures:  # as the forged count says
        return Outcome(thing, damage, "reported", ("TooManyFailures",), where)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} instead of a StateError: {where}") from error
    if got == expected:
        return Outcome(thing, damage, "unchanged", (), where)
    legal = bool(names) and names[-1] in POSITIONS and type(new) is type(at(parsed, path))
    return None if legal else Outcome(thing, damage, "silent", (), where)


def sweep(made: dict[str, Callable[[], uio.Pipeline]], count: int, seed: int) -> Iterator[Outcome]:
    """``count`` trials with each graph, of states from its beginning, its middle and its end."""
    for name, make in made.items():
        graph = make()
        for batches in (1, 4, 9):
            state = saved(graph, batches)
            expected = rest(graph, state)
            for trial in range(count // 3):
                seeds = f"{seed}/{name}/{batches}/{trial}"
                if (outcome := forged(f"a state: {name}", graph, state, expected, seeds)) is not None:
                    yield outcome


def test_forged_states_are_refused_or_are_other_positions(pipelines: list[uio.Pipeline]) -> None:
    outcomes = list(sweep(graphs(pipelines), trials(60), seed=1))
    silent = {at: row.silent for at, row in rows(outcomes).items() if row.silent}
    assert silent == {}
    refused = [o for o in outcomes if o.reasons == ("StateError",)]
    assert len(refused) > len(outcomes) // 2
