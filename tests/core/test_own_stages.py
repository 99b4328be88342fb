"""Stages of a user's own, outside the package: those of CONTRIBUTING.md as they stand there."""

import ast
import importlib
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from contract import Case, check_cuts, check_node, check_twice, digest, in_fresh_process, record
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.tools.reports.bench import bench
from uio_pipes.tools.reports.simulate import simulate

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SHOWN = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
FORMAT = SHOWN.pop("prompts")  # see tests/sources/test_own_layout.py

ARGUMENTS: dict[str, Any] = {"gain": 0.25, "thin": 2}  # and what is wrong, by which rule:
WRONG = {"gain": (-1.0, "low must be above 0"), "thin": (0, "number must be 1")}
MAY_IMPORT = re.compile(
    r"uio_pipes|uio_pipes\.pipeline|uio_pipes\.base\.(checks|errors|hashing)|"
    r"uio_pipes\.core\.(buffer|capabilities|lane|roles|stage)"
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module that is written to a folder of its own."""

    def make(name: str) -> ModuleType:
        folder = tmp_path / "own"
        folder.mkdir(exist_ok=True)
        (folder / f"own_{name}.py").write_text(SHOWN[name])
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")  # for other processes
        return importlib.import_module(f"own_{name}")

    return make


@pytest.fixture(params=ARGUMENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def add(name: str, module: Callable[[str], ModuleType]) -> Callable[..., uio.Pipeline]:
    """The function that adds the stage to a pipeline."""
    return adding(module(name), name)


def adding(module: ModuleType, name: str) -> Callable[..., uio.Pipeline]:
    stage = getattr(module, name.capitalize())
    return lambda pipeline, *args: pipeline.then(stage(*args))


def graph_of(add: Callable[..., uio.Pipeline], name: str, corpus: Corpus) -> uio.Pipeline:
    """A pipeline with the stage between two buffers."""
    audio = uio.from_raw_list(corpus.list, shuffle=True).decode_audio().shuffle(4)
    return add(audio, ARGUMENTS[name]).fbank(num_mel_bins=8, dither=0.1).shuffle(5).batch(2).pad()


@pytest.fixture
def graph(name: str, add: Callable[..., uio.Pipeline], raw_corpus: Corpus) -> uio.Pipeline:
    return graph_of(add, name, raw_corpus)


@pytest.fixture
def recordings(module: Callable[[str], ModuleType], tmp_path: Path, raw_corpus: Corpus) -> uio.Pipeline:
    """A pipeline that begins with the source: of 23 recordings, all but the last with a text."""
    data = tmp_path / "data"
    data.mkdir()
    for number, wav in enumerate(sorted(raw_corpus.list.parent.glob("*.wav"))):
        shutil.copy(wav, data)
        if number < 22:
            (data / f"{wav.stem}.txt").write_text(f"text {number}\n")
    listed: uio.Pipeline = module("folder").from_folder(str(data), shuffle=True)
    return listed


def batches_of(recordings: uio.Pipeline) -> uio.Pipeline:
    return recordings.decode_audio().fbank(num_mel_bins=8, dither=0.1).shuffle(4).dynamic_batch(600).pad()


def check_resume(graph: uio.Pipeline) -> None:
    """Stopped after each batch, here and on other ranks, the rest is what it was."""
    for options in ({}, {"lanes": 3, "snapshot_every": 3}):
        recorded = record(Case(pickle.loads(pickle.dumps(graph)), options))
        total = len(recorded.digests)
        assert total >= 4
        assert recorded.after != recorded.digests
        check_cuts(recorded, range(total + 1))
        check_twice(recorded, total // 2)
    whole = sorted(digest(batch) for batch in uio.Loader(graph, seed=5, lanes=4))
    ranks = [uio.Loader(graph, seed=5, lanes=4, rank=rank, world_size=2, uneven="join") for rank in range(2)]
    begun = [digest(next(iter(rank))) for rank in ranks]
    alone = uio.Loader(graph, seed=5, lanes=4)
    alone.load_state_dict(uio.merge_states([rank.state_dict() for rank in ranks]))
    assert sorted(begun + [digest(batch) for batch in alone]) == whole


def test_the_page_shows_one_of_each_role_in_20_to_40_lines(module: Callable[[str], ModuleType]) -> None:
    assert list(SHOWN) == ["gain", "thin", "folder"]
    for text in SHOWN.values():
        assert 20 <= sum(bool(line.strip()) for line in text.splitlines()) <= 40
        assert text.startswith("from dataclasses import")


def test_what_it_shows_imports_only_what_it_says_may_be_imported() -> None:
    for text in SHOWN.values():
        named = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        modules = [n.module or "" if isinstance(n, ast.ImportFrom) else n.names[0].name for n in named]
        assert [m for m in modules if m.startswith("uio_pipes") and not MAY_IMPORT.fullmatch(m)] == []


def test_it_is_described_with_its_arguments_and_fails_by_its_rule(
    name: str, add: Callable[..., uio.Pipeline], graph: uio.Pipeline
) -> None:
    value, (bad, rule) = ARGUMENTS[name], WRONG[name]
    assert f"─ {name}({value})" in str(graph)
    assert any(line.startswith(f"{name}(") and f"={value}" in line for line in graph.fingerprint())
    with pytest.raises(uio.PipelineError, match=f"{name}: {rule}"):
        add(uio.from_raw_list("none.list"), bad)
    with pytest.raises(uio.PipelineError, match=f"{name} works on samples, but list_files gives an item"):
        add(uio.list_files("none.list"))


def test_what_is_no_stage_is_refused(module: Callable[[str], ModuleType]) -> None:
    start = uio.from_raw_list("none.list")
    for wrong, told in ((module("gain").Gain, "not Gain"), (len, "not builtin_function_or_method")):
        with pytest.raises(uio.PipelineError, match=rf"then: takes a stage, such as Gain\(0.8\) .*{told}"):
            start.then(wrong)
    with pytest.raises(uio.PipelineError, match=r"Loud.reads is a tuple of names: write \('wav',\)"):
        type("Loud", (uio.Op,), {"reads": "wav"})


def test_it_resumes_after_every_batch(graph: uio.Pipeline) -> None:
    check_resume(graph)
    check_node(uio.Pipeline(graph.stages[:-4]), 0, 1)
    check_node(uio.Pipeline(graph.stages[:-4]), 1, 3)


def test_it_is_counted_planned_timed_and_seen(name: str, graph: uio.Pipeline) -> None:
    loader = uio.Loader(graph, seed=5)
    batches = list(loader)
    assert loader.stats().skipped.get("thinned", 0) == (12 if name == "thin" else 0)
    planned = simulate(graph, seed=5)
    assert planned.padded[0].tolist() == [b["feats"].shape[0] * b["feats"].shape[1] for b in batches]
    assert name in {row.stage for row in bench(graph, seconds=0.1).rows}
    assert f"{name}({ARGUMENTS[name]})" in str(graph.peek())


def test_a_source_resumes_anywhere(recordings: uio.Pipeline) -> None:
    assert isinstance(recordings.stages[0], uio.Source)
    check_resume(batches_of(recordings))
    check_node(recordings, 1, 3)


def test_all_of_them_go_on_in_a_fresh_process(
    module: Callable[[str], ModuleType], recordings: uio.Pipeline, raw_corpus: Corpus, tmp_path: Path
) -> None:
    graphs = [graph_of(adding(module(name), name), name, raw_corpus) for name in ARGUMENTS]
    recorded = [record(Case(graph, {"lanes": 3})) for graph in [*graphs, batches_of(recordings)]]
    made = in_fresh_process([(one.case, one.states[2]) for one in recorded], tmp_path)
    assert made == [one.digests[2:] for one in recorded]


def test_a_source_is_counted_and_planned_and_its_failures_are_counted(recordings: uio.Pipeline) -> None:
    assert recordings._count(2) == [12, 11]
    loader = uio.Loader(batches_of(recordings), seed=5)
    batches = list(loader)
    assert (loader.stats().utterances, loader.stats().skipped) == (22, {"missing_text": 1})
    planned = simulate(batches_of(recordings), seed=5)
    assert planned.padded[0].tolist() == [b["feats"].shape[0] * b["feats"].shape[1] for b in batches]


def test_a_source_whose_data_has_changed_refuses_the_state(recordings: uio.Pipeline, tmp_path: Path) -> None:
    graph = batches_of(recordings)
    assert graph.fingerprint()[0] == "list_folder(shuffle=True)"
    loader = uio.Loader(graph, seed=5)
    next(iter(loader))
    state = loader.state_dict()
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = uio.Pipeline((type(graph.stages[0])(str(tmp_path / "moved"), True), *graph.stages[1:]))  # type: ignore[call-arg]
    uio.Loader(moved, seed=5).load_state_dict(state)
    (tmp_path / "moved" / "r000.wav").unlink()
    with pytest.raises(uio.StateError, match="list"):
        uio.Loader(moved, seed=5).load_state_dict(state)
