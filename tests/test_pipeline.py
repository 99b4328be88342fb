"""The description: immutable, picklable, without I/O, readable, and wrong arguments fail while it is written."""

import json
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
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger

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


def test_a_list_may_be_written_after_the_description(tmp_path: Path) -> None:
    graph = uio.from_raw_list(tmp_path / "x.list").decode_audio()
    loader = uio.Loader(graph)

    (tmp_path / "x.list").write_text("\n".join(json.dumps(item) for item in raw_items(tmp_path, 2)))
    assert keys(loader) == ["R000", "R001"]


def test_pickled_it_is_the_same_and_runs(tmp_path: Path) -> None:
    graph = whole_graph(raw_items(tmp_path, 5))
    again = pickle.loads(pickle.dumps(graph))
    assert (again.fingerprint(), str(again)) == (graph.fingerprint(), str(graph))
    assert keys(run(again)[0]) == keys(run(graph)[0])


def test_building_does_not_change_the_description() -> None:
    graph = whole_graph()
    before = pickle.dumps(graph)
    graph.build(Lane(Ledger()))
    assert pickle.dumps(graph) == before


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


def test_fingerprint_is_of_what_matters() -> None:
    assert RAW.map(shout).fingerprint() == RAW.map(shout).fingerprint()
    assert __file__ not in "".join(RAW.map(shout).fingerprint())
    prints = [
        RAW.shuffle(3),
        RAW.shuffle(4),
        RAW.sort(3),
        RAW.map(shout),
        RAW.map(shout, length="same"),
        RAW.filter(shout),
        RAW,
        uio.from_raw_list("none.list", shuffle=True),
        RAW.decode_audio().fbank(80),
        RAW.decode_audio().fbank(80, dither=0.1),
    ]
    assert len({tuple(p.fingerprint()) for p in prints}) == len(prints)


# Wrong arguments: rule, value, remedy

WRONG: list[tuple[str, Callable[[], Any], str]] = [
    (name, build, value)
    for name, build, value in [
        ("batch", lambda: RAW.batch(0), "0"),
        ("batch", lambda: RAW.batch(-3), "-3"),
        ("batch", lambda: RAW.batch(2.5), "2.5"),
        ("batch", lambda: RAW.batch("16"), "'16'"),
        ("batch", lambda: RAW.batch(None), "None"),
        ("batch", lambda: RAW.batch(True), "True"),
        ("dynamic_batch", lambda: RAW.dynamic_batch(0), "0"),
        ("dynamic_batch", lambda: RAW.dynamic_batch("12000"), "12000"),
        ("bucket_batch", lambda: RAW.bucket_batch(), "needs a bound"),
        ("bucket_batch", lambda: RAW.bucket_batch([10]), "needs a bound"),
        ("bucket_batch", lambda: RAW.bucket_batch([10], [1, 2], max_frames=5), "a budget"),
        ("bucket_batch", lambda: RAW.bucket_batch([10], [1]), "1"),
        ("bucket_batch", lambda: RAW.bucket_batch([10], [1, 0]), "0"),
        ("bucket_batch", lambda: RAW.bucket_batch([10, 10], [1, 1, 1]), "10, 10"),
        ("bucket_batch", lambda: RAW.bucket_batch([20, 10], max_frames=100), "20, 10"),
        ("bucket_batch", lambda: RAW.bucket_batch([0, 10], max_frames=100), "0, 10"),
        ("bucket_batch", lambda: RAW.bucket_batch(max_frames=0), "0"),
        ("bucket_batch", lambda: RAW.bucket_batch(max_frames=100, num_buckets=0), "0"),
        ("bucket_batch", lambda: RAW.bucket_batch(max_frames=100, max_wait=0), "0"),
        ("bucket_batch", lambda: RAW.bucket_batch(max_frames="100"), "100"),
        ("bucket_batch", lambda: RAW.bucket_batch(max_frames=100, num_buckets=2.5), "2.5"),
        ("bucket_batch", lambda: RAW.bucket_batch(["a"], max_frames=100), "a"),
        ("bucket_batch", lambda: RAW.bucket_batch(100, max_frames=100), "100"),
        ("shuffle", lambda: RAW.shuffle(0), "0"),
        ("shuffle", lambda: RAW.shuffle(1.5), "1.5"),
        ("sort", lambda: RAW.sort(0), "0"),
        ("sort", lambda: RAW.sort("500"), "500"),
        ("decode_audio", lambda: RAW.decode_audio(-1), "-1"),
        ("decode_audio", lambda: RAW.decode_audio(""), ""),
        ("resample", lambda: RAW.resample(0), "0"),
        ("resample", lambda: RAW.resample(16_000.0), "16000.0"),
        ("resample", lambda: RAW.resample("16k"), "16k"),
        ("speed_perturb", lambda: RAW.speed_perturb([]), "()"),
        ("speed_perturb", lambda: RAW.speed_perturb([0.0]), "0.0"),
        ("speed_perturb", lambda: RAW.speed_perturb([1.0, -1.0]), "-1.0"),
        ("speed_perturb", lambda: RAW.speed_perturb([float("nan")]), "nan"),
        ("speed_perturb", lambda: RAW.speed_perturb(["0.9"]), "0.9"),
        ("speed_perturb", lambda: RAW.speed_perturb(0.9), "0.9"),
        ("fbank", lambda: RAW.fbank(0), "0"),
        ("fbank", lambda: RAW.fbank("80"), "80"),
        ("fbank", lambda: RAW.fbank(80.5), "80.5"),
        ("fbank", lambda: RAW.fbank(frame_length=0), "0"),
        ("fbank", lambda: RAW.fbank(frame_shift=-10), "-10"),
        ("fbank", lambda: RAW.fbank(frame_length=0.025, frame_shift=0.01), "0.025"),
        ("fbank", lambda: RAW.fbank(frame_length=0.025), "0.025"),
        ("mfcc", lambda: RAW.mfcc(frame_shift=0.01), "0.01"),
        ("fbank", lambda: RAW.fbank(dither=-0.1), "-0.1"),
        ("fbank", lambda: RAW.fbank(dither="0.1"), "0.1"),
        ("fbank", lambda: RAW.fbank(window_type="hann"), "hann"),
        ("spec_aug", lambda: RAW.spec_aug(num_t_mask=-1), "-1"),
        ("spec_aug", lambda: RAW.spec_aug(max_t=0), "0"),
        ("spec_aug", lambda: RAW.spec_aug(max_f=0), "0"),
        ("spec_aug", lambda: RAW.spec_aug(num_t_mask=1.5), "1.5"),
        ("spec_aug", lambda: RAW.spec_aug(max_t="50"), "50"),
        ("filter", lambda: RAW.filter(10), "10"),
        ("filter", lambda: RAW.filter(min_frames=20, max_frames=10), "20, 10"),
        ("filter", lambda: RAW.filter(token_min_length=20, token_max_length=10), "20, 10"),
        ("filter", lambda: RAW.filter(min_output_input_ratio=2), "2, 1"),
        ("filter", lambda: RAW.filter(min_frames="10"), "10"),
        ("filter", lambda: RAW.filter(max_frames=None), "None"),
        ("filter", lambda: RAW.filter(max_frames=float("nan")), "nan"),
        ("map", lambda: RAW.map(None), "None"),
        ("map", lambda: RAW.map("upper"), "upper"),
        ("map", lambda: RAW.map(shout, length=3), "3"),
        ("map", lambda: RAW.map(shout, length="equal"), "equal"),
        ("flat_map", lambda: RAW.flat_map([1]), "[1]"),
        ("tokenize", lambda: RAW.tokenize("bpe.model"), "bpe.model"),
        ("tokenize", lambda: RAW.tokenize(None), "None"),
        ("through", lambda: RAW.through(shout), "shout"),
        ("load_from_tar", lambda: uio.from_shard_list("x", grouping="kaldi"), "kaldi"),
        ("list_files", lambda: uio.list_files([]), "[]"),
    ]
]


@pytest.mark.parametrize(("stage", "build", "value"), WRONG, ids=[f"{s}-{v}" for s, _, v in WRONG])
def test_wrong_arguments_fail_when_described(stage: str, build: Callable[[], Any], value: str) -> None:
    with pytest.raises(uio.PipelineError) as error:
        build()
    message = str(error.value)
    assert message.startswith(f"{stage}: ")
    assert value in message
    assert ";" in message or ":" in message[len(stage) + 2 :], "a remedy is missing"
    assert isinstance(error.value, ValueError)


# Wrong orders

ORDERS: list[tuple[str, Callable[[], Any], str]] = [
    ("shuffle after batch", lambda: RAW.batch().shuffle(), "move shuffle before"),
    ("sort after batch", lambda: RAW.dynamic_batch().sort(), "move sort before"),
    ("filter after batch", lambda: RAW.batch().filter(), "move filter before"),
    ("fbank after batch", lambda: RAW.batch().fbank(), "move fbank before"),
    ("batch after batch", lambda: RAW.batch().batch(), "move batch before"),
    ("flat_map after batch", lambda: RAW.batch().flat_map(shout), "move flat_map before"),
    ("sort after pad", lambda: RAW.batch().pad().sort(), "sort"),
    ("fbank after pad", lambda: RAW.batch().pad().fbank(), "fbank"),
    ("pad before batch", lambda: RAW.pad(), "pad"),
    ("pad after pad", lambda: RAW.batch().pad().pad(), "pad"),
    ("decode before load", lambda: uio.list_files("x").decode_audio(), "load_from_tar"),
    ("load_from_tar before open_files", lambda: uio.list_files("x").load_from_tar(), "open_files"),
    ("load_from_raw after open_files", lambda: uio.list_files("x").open_files().load_from_raw(), "load_from_raw"),
    ("decode after open_files", lambda: uio.list_files("x").open_files().decode_audio(), "load_from_tar"),
    ("load_from_tar after load_from_tar", lambda: SHARDS.load_from_tar(), "load_from_tar"),
    ("open_files after load_from_raw", lambda: RAW.open_files(), "open_files"),
    ("sort on files", lambda: uio.list_files("x").open_files().sort(), "sort"),
    ("sharding_filter after batch", lambda: RAW.batch().sharding_filter(), "sharding_filter"),
]


@pytest.mark.parametrize(("build", "says"), [o[1:] for o in ORDERS], ids=[o[0] for o in ORDERS])
def test_wrong_orders_fail_when_described(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        build()


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
    ({"num_workers": 1.5}, r"num_workers.*1\.5"),
    ({"lanes": 0}, "lanes.*0"),
    ({"lanes": "4"}, "lanes.*'4'"),
    ({"prefetch_factor": 0}, "prefetch_factor.*0"),
    ({"snapshot_every": 0}, "snapshot_every.*0"),
    ({"failures": "ignore"}, "failures must be 'skip', 'raise' or .*ignore"),
    ({"on_change": "ignore"}, "on_change.*ignore"),
    ({"uneven": "drop"}, "uneven.*drop"),
    ({"ranks": 2}, "ranks must be uio.Ranks.*, not 2"),
    ({"rank": 0, "world_size": 1, "ranks": uio.Ranks(mesh=_ANY)}, "say the same in different ways: leave ranks out"),
    ({"rank": 0}, "rank and world_size"),
    ({"world_size": 2}, "rank and world_size"),
    ({"rank": 2, "world_size": 2}, "rank.*2"),
    ({"rank": -1, "world_size": 2}, "rank.*-1"),
    ({"rank": 0, "world_size": 0}, "world_size"),
    ({"rank": 0, "world_size": 4, "lanes": 3}, "3 lanes cannot feed 4 ranks"),
    ({"rank": 0, "world_size": 2, "uneven": "stop"}, "init_process_group"),
    ({"rank": 0, "world_size": 2, "uneven": "repeat"}, "init_process_group"),
    ({"seed": 1.5}, "seed.*1.5"),
    ({"seed": "a"}, "seed.*a"),
    ({"seed": None}, "seed.*None"),
    ({"seed": True}, "seed must be a whole number, not True"),
    ({"num_workers": True}, "num_workers must be a whole number, 0 or more, not True"),
    ({"num_workers": "2"}, "num_workers must be a whole number or 'auto', not '2'"),
    ({"lanes": 2.0}, r"lanes must be a whole number, 1 or more, not 2\.0"),
    ({"prefetch_factor": "2"}, "prefetch_factor must be a whole number, 1 or more, not '2'"),
    ({"snapshot_every": True}, "snapshot_every must be a whole number, 1 or more, not True"),
    ({"steps_per_epoch": "9"}, "steps_per_epoch must be a whole number, 1 or more, not '9'"),
    ({"world_size": "2"}, "world_size must be a whole number, 1 or more, not '2'"),
    ({"rank": "0"}, "rank must be a whole number, not '0'"),
    ({"rank": 0, "world_size": "2"}, "world_size must be a whole number, 1 or more, not '2'"),
    ({"rank": "0", "world_size": 2}, "rank must be a whole number, not '0'"),
    ({"rank": False, "world_size": 2}, "rank must be a whole number, not False"),
    ({"rank": 0, "world_size": "2", "partition": False}, "world_size must be a whole number"),
    ({"partition": "no"}, "partition must be True or False, not 'no'"),
    ({"pin_memory": "yes"}, "pin_memory must be True or False, not 'yes'"),
]


@pytest.mark.parametrize(("options", "says"), ARGUMENTS, ids=[str(o) for o, _ in ARGUMENTS])
def test_wrong_arguments_of_the_loader(options: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.Loader(RAW, **options)


@pytest.mark.parametrize("pipeline", ["x.list", None, [], uio.Pipeline])
def test_a_loader_of_something_else(pipeline: Any) -> None:
    with pytest.raises(uio.PipelineError, match=r"[Pp]ipeline"):
        uio.Loader(pipeline)


LIST = [{"key": "a"}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (RAW.as_dataset(), r"attribute \.pipeline"),
        (uio.Loader(RAW), r"attribute \.pipeline"),
        (DataLoader(RAW.as_dataset(), batch_size=None), "takes the place of torch's DataLoader"),
        (LIST, "from_iterable"),
        (TensorDataset(), "from_iterable"),
        ("x.list", "from_raw_list"),
    ],
    ids=["dataset", "loader", "DataLoader", "list", "Dataset", "path"],
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
    with pytest.raises(TypeError, match="takes the place of torch's DataLoader"):
        next(iter(DataLoader(loader)))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"shuffle": True}, {"batch_size": None}])
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_pipeline_given_to_a_loader_of_torch_says_what_to_do(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="as_dataset"):
        next(iter(kind(RAW.batch(2), **options)))


def test_an_index_into_a_pipeline_names_the_index() -> None:
    with pytest.raises(TypeError, match=r"uio\.open_index"):
        RAW[3]  # type: ignore[index]


FORGOTTEN: list[tuple[str, Callable[[uio.Pipeline], uio.Pipeline], str]] = [
    ("fbank", lambda p: p.fbank(20), "decode_audio"),
    ("resample", lambda p: p.resample(16_000), "decode_audio"),
    ("speed_perturb", lambda p: p.speed_perturb(), "decode_audio"),
    ("spec_aug", lambda p: p.decode_audio().spec_aug(), "fbank"),
]


@pytest.mark.parametrize(("build", "missing"), [f[1:] for f in FORGOTTEN], ids=[f[0] for f in FORGOTTEN])
def test_a_forgotten_stage_is_named(
    tmp_path: Path, build: Callable[[uio.Pipeline], uio.Pipeline], missing: str
) -> None:
    """Not only `KeyError: 'sample_rate'`."""
    with pytest.raises(uio.UioError, match=missing):
        run(build(uio.from_raw_list(raw_items(tmp_path, 1))).batch(1).pad(), failures="raise")


def test_an_error_of_the_run_is_not_its_own_cause(tmp_path: Path) -> None:
    def wrong(sample: Any) -> Any:
        raise uio.PipelineError("wrong as a whole")

    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().map(wrong, length="same")
    with pytest.raises(uio.PipelineError, match="wrong as a whole") as raised:
        list(uio.Loader(graph))
    assert raised.value.__cause__ is None


def test_how_files_are_reached_is_not_printed() -> None:
    assert "Access" not in str(uio.from_lhotse_shar("shar", storage_options={"key": "secret"}))
