"""Planned epochs: the same batches as in a run of them, and ``len(loader)``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from corpus import Corpus
from helpers_bad import code_points

import uio_pipes as uio
from uio_pipes.core.roles import SourceNode
from uio_pipes.core.stage import Node
from uio_pipes.run.planning import plan_lanes
from uio_pipes.tools.reports.simulate import simulate


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw list with `duration`."""
    root = tmp_path_factory.mktemp("timed")
    raw = corpus.raw_list(root, 40)
    lines = []
    for text in raw.list.read_text().splitlines():
        line = json.loads(text)
        line.pop("start", None)
        line.pop("end", None)
        size = Path(line["wav"]).stat().st_size
        lines.append(json.dumps(line | {"duration": (size - 44) / 16000}))
    (root / "timed.list").write_text("\n".join(lines) + "\n")
    return root / "timed.list"


def by_frames(pipeline: uio.Pipeline) -> uio.Pipeline:
    labelled = pipeline.decode_audio().speed_perturb().tokenize(code_points).fbank(num_mel_bins=8)
    return labelled.filter(min_frames=60, max_frames=300).shuffle(7).sort(5).dynamic_batch(700).pad()


def in_buckets(pipeline: uio.Pipeline) -> uio.Pipeline:
    return pipeline.decode_audio().shuffle(5).bucket_batch([100, 200], max_frames=700, max_wait=12).pad()


def tokens_counted(pipeline: uio.Pipeline) -> uio.Pipeline:
    labelled = pipeline.decode_audio().normalize_text(str.upper).tokenize(code_points)
    return (
        labelled.fbank(num_mel_bins=8).filter(token_min_length=2).ctc_filter(lambda frames: frames // 4).batch(3).pad()
    )


def short_texts(pipeline: uio.Pipeline) -> uio.Pipeline:
    return pipeline.decode_audio().filter(lambda s: s["txt"][-1] in "1234").batch(3, drop_last=True).pad()


GRAPHS = [by_frames, in_buckets, short_texts, tokens_counted]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
@pytest.mark.parametrize(("world", "lanes"), [(1, 1), (3, 3), (2, 5)])
def test_len_is_the_number_of_batches_in_every_epoch(
    graph: Callable[[uio.Pipeline], uio.Pipeline], timed: Path, world: int, lanes: int
) -> None:
    pipeline = graph(uio.from_raw_list(timed, shuffle=True))
    for rank in range(world):
        loader = uio.Loader(pipeline, rank=rank, world_size=world, lanes=lanes, seed=3)
        for epoch in range(3):
            loader.set_epoch(epoch)
            assert len(loader) == sum(1 for _ in loader), f"epoch {epoch}"


def test_len_opens_no_audio(timed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [json.loads(line) | {"wav": "/nowhere.wav"} for line in timed.read_text().splitlines()]
    (tmp_path / "far.list").write_text("\n".join(map(json.dumps, lines)))
    near, far = (uio.Loader(by_frames(uio.from_raw_list(p)), lanes=2) for p in (timed, tmp_path / "far.list"))
    assert len(near) == len(far) == sum(1 for _ in near)


def test_a_plan_takes_no_states(timed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Node]()
    monkeypatch.setattr(SourceNode, "get_state", lambda node: asked.append(node) or {})
    (plan,) = plan_lanes(by_frames(uio.from_raw_list(timed)), 1, 0, 0)
    assert (sum(plan.counts) > 0, asked) == (True, [])


def test_len_in_the_middle_of_an_epoch_disturbs_nothing(timed: Path) -> None:
    pipeline = by_frames(uio.from_raw_list(timed, shuffle=True))
    expected = [b["keys"] for b in uio.Loader(pipeline, lanes=3)]
    loader, got, lengths = uio.Loader(pipeline, lanes=3), [], set()
    for batch in loader:
        got.append(batch["keys"])
        before = loader.state_dict()
        lengths.add(len(loader))
        assert loader.state_dict() == before
    assert got == expected
    assert lengths == {len(expected)}


def test_len_of_a_restored_epoch_is_that_of_the_whole(timed: Path) -> None:
    pipeline = by_frames(uio.from_raw_list(timed, shuffle=True))
    loader = uio.Loader(pipeline, lanes=4, seed=1)
    loader.set_epoch(2)
    batches = iter(loader)
    next(batches)
    restored = uio.Loader(pipeline, lanes=4, seed=1, rank=0, world_size=1, num_workers=0)
    assert len(restored) != 0
    restored.load_state_dict(loader.state_dict())
    assert len(restored) == len(loader) == 1 + sum(1 for _ in restored)


def test_where_only_running_tells_the_error_names_the_index(plain_corpus: Corpus, raw_corpus: Corpus) -> None:
    shards, raw = uio.from_shard_list(plain_corpus.list), uio.from_raw_list(raw_corpus.list)
    for pipeline, why in [
        (by_frames(shards), "shards"),
        (by_frames(raw), "duration"),
        (by_frames(raw.repeat()), "no end"),
        (raw.decode_audio().filter(lambda s: s["wav"].shape[1] > 9).batch(2), "decode_audio has to run"),
    ]:
        loader = uio.Loader(pipeline)
        with pytest.raises(TypeError, match=rf"not known beforehand: .*{why}.*uio index"):
            len(loader)
        assert loader, "a loader without a length is not empty"


def test_mixes_of_batches_and_functions_behind_them(timed: Path) -> None:
    parts = [uio.from_raw_list(timed, shuffle=True).decode_audio().dynamic_batch(n).pad() for n in (500, 900)]
    pipeline = uio.mix(parts, stop="cycle").map(lambda b: b | {"n": len(b["keys"])}).take(30)
    loader = uio.Loader(pipeline, lanes=2)
    assert len(loader) == sum(b["n"] > 0 for b in loader)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_the_plan_of_shards_is_what_a_run_delivers(
    graph: Callable[[uio.Pipeline], uio.Pipeline], bad_corpus: Corpus
) -> None:
    pipeline = graph(uio.from_shard_list(bad_corpus.list, shuffle=True))
    loader = uio.Loader(pipeline, lanes=3, seed=5)
    run: dict[int, list[int]] = {}
    for batch in loader:
        run.setdefault(_lane_of(loader, run), []).append(len(batch["keys"]))
    planned = {p.lane: list(p.counts) for p in plan_lanes(pipeline, 3, 5, 0)}
    skipped: dict[str, int] = {}
    for plan in plan_lanes(pipeline, 3, 5, 0):
        for reason, n in plan.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + n
    assert {k: v for k, v in planned.items() if v} == run
    if graph is by_frames:
        assert skipped == loader.stats().skipped


def _lane_of(loader: uio.Loader, run: dict[int, list[int]]) -> int:
    """The lane that has given one more batch than is noted."""
    state = loader.state_dict()
    ks: dict[int, Any] = {int(k[5:]): json.loads(v)["k"] for k, v in state.items() if k != "meta"}
    return next(lane for lane, k in ks.items() if k > len(run.get(lane, [])))


def test_an_index_tells_len_and_equal_steps_of_all_ranks(many_shards: Corpus, tmp_path: Path) -> None:
    from uio_pipes.tools.data.index import index_lists

    index_lists([str(many_shards.list)], into=str(tmp_path), manifests=None)
    pipeline = by_frames(uio.from_tar_index(many_shards.list, shuffle=True, indexes=str(tmp_path)))
    for epoch in range(2):
        for rank in range(3):
            loader = uio.Loader(pipeline, rank=rank, world_size=3, lanes=30)
            loader.set_epoch(epoch)
            assert len(loader) == sum(1 for _ in loader)
    run = simulate(pipeline, world_size=3, lanes=30, epoch=1)
    stopped = uio.Loader(pipeline, rank=1, world_size=3, lanes=30)
    stopped.uneven = "stop"
    stopped.set_epoch(1)
    assert run.steps == [len(stopped)] * 3
