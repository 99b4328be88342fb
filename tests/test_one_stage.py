"""A new stage is one file, and one line that names it: everything else works for it without being told."""

import importlib
import pickle
import pydoc
from pathlib import Path
from typing import Any

import pytest
from contract import Case, check_cuts, check_node, check_twice, record
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.pipeline import functional
from uio_pipes.reports.bench import bench
from uio_pipes.reports.simulate import simulate

GAIN = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.core.per_utterance import PerUtterance


@dataclass(frozen=True)
class Gain(PerUtterance):
    """Make each utterance louder or softer by a random gain.

    Args:
        most: largest gain in dB, above 0. Default: 6.0.
    """

    name: ClassVar[str] = "gain"
    reads: ClassVar[frozenset[str]] = frozenset(["wav"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    most: float = 6.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.most > 0, self.name, "most must be above 0 dB", self.most, "6 is usual")

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["wav"] = sample.fields["wav"] * 10 ** (draws.uniform(-self.most, self.most) / 20)
'''

BACKWARDS = '''
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage


@dataclass(frozen=True)
class Backwards(Stage):
    """Collect utterances, give the last one first, and begin again.

    Args:
        most: how many utterances to collect, above 0. Default: 4.
    """

    name: ClassVar[str] = "backwards"

    most: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.most > 0, self.name, "most must be above 0", self.most, "4 is usual")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _BackwardsNode(source, lane, self, site)


class _BackwardsNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Backwards, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.most = stage.most

    def bounds(self) -> tuple[int, int]:
        return self.most, self.most

    def order(self) -> Iterable[int]:
        return self.collected

    def rebuild(self, order: list[int]) -> None:
        self.collected = order

    def next(self) -> Sample:
        while not self.collected and not self.exhausted:
            self._collect()
        if not self.collected:
            raise StopIteration
        return self.release(self.collected.pop())

    def _collect(self) -> None:
        try:
            while len(self.collected) < self.most:
                number, item = self.pull()
                self.hold(number, item)
                self.collected.append(number)
        except StopIteration:
            pass
'''

NEW = {"gain": ("Gain", GAIN), "backwards": ("Backwards", BACKWARDS)}


@pytest.fixture(params=NEW)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def graph(name: str, raw_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> uio.Pipeline:
    """A pipeline with the new stage, whose file is written here, and for which one line is added."""
    stage, text = NEW[name]
    (tmp_path / f"new_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    made = getattr(importlib.import_module(f"new_{name}"), stage)
    monkeypatch.setattr(uio.Pipeline, name, functional(made), raising=False)  # the one line
    audio: Any = uio.from_raw_list(raw_corpus.list, shuffle=True).decode_audio()
    pipeline: uio.Pipeline = getattr(audio, name)(3).fbank(num_mel_bins=8).shuffle(5).batch(3).pad()
    return pipeline


def test_it_is_described_with_its_arguments_and_fails_by_its_rule(name: str, graph: uio.Pipeline) -> None:
    assert f"─ {name}(3)" in str(graph)
    assert f"{name}(most=3)" in graph.fingerprint()
    shown = pydoc.plain(pydoc.render_doc(getattr(uio.Pipeline, name)))
    assert f"{name}(self, most: " in shown
    assert "Args:" in shown
    audio: Any = uio.from_raw_list("none.list")
    with pytest.raises(uio.PipelineError, match=f"{name}: most must be above 0"):
        getattr(audio, name)(0)
    with pytest.raises(
        uio.PipelineError, match=f"{name} works on samples, but what comes out of list_files is an item"
    ):
        getattr(uio.list_files("none.list"), name)()
    with pytest.raises(uio.PipelineError, match="it takes most"):
        getattr(audio, name)(least=1)


def test_it_resumes_after_every_batch_and_in_the_middle_of_its_buffer(graph: uio.Pipeline) -> None:
    for options in ({}, {"lanes": 3, "snapshot_every": 3}):
        recorded = record(Case(pickle.loads(pickle.dumps(graph)), options))
        assert recorded.after != recorded.digests
        check_cuts(recorded, range(len(recorded.digests) + 1))
        check_twice(recorded, len(recorded.digests) // 2)
    check_node(uio.Pipeline(graph.stages[:-3]), 0, 1)


def test_it_is_counted_planned_timed_and_seen(name: str, graph: uio.Pipeline) -> None:
    loader = uio.Loader(graph, seed=5)
    batches = list(loader)
    assert len(loader) == len(batches)
    planned = simulate(graph, seed=5)
    assert planned.padded[0].tolist() == [b["feats"].shape[0] * b["feats"].shape[1] for b in batches]
    assert name in {row.stage for row in bench(graph, seconds=0.1).rows}
    assert f"{name}(3)" in str(graph.peek())
