"""Exact resume of graphs that nobody thought of: random stages, sizes, lanes and corpora with bad members."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from contract import Case, Record, State, check_cuts, check_stops, check_twice, counted, digest, record
from corpus import Corpus, shards
from helpers_bad import code_points
from hypothesis import HealthCheck, assume, given, note, reject, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.errors import ListError, NothingRead, TooManyFailures

Step = tuple[Any, ...]  # name of a method of Pipeline, arguments, keyword arguments

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Source:
    """A corpus by its name, and stages behind it."""

    corpus: str
    dealt: str  # "shuffle" or "resampled", if not in order
    steps: tuple[Step, ...] = ()

    def build(self, corpora: dict[str, Corpus]) -> uio.Pipeline:
        start = uio.from_raw_list if self.corpus in ("raw", "spoken", "bad_spoken") else uio.from_shard_list
        options: dict[str, Any] = {self.dealt: True} if self.dealt else {}
        return with_steps(start(corpora[self.corpus].list, **options), self.steps)


@dataclass(frozen=True)
class Nest:
    """Sources within a mix, any of which may be such a nest itself, and stages behind it."""

    several: str  # "mix" or "interleave"
    stop: Any
    sources: "tuple[Source | Nest, ...]"
    steps: tuple[Step, ...]

    def build(self, corpora: dict[str, Corpus]) -> uio.Pipeline:
        sources = {f"s{i}": source.build(corpora) for i, source in enumerate(self.sources)}
        return with_steps(getattr(uio, self.several)(sources, stop=self.stop), self.steps)


@dataclass(frozen=True)
class Graph:
    """A graph as it was drawn, short enough to be read in a failure; ``build`` makes the case."""

    source: Source | Nest
    steps: tuple[Step, ...]
    options: tuple[tuple[str, int], ...]

    def build(self, corpora: dict[str, Corpus]) -> Case:
        pipeline = with_steps(self.source.build(corpora), self.steps)
        endless = {"steps_per_epoch": 12} if pipeline._endless else {}
        return Case(pipeline, {**dict(self.options), **endless})


def with_steps(pipeline: uio.Pipeline, steps: tuple[Step, ...]) -> uio.Pipeline:
    for name, args, kwargs in steps:
        pipeline = getattr(pipeline, name)(*args, **kwargs)
    return pipeline


def not_ending_in_4(sample: uio.Sample) -> bool:
    return not sample["txt"].endswith("4")


def nothing(sample: uio.Sample) -> bool:
    return False


def renamed(sample: uio.Sample, rng: Any) -> uio.Sample:
    if sample["txt"].endswith("9"):
        raise RuntimeError("nine")
    sample["txt"] = f"{sample['txt']}{rng.integers(3)}"
    return sample


def spoken_by(sample: uio.Sample) -> uio.Sample:
    sample["speaker"] = sample.key[-1]
    return sample


def halved(sample: uio.Sample) -> uio.Sample:
    name = "feat" if "feat" in sample else "wav"
    sample[name] = sample[name] / 2
    return sample


def eventful(sample: uio.Sample) -> uio.Sample:
    sample["events"] = [{"start": n / 9, "end": n / 9 + 0.2, "text": sample["txt"]} for n in range(9)]
    return sample


def some(sample: uio.Sample, rng: Any) -> list[uio.Sample]:
    return [sample] * int(rng.integers(3))


def product(one: int, other: int) -> int:
    return one * other


def timed(sample: uio.Sample) -> uio.Sample:
    sample["timeline"] = Timeline.of(
        [Event(0.2 * n, 0.2 * n + 0.15, word, "A") for n, word in enumerate(sample["txt"])]
    )
    return sample


def quarter(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + 1


SIZES = st.integers(1, 30)
OF_SAMPLES = st.one_of(
    st.tuples(st.just("map"), st.just((renamed,)), st.just({})),
    st.tuples(st.just("map"), st.just((halved,)), st.just({"length": "same"})),
    st.tuples(st.just("filter"), st.just((not_ending_in_4,)), st.just({})),
    st.tuples(st.just("flat_map"), st.just((some,)), st.just({})),
    st.tuples(st.just("shuffle"), st.tuples(SIZES), st.just({})),
    st.tuples(st.just("sort"), st.tuples(SIZES), st.just({})),
)
JOINED = st.tuples(st.just("concat"), st.just(()), st.fixed_dictionaries({"max_seconds": st.sampled_from([0.5, 2.0])}))
MIXED = st.tuples(
    st.just("mixture"),
    st.sampled_from([((1, 3),), ((2, 2),)]),
    st.fixed_dictionaries(
        {"window": st.integers(3, 30), "utterances": st.sampled_from([(1, 1), (1, 3)])},
    ).flatmap(lambda kw: st.sampled_from([kw | {"pause": 0.1}, kw | {"overlap": (0, 1)}])),
)
WITHIN = st.lists(
    st.one_of(
        OF_SAMPLES,
        st.tuples(st.just("repeat"), st.tuples(st.sampled_from([None, 1, 2])), st.just({})),
        st.tuples(st.just("shuffle"), st.tuples(SIZES), st.just({})),
        st.tuples(st.sampled_from(["take", "skip"]), st.tuples(SIZES), st.just({})),
        st.just(("filter", (nothing,), {})),
    ),
    max_size=3,
).map(tuple)
DEALT = st.sampled_from(["", "shuffle", "resampled"])
BALANCE = st.tuples(st.just("balance"), st.just(("speaker",)), st.fixed_dictionaries({"power": st.floats(0, 1)}))
SPOKEN = st.sampled_from(["spoken", "bad_spoken"])
BALANCED = st.builds(Source, SPOKEN, st.sampled_from(["", "shuffle"]), st.tuples(BALANCE))
TIMED = ("map", (eventful,), {}), ("timeline", (), {"field": "events"})
PLAIN = st.one_of(
    st.builds(Source, st.sampled_from(["plain", "bad", "raw"]), DEALT, st.just(TIMED)),
    st.builds(Source, st.sampled_from(["plain", "gz", "bad", "bad_gz", "raw", "unequal"]), DEALT),
    st.builds(Source, SPOKEN, DEALT),
    BALANCED,
)
NESTS = st.recursive(
    st.one_of(st.builds(Source, st.sampled_from(["plain", "bad", "raw", "unequal"]), DEALT, WITHIN), BALANCED),
    lambda inner: st.builds(
        Nest,
        st.sampled_from(["mix", "interleave"]),
        st.sampled_from(["all", "first", "cycle", "endless"]),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
        WITHIN,
    ),
    max_leaves=4,
)
OF_LENGTHS = st.tuples(
    st.just("filter"),
    st.just(()),
    st.fixed_dictionaries({"min_frames": st.integers(0, 60), "max_frames": st.integers(70, 200)}),
)
OF_AUDIO = st.one_of(
    st.just(("resample", (6000,), {})),
    st.just(("speed_perturb", ([0.9, 1.0, 1.1],), {})),
    st.just(("tokenize", (code_points,), {})),
    st.just(("random_crop", (), {"max_seconds": 0.6})),
    JOINED,
    OF_LENGTHS,
    OF_SAMPLES,
)
OF_FEATURES = st.one_of(
    st.just(("spec_aug", (), {"max_t": 9, "max_f": 3})),
    st.just(("spec_sub", (), {})),
    st.just(("spec_trim", (), {})),
    st.just(("deltas", (), {"order": 1})),
    OF_LENGTHS,
    OF_SAMPLES,
)
ALIGNED = (("map", (timed,), {}), ("align", (code_points, 50.0), {"main": "A"}), ("delay", ([2],), {}))
FBANK = ("fbank", (), {"num_mel_bins": 6, "dither": 0.1})
ENDS = {"drop_last": st.booleans(), "min_batch_size": st.integers(1, 4)}
KNOWN_BUCKETS = st.fixed_dictionaries(
    {
        "bucket_boundaries": st.sampled_from([(60, 100), (80,), (200,)]),
        "max_frames": st.integers(100, 700),
        "max_wait": st.integers(1, 40),
    },
    optional=ENDS | {"quadratic": st.just(300)},
)
FOUND_BUCKETS = st.fixed_dictionaries(
    {"max_frames": st.integers(100, 700), "num_buckets": st.integers(1, 4)},
    optional=ENDS | {"max_wait": st.integers(1, 40)},
)
WINDOWS = st.fixed_dictionaries({"max_frames": st.integers(100, 700), "window": st.integers(4, 30)}, optional=ENDS)
PAIRS = st.fixed_dictionaries(
    {
        "num_buckets": st.sampled_from([(2, 2), (3, 1)]),
        "max_cost": st.integers(2_000, 90_000),
        "cost": st.just(product),
        "length": st.just(("frames", "frames")),
        "max_wait": st.integers(1, 40),
    },
    optional=ENDS,
)
PACKED = st.fixed_dictionaries(
    {"length": st.just(quarter), "window": st.integers(1, 9)},
    optional={"rows": st.integers(1, 3), "overflow": st.sampled_from(["drop", "alone"])},
)
PACKED_AUDIO = st.fixed_dictionaries(
    {"max_frames": st.sampled_from([80, 160, 240]), "window": st.integers(1, 9)},
    optional={"multiple_of": st.sampled_from([4, 8]), "fixed": st.booleans(), "overflow": st.just("drop")},
)
CHUNKS = st.fixed_dictionaries(
    {"seconds": st.sampled_from([0.4, 1.5]), "rows": st.integers(2, 4)},
    optional={"left": st.just(0.05), "right": st.just(0.03)},
)
BATCHES = st.one_of(
    st.tuples(st.just("chunks"), st.just(()), CHUNKS),
    st.tuples(st.just("pack"), st.just(()), PACKED_AUDIO),
    st.tuples(st.just("pack"), st.tuples(st.integers(40, 200)), PACKED),
    st.tuples(st.just("batch"), st.tuples(st.integers(1, 6)), st.just({})),
    st.tuples(st.just("dynamic_batch"), st.tuples(st.integers(60, 700)), st.fixed_dictionaries({}, optional=ENDS)),
    st.tuples(st.just("bucket_batch"), st.just(()), st.one_of(KNOWN_BUCKETS, FOUND_BUCKETS, WINDOWS, PAIRS)),
)
OF_CLASSES = st.tuples(
    st.just("balanced_batch"), st.just(("speaker",)), st.builds(dict, classes=st.integers(1, 4), each=st.integers(1, 3))
)


@st.composite
def graphs(draw: Callable[..., Any]) -> Graph:
    source = draw(st.one_of(PLAIN, st.builds(Source, st.just("features"), DEALT), NESTS))
    steps: list[Step] = []
    of_features = isinstance(source, Source) and source.corpus == "features"
    if not of_features:
        steps += draw(st.lists(OF_SAMPLES, max_size=1))
        steps.append(("decode_audio", (), {}))
        steps += draw(st.lists(OF_AUDIO, max_size=3))
        if draw(st.integers(0, 4)) == 4:
            steps += [("map", (spoken_by,), {}), draw(MIXED), ("tag", ({"txt": "mixed"},), {})]
        with_features = draw(st.booleans())
        steps += [FBANK] if with_features else []
    else:
        with_features = True
    coded = not with_features and draw(st.booleans())
    steps += ALIGNED if coded else draw(st.lists(OF_FEATURES if with_features else OF_AUDIO, max_size=3))
    if draw(st.booleans()) or of_features:
        classes = isinstance(source, Source) and source.corpus.endswith("spoken") and not source.steps
        classes = classes and source.dealt != "resampled"
        classes = classes and {"shuffle", "sort", "concat", "mixture"}.isdisjoint(name for name, *_ in steps)
        steps.append(draw(st.one_of(BATCHES, OF_CLASSES) if classes else BATCHES))
        if of_features and steps[-1][0] == "chunks":
            steps[-1][2]["shift"] = 0.01
        steps += [("pad", (), {})] if steps[-1][0] != "pack" and draw(st.booleans()) else []
    options = draw(st.fixed_dictionaries({"lanes": st.integers(1, 4), "snapshot_every": st.integers(1, 4)}))
    return Graph(source, tuple(steps), tuple(options.items()))


def _spoken(raw: Path, path: Path, without_text: tuple[int, ...] = ()) -> Corpus:
    """A raw list with speakers of 1, 1, 2, 4, 8, … utterances."""
    rows = [json.loads(line) | {"speaker": f"S{n.bit_length()}"} for n, line in enumerate(raw.read_text().splitlines())]
    for number in without_text:
        del rows[number]["txt"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return Corpus(path, ())


@pytest.fixture(scope="module")
def corpora(
    plain_corpus: Corpus,
    gz_corpus: Corpus,
    bad_corpus: Corpus,
    bad_gz_corpus: Corpus,
    raw_corpus: Corpus,
    feature_corpus: Corpus,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Corpus]:
    return {
        "plain": plain_corpus,
        "gz": gz_corpus,
        "bad": bad_corpus,
        "bad_gz": bad_gz_corpus,
        "raw": raw_corpus,
        "spoken": _spoken(raw_corpus.list, tmp_path_factory.mktemp("spoken") / "spoken.list"),
        "bad_spoken": _spoken(raw_corpus.list, tmp_path_factory.mktemp("spoken") / "bad.list", without_text=(4, 11)),
        "features": feature_corpus,
        "unequal": shards(tmp_path_factory.mktemp("unequal"), [1, 11], seconds=(0.3, 1.5)),  # a third lane has nothing
    }


def recorded_or_rejected(case: Case) -> Record:
    """Record the case. A graph in which all of one source fails, as a function takes no features, is rejected: an
    endless mix ends with an error then."""
    try:
        return record(case)
    except (TooManyFailures, ListError):
        reject()


@SETTINGS
@given(graph=graphs(), where=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_rest_and_counts_are_identical_wherever_it_stops(
    graph: Graph, where: list[float], corpora: dict[str, Corpus]
) -> None:
    recorded = recorded_or_rejected(graph.build(corpora))
    total = len(recorded.digests)
    note(f"{total} batches, {counted(recorded.stats)}")
    cuts = {round(w * total) for w in where}
    check_cuts(recorded, cuts)
    check_stops(recorded, cuts)
    check_twice(recorded, min(cuts))


@SETTINGS
@given(graph=graphs(), world=st.integers(1, 3), share=st.floats(0, 1))
def test_ranks_take_over_what_one_process_left(
    graph: Graph, world: int, share: float, corpora: dict[str, Corpus]
) -> None:
    case = graph.build(corpora)
    if case.options["lanes"] < world or "steps_per_epoch" in case.options:  # so many steps of each rank
        world = 1
    recorded = recorded_or_rejected(case)
    cut = round(share * len(recorded.digests))
    delivered = []
    for rank in range(world):
        options = {**case.options, "rank": rank, "world_size": world}
        loader = Case(case.pipeline, options).loader(recorded.states[cut])
        with contextlib.suppress(NothingRead):  # all that this rank has may fail
            delivered += [digest(batch) for batch in loader]
    assert sorted(delivered) == sorted(recorded.digests[cut:])


Placed = list[tuple[int, int, str]]  # epoch and step of each batch, and its digest


def in_steps(case: Case) -> tuple[Placed, list[State]]:
    """Two epochs undisturbed, with the state after each batch, and the first one before any."""
    loader = case.loader()
    batches: Placed = []
    states = [loader.state_dict()]
    for epoch in range(2):
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batches.append((epoch, step, digest(batch)))
            states.append(loader.state_dict())
    assume(loader.stats().failures == 0)  # a batch of which nothing is left is passed over as any other one
    assume(batches)
    return batches, states


@SETTINGS
@given(
    graph=graphs(),
    steps=st.one_of(st.none(), st.integers(1, 30)),
    at=st.integers(0, 60),
    count=st.integers(0, 40),
    first=st.integers(0, 20),
    wide=st.integers(1, 3),
)
def test_passing_over_leads_to_the_batches_that_would_have_come(
    graph: Graph, steps: int | None, at: int, count: int, first: int, wide: int, corpora: dict[str, Corpus]
) -> None:
    case = graph.build(corpora)
    case = Case(case.pipeline, {**case.options, **({"steps_per_epoch": steps} if steps else {})})
    try:
        batches, states = in_steps(case)
    except (TooManyFailures, ListError):
        reject()
    at %= len(batches)
    state = states[at]
    epoch, step, _ = batches[at]
    rest = [made for *_, made in batches[at:]]
    stream = "steps_per_epoch" in case.options
    own = {n: made for of, n, made in batches if of == epoch}
    note(f"{len(batches)} batches, epoch {epoch}, step {step}")

    def loaded() -> uio.Loader:
        loader = case.loader(state)
        loader.set_epoch(epoch)
        return loader

    loader = loaded()
    loader.skip(count)
    if stream or count <= len(own) - step:
        wanted = rest[count:] if stream else rest[count : len(own) - step]
        got = [digest(batch) for batch in islice(loader, len(wanted))]
        assert got == wanted[: len(got)]
        assert len(got) == min(len(wanted), (case.options.get("steps_per_epoch", 10**9)) - step)
    loader = loaded()
    over = range(first, first + count, wide)
    loader.skip(over)
    assert [digest(batch) for batch in loader] == [own[n] for n in own if n >= step and n not in over]
    own = {n: of for n, of in own.items() if n >= step}
    for n in {*list(own)[:: max(1, len(own) // 4)], max(own)}:
        assert digest(loaded().batch_at(n)) == own[n], n
