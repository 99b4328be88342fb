"""Words of other loaders and names that are nearly right: each is answered, and the page has a row for each word."""

import copy
import pickle
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import forked

import uio_pipes as uio
from uio_pipes.base.checks import nearest
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import WORDS, answer
from uio_pipes.sources.config import TYPES

PAGE = Path(__file__).parents[2] / "docs" / "elsewhere.md"
GRAPH = uio.list_files(["a.tar"]).sharding_filter().open_files().load_from_tar().decode_audio()
CALLED = [(call, name) for word in WORDS for call in word.calls for name in word.names if call]


def test_the_page_has_a_row_for_each_word() -> None:
    rows = [f"| `{'`, `'.join(word.names)}` | {word.library} | {word.here} |" for word in WORDS]
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in page] == []
    assert page.count("\n| `") == len(rows)


@pytest.mark.parametrize(
    "call", sorted({call for call, _ in CALLED} - {"Loader", "Pipeline", "from_…", "output", "uio"})
)
def test_stages_answer(call: str) -> None:
    called = getattr(GRAPH, call, None) or partial(getattr(uio, call), [GRAPH])  # mix and interleave
    for name in (name for of, name in CALLED if of == call):
        with pytest.raises((uio.PipelineError, TypeError)) as raised:
            called(**{name: 7})
        assert f"{name} of " in str(raised.value), "and not a parameter that the stage has"


@pytest.mark.parametrize("name", [name for call, name in CALLED if call == "Loader"])
def test_the_loader_answers(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"Loader\(\) got an unexpected keyword argument '{name}'; instead of {name} of \w+"
    ):
        uio.Loader(GRAPH, **{name: 7})


def test_the_loader_answers_all_of_them_in_the_order_in_which_they_were_given() -> None:
    given = {"shuffle": True, "collate_fn": list, "seeds": 1, "batch_size": 16, "sampler": None, "drop_last": True}
    with pytest.raises(TypeError) as raised:
        uio.Loader(GRAPH, **given)  # type: ignore[arg-type]
    told = str(raised.value)
    assert told.startswith(f"Loader() got unexpected keyword arguments {', '.join(map(repr, given))}; instead")
    places = [told.index(f"instead of {name} of DataLoader, use") for name in given if name != "seeds"]
    assert places == sorted(places)
    assert "; did you mean 'seed' by 'seeds'?" in told


@pytest.mark.parametrize("name", [name for call, name in CALLED if call == "Pipeline"])
def test_the_pipeline_answers(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"a Pipeline has no '{name}'; instead of {name} of [\w, .]+, use here"):
        getattr(GRAPH, name)


@pytest.mark.parametrize("given", [{"max_duration": 120}, {"max_seconds": 120.0}], ids=str)
def test_a_budget_in_seconds_is_worked_out(given: dict[str, Any]) -> None:
    with pytest.raises(uio.PipelineError, match=r"seconds × 100, so max_frames=12000$"):
        GRAPH.dynamic_batch(**given)
    assert str(answer("dynamic_batch", "max_duration", "2 min")).endswith("seconds × 100")


def test_a_word_is_answered_with_what_that_stage_has() -> None:
    """A bound of one utterance has no padding, and sort no budget."""
    told = {call: str(answer(call, "max_duration", 20)) for call in ("filter", "sort")}
    assert told["filter"].endswith(
        "here: `.filter(max_frames=…)`, of each utterance, in frames of 10 ms: seconds × 100, so max_frames=2000"
    )
    assert "here: `max_frames` of `.dynamic_batch`" in told["sort"]
    assert str(answer("bucket_batch", "batch_duration", 60)).endswith("so max_frames=6000")


def test_names_that_begin_alike_are_suggested() -> None:
    with pytest.raises(uio.PipelineError, match=r"Did you mean 'max_samples'\?"):
        GRAPH.dynamic_batch(max_sample=1)
    with pytest.raises(AttributeError, match=r"no 'log_mel'; did you mean 'log_mel_spectrogram'\?"):
        GRAPH.log_mel(80)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no 'specaug'; did you mean 'spec_aug'\?"):
        GRAPH.specaug()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"Did you mean 'seed'\?"):
        uio.Loader(GRAPH, seeds=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'; it takes pipeline, seed, .*"):
        uio.Loader(GRAPH, zzz=3)  # type: ignore[call-arg]


def test_options_of_the_loader_are_given_by_name_and_nothing_private_is_suggested() -> None:
    with pytest.raises(
        TypeError, match=r"Loader\(\) takes its options by name, as in seed=…; instead of batch_size of "
    ):
        uio.Loader(GRAPH, 32)  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"a Pipeline has no 'glue'(; did you mean '[a-z].*)?$"):
        GRAPH.glue()  # type: ignore[attr-defined]


SOURCES = [
    name for name in uio.__all__ if name.startswith("from_") and name != "from_corpus"
]  # with options of its own


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_sources_answer(source: str) -> None:
    for name in (name for of, name in CALLED if of == "from_…"):
        with pytest.raises(
            TypeError, match=rf"^{source}\(\) got an unexpected keyword argument '{name}'; instead of {name} of \w+"
        ):
            getattr(uio, source)("train.tsv", **{name: 7})


@pytest.mark.parametrize(
    ("made", "given", "says"),
    [
        (uio.Table, {"seperator": ";"}, r"Did you mean 'separator'\?"),
        (uio.from_table, {"shufle": True}, r"Did you mean 'shuffle'\?"),
        (uio.from_table, {"storage_option": {}}, r"Did you mean 'storage_options'\?"),
        (uio.from_tar_index, {"cach": "x"}, r"Did you mean 'cache'\?"),
        (uio.mix, {"weight": [1]}, r"Did you mean 'weights'\?"),
        (uio.Failures, {"maxx": 3}, "it takes on_error, max_failures, .*, quarantine and hung"),
        (uio.Ranks, {"grp": None}, r"Did you mean 'group'\?"),
        (uio.Corpus, {"part": ()}, r"Did you mean 'parts'\?"),
    ],
)
def test_misspelt_keywords_are_answered(made: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=rf"^{made.__name__}\(\) got an unexpected keyword argument '\w+'.*{says}$"):
        made("train.tsv", **given)


def test_what_answers_is_sent_as_before() -> None:
    for one in (uio.from_table, uio.Table, uio.Table("a.tsv", separator=";"), uio.Failures()):
        assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("name", [name for call, name in CALLED if call == "output"])
def test_pad_answers(name: str) -> None:
    batches = GRAPH.batch(2)
    with pytest.raises(
        uio.PipelineError, match=rf"^pad: value has '{name}', but .*; instead of {name} of \w+, use here"
    ):
        batches.pad(value={name: -100})
    batches.pad(value={name: -100, "feats": 0.0, "prompt_target": -1}, keep=[name])


def test_a_pipeline_is_copied_and_sent_as_before() -> None:
    assert pickle.loads(pickle.dumps(GRAPH)) == copy.deepcopy(GRAPH) == GRAPH
    assert not hasattr(GRAPH, "__array__")


@pytest.mark.parametrize("name", [name for call, name in CALLED if call == "uio"])
def test_the_package_answers(name: str) -> None:
    with pytest.raises(
        AttributeError,
        match=rf"'uio_pipes' has no attribute '{name}'; instead of {name} of [\w, ]+, use here: .*(uio|as_dataset)",
    ):
        getattr(uio, name)


# Names that are nearly right


@pytest.mark.parametrize(
    ("name", "meant"),
    [("from_shards", "from_shard_list"), ("from_raw", "from_raw_list"), ("from_kaldy", "from_kaldi"), ("xyz", None)],
)
def test_a_name_that_begins_alike_comes_first(name: str, meant: str | None) -> None:
    assert nearest(name, uio.__all__) == meant
    with pytest.raises(AttributeError) as raised:
        getattr(uio, name)
    told = "".join(traceback.format_exception_only(raised.value))
    assert told.count("id you mean") == (meant is not None)
    assert (f"Did you mean '{meant}'?" in told) == (meant is not None)


def test_python_adds_no_guess_of_its_own() -> None:
    done = forked("-c", "import uio_pipes as uio\nuio.from_shards")
    assert done.stderr.rstrip().endswith("has no attribute 'from_shards'. Did you mean 'from_shard_list'?")


def test_types_of_a_configuration() -> None:
    assert nearest("shards", TYPES) == "shard_list"
    with pytest.raises(PipelineError, match="type has no 'shards'; did you mean 'shard_list'"):
        uio.from_config({"sources": [{"type": "shards"}]})


def test_nemos_words_are_answered_in_nemos_words(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("- type: raw_list\n  manifest_filepath: train.json\n")
    with pytest.raises(
        PipelineError, match=r"line 2: the type raw_list has no 'manifest_filepath', which the type .*nemo takes"
    ):
        uio.from_config(path)
    path.write_text("- type: nemo_tarred\n  tarred_audio_filepaths: audio.tar\n")
    with pytest.raises(PipelineError, match="the type nemo needs 'manifest' or 'manifest_filepath'"):
        uio.from_config(path)


def test_a_missing_sharding_filter_is_put_after_the_source_that_was_used() -> None:
    items = uio.from_iterable([{"key": "a"}])
    with pytest.raises(PipelineError, match=r"put \.sharding_filter\(\) directly after from_iterable\(…\)"):
        uio.Loader(items.batch(1), lanes=2)
    files = uio.list_files(["a.tar"]).open_files().load_from_tar()
    with pytest.raises(PipelineError, match=r"directly after list_files\(…\)"):
        uio.Loader(files.batch(1), lanes=2)
    with pytest.raises(PipelineError, match=r"directly after each source of mix\(…\)"):
        uio.Loader(uio.mix({"a": items, "b": items}).batch(1), lanes=2)
