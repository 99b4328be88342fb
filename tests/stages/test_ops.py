"""What must hold for every Op, found by its role, on the utterances that come to it in its example."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from contract import all_stages, digest, example_of

import uio_pipes as uio
from uio_pipes.audio.length import Plan, measure
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import Sample

OPS = {stage.__name__: stage for stage in all_stages() if issubclass(stage, Op)}


def twice(sample: Sample) -> Sample:
    sample["wav"] = torch.cat([sample["wav"], 0.5 * sample["wav"]])
    return sample


OTHERWISE: dict[str, Callable[[uio.Pipeline, list[str]], uio.Pipeline]] = {  # what work on more, or in another way, too
    "AddNoise to parts": lambda audio, clips: audio.add_noise(clips, clips=(1, 3), part=(0.2, 0.9)),
    "AddNoise, read again": lambda audio, clips: audio.add_noise(clips, cache_mb=0),
    "Mono": lambda audio, _: audio.map(twice).mono(),
    "NormalizeText": lambda audio, _: audio.normalize_text(lambda text: f"{text}!"),
    "RandomCrop of features": lambda audio, _: audio.fbank(8).random_crop(max_frames=30),
    "Resample": lambda audio, _: audio.resample(11_025),
    "Reverberate by computed rooms": lambda audio, _: audio.reverberate(rt60=(0.1, 0.4)),
    "SpeedPerturb, much": lambda audio, _: audio.speed_perturb([1 / 3, 2.0]),
}
BOUNDED = {"SpecTrim"}  # its plan is an upper bound, of what is shorter than three times max_t; all others are exact


class Given(uio.Node):
    """Gives these utterances."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples

    def start(self) -> None:
        self.left = list(self.samples)

    def next(self) -> Sample:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


class Made(NamedTuple):
    """What an Op made of an utterance: the fields, what was planned, and whether it drew anything."""

    fields: dict[str, Any]
    planned: Plan | None
    drew: bool


@dataclass(frozen=True)
class Case:
    """An Op, and utterances that come to it, all computed."""

    name: str
    op: Op
    samples: list[Sample]

    def made(self, samples: Sequence[Sample] | None = None, epoch: int = 0, item: int = 0) -> dict[str, Made]:
        """What it makes of utterances, in an epoch or of items ``item`` further on in their list, by their keys."""
        lane = Lane(Ledger(), seed=5, epoch=epoch)
        given = [
            Sample(dict(s.fields), s.origin._replace(item=s.origin.item + item), lane.run_key, Chain(), s.url)
            for s in (self.samples if samples is None else samples)
        ]
        node = self.op.build(Given(given), lane, Site(self.op.name, 0))
        node.reset()
        made = {}
        for sample in node:
            planned = sample.planned()
            sample.finish()
            made[sample.key] = Made(sample.fields, planned, sample.has_drawn)
        return made


@pytest.fixture(scope="module", params=OPS | OTHERWISE)
def case(request: pytest.FixtureRequest, tar: uio.Pipeline) -> Case:
    name = request.param
    if name in OTHERWISE:
        stages = OTHERWISE[name](tar.decode_audio(), list(tar.stages[0].paths)).stages
        at = len(stages) - 1
    else:
        stages = example_of(OPS[name], [tar]).stages
        at = [type(stage) for stage in stages].index(OPS[name])
    node = uio.Pipeline(stages[:at]).take(8).build(Lane(Ledger(), seed=5))
    node.reset()
    samples = list(node)
    for sample in samples:
        sample.finish()
    return Case(name, stages[at], samples)


def amount(plan: Plan | None) -> float:
    """Its frames; of audio, its seconds."""
    assert plan is not None
    return plan.samples / plan.sample_rate if plan.frames is None else plan.frames


def each(fields: dict[str, Any]) -> dict[str, str]:
    return {name: digest(value) for name, value in fields.items()}


def bits(made: dict[str, Made]) -> dict[str, dict[str, str]]:
    return {key: each(one.fields) for key, one in made.items()}


def test_what_is_planned_is_what_comes(case: Case) -> None:
    for one in case.made().values():
        planned, real = amount(one.planned), amount(measure(one.fields))
        assert planned == real or (planned > real and case.name in BOUNDED), "if it is a bound, put it into BOUNDED"


def test_draws_belong_to_epoch_and_utterance_whatever_came_before_it(case: Case) -> None:
    made = case.made()
    first = bits(made)
    assert len(first) > 2
    rest = bits(case.made(case.samples[::-2]))
    assert rest == {key: first[key] for key in rest}
    assert len(rest) > 1
    drew = any(one.drew for one in made.values())
    assert (bits(case.made(epoch=1)) != first) is drew
    assert (bits(case.made(item=1)) != first) is drew


def test_only_the_fields_that_it_names_change_and_nothing_that_it_is_given(case: Case) -> None:
    before = {sample.key: each(sample.fields) for sample in case.samples}
    made = case.made()
    assert {sample.key: each(sample.fields) for sample in case.samples} == before
    changed = {name for key, one in made.items() for name, _ in each(one.fields).items() ^ before[key].items()}
    moved = set[str]() if case.op.moves is None else {"timeline"}
    assert changed <= {*case.op.writes} | moved
    assert changed or not case.op.writes, "its example changes nothing"


def test_an_op_that_is_added_needs_an_example(tar: uio.Pipeline) -> None:
    class Added(Op):
        name: ClassVar[str] = "added"

    with pytest.raises(AssertionError, match=r"add `Added: lambda corpus: …` to EXAMPLES in tests/examples\.py"):
        example_of(Added, [tar])
