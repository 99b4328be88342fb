"""The description: immutable, picklable, without I/O, readable, and wrong arguments fail while it is written."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus import Corpus
from helpers_bad import keys, raw_items, run
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import uio_pipes as uio

RAW = uio.from_raw_list("none.list")
SHARDS = uio.from_shard_list("none.list")


def shout(sample: uio.Sample) -> uio.Sample:
    sample["txt"] = sample["txt"].upper()
    return sample


def whole_graph(source: Any = "none.list") -> uio.Pipeline:
    return (
        uio.list_files(source, shuffle=True)
        .sharding_filter()
        .load_from_raw()
        .decode_audio()
        .resample(16_000)
        .speed_perturb([0.9, 1.0, 1.1])
        .tokenize(uio.CharTokenizer({"<unk>": 0}))
        .filter(min_frames=1)
        .map(shout)
        .fbank(num_mel_bins=80, dither=0.1)
        .spec_aug()
        .shuffle(1_500)
        .sort(500)
        .dynamic_batch(max_frames=12_000)
        .pad()
    )


# What a description is


def test_adding_a_stage_leaves_the_pipeline_as_it_was() -> None:
    before = str(RAW)
    longer = RAW.shuffle(3)
    assert str(RAW) == before
    assert len(longer.stages) == len(RAW.stages) + 1
    assert RAW.shuffle(3) == longer
    assert RAW.shuffle(4) != longer


def test_nothing_can_be_assigned() -> None:
    with pytest.raises(AttributeError):
        RAW.stages = ()
    with pytest.raises(AttributeError):
        RAW.shuffle(3).stages[-1].shuffle_size = 5


def test_what_is_changed_afterwards_does_not_reach_the_pipeline() -> None:
    paths, speeds, bounds = ["a.list"], [0.9, 1.1], [100]
    graph = (
        uio.list_files(paths).load_from_raw().decode_audio().speed_perturb(speeds).bucket_batch(bounds, max_frames=500)
    )
    before = graph.fingerprint(), str(graph)
    for given in (paths, speeds, bounds):
        given.append(7)
    assert (graph.fingerprint(), str(graph)) == before


def test_describing_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("opened while described")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        patch.setattr("os.open", refuse)
        patch.setattr("glob.glob", refuse)
        graph = whole_graph(tmp_path / "none.list")
        str(graph)
        graph.fingerprint()
        loader = uio.Loader(graph)
    with pytest.raises(uio.ListError, match=r"none\.list"):
        list(loader)


def test_pickled_it_is_the_same_and_runs(tmp_path: Path) -> None:
    graph = whole_graph(raw_items(tmp_path, 5))
    again = pickle.loads(pickle.dumps(graph))
    assert (again.fingerprint(), str(again)) == (graph.fingerprint(), str(graph))
    assert keys(run(again)[0]) == keys(run(graph)[0])


# How it looks


def test_printing_draws_a_line_for_each_stage() -> None:
    lines = str(whole_graph()).splitlines()
    assert len(lines) == 15
    assert lines[0].startswith("list_files('none.list', shuffle=True)")
    assert all(line.startswith("├─ ") for line in lines[1:-1])
    assert lines[-1].startswith("└─ pad()")
    assert "resample(" in lines[4]
    assert any("decoded" in line or "decoding" in line for line in lines)


def test_printing_shows_functions_by_name_file_and_line() -> None:
    line = next(x for x in str(whole_graph()).splitlines() if "map(" in x)
    assert re.search(rf"map\(shout @ {re.escape(__file__)}:\d+\)", line)
    first = shout.__code__.co_firstlineno
    assert f":{first})" in line
    assert re.search(r"<lambda> @ .*test_pipeline\.py:\d+", str(RAW.map(lambda s: s)))


def test_printing_shows_no_addresses_and_stays_short() -> None:
    class Thing:
        def __call__(self, sample: Any) -> Any:
            return sample

    graph = uio.from_raw_list([f"{i}.list" for i in range(1000)]).map(Thing())
    assert "0x" not in str(graph)
    assert "Thing" in str(graph)
    assert "1000 in all" in str(graph)
    assert len(str(graph)) < 1000


# Lanes and the loader's arguments


def test_more_than_one_lane_needs_a_sharding_filter() -> None:
    graph = uio.list_files("x").load_from_raw()
    for options in ({"lanes": 2}, {"num_workers": 2}, {"rank": 0, "world_size": 2}):
        with pytest.raises(uio.PipelineError, match=r"sharding_filter\(\) directly after list_files"):
            uio.Loader(graph, **options)
    uio.Loader(graph)
    uio.Loader(graph, num_workers=1)
    uio.Loader(graph, rank=1, world_size=2, partition=False)


_ANY: Any = "a mesh"
ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"num_workers": -1}, "num_workers.*-1"),
    ({"lanes": 0}, "lanes.*0"),
    ({"prefetch_factor": 0}, "prefetch_factor.*0"),
    ({"snapshot_every": 0}, "snapshot_every.*0"),
    ({"failures": "ignore"}, "failures must be 'skip', 'raise' or .*ignore"),
    ({"on_change": "ignore"}, "on_change.*ignore"),
    ({"uneven": "drop"}, "uneven.*drop"),
    ({"ranks": 2}, "ranks must be uio.Ranks.*, not 2"),
    (
        {"rank": 0, "world_size": 1, "ranks": uio.Ranks(mesh=_ANY)},
        r"mean the same as ranks=uio\.Ranks\(…\): remove ranks",
    ),
    ({"rank": 0}, "rank and world_size"),
    ({"world_size": 2}, "rank and world_size"),
    ({"rank": 2, "world_size": 2}, "rank.*2"),
    ({"rank": -1, "world_size": 2}, "rank.*-1"),
    ({"rank": 0, "world_size": 0}, "world_size"),
    ({"rank": 0, "world_size": 4, "lanes": 3}, "3 lanes cannot feed 4 ranks"),
    ({"rank": 0, "world_size": 2, "uneven": "stop"}, "init_process_group"),
    ({"rank": 0, "world_size": 2, "uneven": "share"}, "init_process_group"),
    ({"seed": None}, "seed.*None"),
    ({"seed": True}, "seed must be a whole number, not True"),
    ({"num_workers": True}, "num_workers must be a whole number, 0 or more, not True"),
    ({"num_workers": "2"}, "num_workers must be a whole number or 'auto', not '2'"),
    ({"lanes": 2.0}, r"lanes must be a whole number, 1 or more, not 2\.0"),
    ({"prefetch_factor": "2"}, "prefetch_factor must be a whole number, 1 or more, not '2'"),
    ({"snapshot_every": True}, "snapshot_every must be a whole number, 1 or more, not True"),
    ({"steps_per_epoch": "9"}, "steps_per_epoch must be a whole number, 1 or more, not '9'"),
    ({"rank": 0, "world_size": "2"}, "world_size must be a whole number, 1 or more, not '2'"),
    ({"rank": False, "world_size": 2}, "rank must be a whole number, not False"),
    ({"rank": 0, "world_size": "2", "partition": False}, "world_size must be a whole number"),
    ({"partition": "no"}, "partition must be True or False, not 'no'"),
    ({"pin_memory": "yes"}, "pin_memory must be True or False, not 'yes'"),
]


@pytest.mark.parametrize(("options", "says"), ARGUMENTS, ids=[str(o) for o, _ in ARGUMENTS])
def test_wrong_arguments_of_the_loader(options: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.Loader(RAW, **options)


LIST = [{"key": "a"}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (RAW.as_dataset(), r"attribute \.pipeline"),
        (uio.Loader(RAW), r"attribute \.pipeline"),
        (DataLoader(RAW.as_dataset(), batch_size=None), "replaces torch's DataLoader"),
        (LIST, "from_iterable"),
        (TensorDataset(), "from_iterable"),
        ("x.list", "from_raw_list"),
        *((given, "[Pp]ipeline") for given in (None, [], uio.Pipeline)),
    ],
    ids=["dataset", "loader", "DataLoader", "list", "Dataset", "path", "None", "nothing", "class"],
)
def test_a_loader_of_something_else_says_what_to_give(given: Any, says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.Loader(given)


@pytest.mark.parametrize("use", [iter, list, len, lambda p: p[0], lambda p: [*p], lambda p: next(iter(DataLoader(p)))])
@pytest.mark.parametrize("pipeline", [RAW, RAW.batch(2)], ids=["utterances", "batches"])
def test_a_pipeline_that_is_taken_for_data_says_what_to_do(pipeline: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"only describes .*uio\.Loader\(pipeline\).*as_dataset\(\), batch_size=None"):
        use(pipeline)
    assert pipeline, "a pipeline is true, although it has no length"


def test_a_loader_given_to_a_loader_of_torch_says_what_it_is(plain_corpus: Corpus) -> None:
    loader = uio.Loader(uio.from_shard_list(plain_corpus.list).decode_audio().batch(2))
    with pytest.raises(TypeError, match="replaces torch's DataLoader"):
        next(iter(DataLoader(loader)))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"shuffle": True}, {"batch_size": None}])
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_pipeline_given_to_a_loader_of_torch_says_what_to_do(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="as_dataset"):
        next(iter(kind(RAW.batch(2), **options)))


def test_an_index_into_a_pipeline_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"cannot be indexed\. To run it"):
        RAW[3]  # type: ignore[index]


def test_an_error_of_the_run_is_not_its_own_cause(tmp_path: Path) -> None:
    def wrong(sample: Any) -> Any:
        raise uio.PipelineError("wrong as a whole")

    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().map(wrong, length="same")
    with pytest.raises(uio.PipelineError, match="wrong as a whole") as raised:
        list(uio.Loader(graph))
    assert raised.value.__cause__ is None


def test_how_files_are_reached_is_not_printed() -> None:
    assert "Access" not in str(uio.from_lhotse_shar("shar", storage_options={"key": "secret"}))
