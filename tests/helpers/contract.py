"""The resume harness: what must hold for every stage, as functions that any test can run on any pipeline.

A case is a pipeline with the options of its loader. ``record`` runs it undisturbed and keeps the state after every
batch; ``check_cuts`` goes on from those states and compares. Everything delivered is compared by a digest of its bits.
"""

import copy
import hashlib
import importlib
import io
import json
import pickle
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import programs
from examples import EXAMPLES

import uio_pipes as uio
import uio_pipes.sources
import uio_pipes.stages
from uio_pipes.core.lane import Lane, StallGuard
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Flow, Op, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.run import empty_epochs

State = dict[str, str]


# What was delivered


def digest(value: Any) -> str:
    """A hash of every bit of a batch, a list of samples or a sample."""
    sha = hashlib.sha1()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.cpu().numpy()
    if isinstance(value, np.ndarray):
        sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, dict):
        for key in sorted(value):
            sha.update(f"{key}:".encode())
            _feed(sha, value[key])
    elif isinstance(value, (list, tuple)):
        sha.update(f"[{len(value)}".encode())
        for item in value:
            _feed(sha, item)
    else:
        sha.update(f"{type(value).__name__}{value!r};".encode())


def keys_of(batch: Any) -> list[str]:
    """Keys of a padded batch, a list of samples or a sample."""
    if isinstance(batch, dict):
        return list(batch["keys"]) if "keys" in batch else [batch["key"]]
    return [sample["key"] for sample in batch]


def carried(state: State) -> State:
    """``state`` through JSON and through ``torch.load(weights_only=True)``."""
    buffer = io.BytesIO()
    torch.save(json.loads(json.dumps(state)), buffer)
    buffer.seek(0)
    loaded: State = torch.load(buffer, weights_only=True)
    return loaded


def restored(pipeline: uio.Pipeline, state: State, **options: Any) -> uio.Loader:
    """A loader that goes on from a state which was carried elsewhere."""
    loader = uio.Loader(pipeline, **options)
    loader.load_state_dict(carried(state))
    return loader


# Loaders


@dataclass(frozen=True)
class Case:
    """A pipeline and the options of its loader."""

    pipeline: uio.Pipeline
    options: dict[str, Any] = field(default_factory=dict)

    def loader(self, state: State | None = None) -> uio.Loader:
        loader = uio.Loader(self.pipeline, **{"seed": 5, **self.options})
        if state is not None:
            loader.load_state_dict(carried(state))
        return loader


@dataclass(frozen=True)
class Record:
    """An undisturbed epoch 0: digests, the state after each batch (first: before any), after the end; and epoch 1."""

    case: Case
    digests: list[str]
    keys: list[str]
    states: list[State]
    end: State
    after: list[str]
    stats: uio.Stats


def record(case: Case) -> Record:
    """Run two epochs undisturbed."""
    loader = case.loader()
    digests, keys, states = [], [], [loader.state_dict()]
    for batch in loader:
        digests.append(digest(batch))
        keys += keys_of(batch)
        states.append(loader.state_dict())
    stats = loader.stats()
    end = loader.state_dict()
    return Record(case, digests, keys, states, end, [digest(b) for b in loader], stats)


def rest(case: Case, state: State) -> list[str]:
    """Digests of what comes after ``state``."""
    return [digest(batch) for batch in case.loader(state)]


def some_cuts(count: int, most: int = 6) -> list[int]:
    """Numbers of batches after which to stop: before the first, after the last, and up to ``most`` between them."""
    step = max(1, count // most)
    return sorted({0, 1, *range(2, count, step), count - 1, count} & set(range(count + 1)))


def check_cuts(recorded: Record, cuts: Iterable[int]) -> None:
    """After every cut, the rest of the epoch is what it was, and the epoch after it too at the borders."""
    case, total = recorded.case, len(recorded.digests)
    for cut in cuts:
        loader = case.loader(recorded.states[cut])
        assert [digest(b) for b in loader] == recorded.digests[cut:], f"rest after batch {cut} of {total}"
        assert counted(loader.stats()) == counted(recorded.stats), f"stats after batch {cut} of {total}"
        if cut in (0, total):
            assert loader.epoch == 0
            assert [digest(b) for b in loader] == recorded.after, f"epoch 1, resumed after batch {cut} of {total}"
            assert loader.epoch == 1
    ended = case.loader(recorded.end)
    assert [digest(b) for b in ended] == recorded.after, "epoch 1 from the state after the end of epoch 0"


def check_twice(recorded: Record, cut: int) -> None:
    """A state loaded and saved again without a batch in between, also with an iterator begun, is as good."""
    case = recorded.case
    loader = case.loader(recorded.states[cut])
    first = loader.state_dict()
    batches = iter(loader)
    second = loader.state_dict()
    del batches
    for state in (first, second):
        assert rest(case, state) == recorded.digests[cut:]
    again = case.loader(first).state_dict()
    assert rest(case, again) == recorded.digests[cut:]


def check_stops(recorded: Record, cuts: Iterable[int]) -> None:
    """Stopped after every cut, each time in the run that went on from the state before, it counts nothing twice."""
    case, total = recorded.case, len(recorded.digests)
    loader, made = case.loader(), list[str]()
    for cut in sorted({*cuts, total}):
        batches = iter(loader)
        made += [digest(batch) for batch in islice(batches, cut - len(made))]
        if cut < total:
            loader = case.loader(loader.state_dict())
    assert next(batches, None) is None
    assert made == recorded.digests
    assert counted(loader.stats()) == counted(recorded.stats)


def counted(stats: uio.Stats) -> dict[str, Any]:
    """Statistics but for the time waited, and what this process remembers."""
    return {
        k: v
        for k, v in vars(stats).items()
        if k not in ("waited", "waits", "bytes_read", "retries", "buffers", "remembered")
    }


def timeless(state: State) -> State:
    """``state`` without the time that its trainer waited, and without the checksums, which depend on it."""
    return {name: re.sub(r', "(waited_us": \d+|crc32": "\w+")', "", text) for name, text in state.items()}


# Fresh processes


def in_fresh_process(jobs: list[tuple[Case, State]], folder: Path) -> list[list[str]]:
    """The digests of the rest of each job, made by no fork of this process, and with another seed of hashes."""
    given, made = folder / "jobs.pickle", folder / "digests.json"
    given.write_bytes(pickle.dumps([(case.pipeline, case.options, json.dumps(state)) for case, state in jobs]))
    code = "import sys, contract; contract.run_jobs(sys.argv[1], sys.argv[2])"
    programs("-c", code, given, made)
    digests: list[list[str]] = json.loads(made.read_text())
    return digests


def run_jobs(given: str, made: str) -> None:
    """The other side of :func:`in_fresh_process`."""
    empty_epochs.FEWEST = 1 << 30  # as in conftest.py
    jobs = pickle.loads(Path(given).read_bytes())
    digests = [rest(Case(pipeline, options), json.loads(state)) for pipeline, options, state in jobs]
    Path(made).write_text(json.dumps(digests))


# Nodes


class Asking(StallGuard):
    """Asks the lane's nodes what they hold whenever something arrives, also while they are being restored."""

    node: uio.Node | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "arrived" and self.node is not None:
            self.node.remaining()
            self.node.memory()


def check_node(pipeline: uio.Pipeline, index: int, count: int) -> None:
    """A state is JSON, belongs to its moment, and leads back to it, in a new node and in the same.

    The nodes can be asked what they hold at any time.
    """

    def build() -> uio.Node:
        stall_guard = Asking()
        stall_guard.node = pipeline.build(Lane(Ledger(), index, count, seed=5, epoch=0, stall_guard=stall_guard))
        return stall_guard.node

    node = build()
    node.reset(None)
    states, texts, items = [], [], []
    while True:
        states.append(node.get_state())
        texts.append(json.dumps(states[-1]))
        item = next(_items(node), None)
        if item is None:
            break
        items.append(item)
    assert [json.dumps(state) for state in states] == texts, "a state changed after it was read"
    assert len(items) >= 2, "the example delivers too little to be stopped in between"
    for cut in some_cuts(len(items)):
        fresh = build()
        given = json.loads(texts[cut])
        fresh.reset(given)
        assert given == json.loads(texts[cut]), "reset changed the state that it was given"
        assert list(_items(fresh)) == items[cut:]
    cut = len(items) // 2
    node.reset(copy.deepcopy(states[cut]))
    assert list(_items(node)) == items[cut:], "the same node, reset in place"
    assert next(_items(node), None) is None, "StopIteration, again"


def _items(node: uio.Node) -> Iterator[str]:
    while True:
        try:
            item = node.next()
        except StopIteration:
            return
        yield digest(_finished(item))


def _finished(item: Any) -> Any:
    if isinstance(item, Sample):
        item.finish()
        return dict(item)
    return [_finished(i) for i in item] if isinstance(item, list) else item


# Stages

ROLES = (Source, Op, Flow)


def all_stages() -> list[type[Stage]]:
    """Every public stage of the modules in ``sources`` and ``stages``, whoever wrote them, found by its role."""
    for package in (uio_pipes.sources, uio_pipes.stages):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    homes = (f"{uio_pipes.sources.__name__}.", f"{uio_pipes.stages.__name__}.")
    found = [c for role in ROLES for c in _subclasses(role) if c.__module__.startswith(homes)]
    found = [c for c in found if not c.__name__.startswith("_") and hasattr(c, "name")]  # a base of others has none
    return sorted(set(found), key=lambda c: c.__name__)


def _subclasses(cls: type[Stage]) -> Iterator[type[Stage]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def example_of(stage: type[Stage], corpora: Iterable[uio.Pipeline]) -> uio.Pipeline:
    """The stage's example, on the first of ``corpora`` where the stage itself is in it."""
    assert stage in EXAMPLES, f"add `{stage.__name__}: lambda corpus: …` to EXAMPLES in tests/examples.py"
    for pipeline in corpora:
        example = EXAMPLES[stage](pipeline)
        if any(type(s) is stage for s in example.stages):
            return example
    raise AssertionError(f"the example of {stage.__name__} makes no graph with a {stage.__name__} in it")
