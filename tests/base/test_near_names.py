"""Names that there are not: what is meant, and in whose words."""

import traceback
from pathlib import Path

import pytest
from command import forked

import uio_pipes as uio
from uio_pipes.base.checks import nearest
from uio_pipes.base.errors import PipelineError
from uio_pipes.sources.config import TYPES


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
