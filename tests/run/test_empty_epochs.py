"""Epochs without one utterance: an error where reading failed, a word where stages left out all."""

from pathlib import Path
from typing import Any

import corpus
import pytest
from command import uio as uio_command
from contract import keys_of, restored
from corpus import Corpus
from processes import raises
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.run.empty_epochs import Losses


def typo(folder: Path) -> uio.Pipeline:
    """The only line of the list names a file that is not there."""
    (folder / "typo.list").write_text(f"{folder}/shard_of.tar\n")
    return uio.from_shard_list(folder / "typo.list").decode_audio().fbank(80).batch(2).pad()


def missing(folder: Path, count: int = 20) -> uio.Pipeline:
    """Every recording of a raw list is missing."""
    lines: list[Any] = [{"key": f"m{i}", "wav": f"{folder}/{i}.wav", "txt": "x"} for i in range(count)]
    return uio.from_raw_list(lines).decode_audio().fbank(80).batch(4).pad()


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"lanes": 5}], ids=str)
@pytest.mark.parametrize(("made", "failures"), [(typo, 1), (missing, 20)])
def test_failures_and_not_one_utterance_are_an_error(
    tmp_path: Path, made: Any, failures: int, options: dict[str, Any]
) -> None:
    with pytest.raises(uio.TooManyFailures) as raised:
        list(uio.Loader(made(tmp_path), **options))
    text = str(raised.value)
    assert "epoch 0 ends without an utterance. " in text
    assert f"{failures} failed ({failures} as missing_file); for example" in text
    assert "no such file" in text
    assert "Check the paths in the list" in text


@pytest.mark.parametrize("asked", [{"keep": {"part": "dev"}}, {"drop": {"part": ".*"}}], ids=str)
def test_rows_none_of_which_is_asked_for_are_an_error(asked: dict[str, Any]) -> None:
    rows = [{"key": f"a{n}", "wav": "a.wav", "txt": "x", "part": "train"} for n in range(3)]
    graph = uio.from_table(rows, **asked).decode_audio().batch(2)
    with pytest.raises(
        NothingRead, match=r"list_table\(.* left out 3 as .*\. Select other rows with keep=.*`uio inspect`"
    ):
        list(uio.Loader(graph))


def test_one_failure_is_one_failure_and_a_function_may_be_to_blame() -> None:
    graph = uio.from_iterable([{"key": "a", "wav": b"", "txt": ""}]).map(lambda sample: sample["nothing"])
    with pytest.raises(NothingRead, match=r"utterance\. .*1 failed.*KeyError.*or the function that failed"):
        list(uio.Loader(graph.batch(2)))
    assert "0 workers, 1 lane, epoch 0" in repr(uio.Loader(graph))
    (note,) = uio.from_raw_list([{"key": "a", "wav": "a", "txt": ""}]).batch(1)._warnings(2)
    assert note.startswith("1 of 2 lanes has nothing to deliver (of number 1), as there is only 1 list item to deal")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("other", [DataLoader, StatefulDataLoader])
def test_it_is_an_error_in_other_loaders(tmp_path: Path, other: Any, workers: int) -> None:
    """Also where only one of two workers had anything to read."""
    for made in (typo, missing):
        loader = other(made(tmp_path).as_dataset(), batch_size=None, num_workers=workers)
        with raises(NothingRead, match="nothing could be read", loader=loader):
            list(loader)


@pytest.mark.parametrize("other", [uio.Pipeline.as_datapipe, uio.LightningLoader])
def test_it_is_an_error_in_a_datapipe_and_for_lightning(tmp_path: Path, other: Any) -> None:
    with pytest.raises(NothingRead, match="nothing could be read"):
        list(other(typo(tmp_path)))


def test_one_of_several_workers_or_ranks_may_fail(tmp_path: Path, plain_corpus: Corpus) -> None:
    """A rank is told when all that it had failed; one whose share is empty, or left out on purpose, just ends."""
    shard = next(line for line in plain_corpus.list.read_text().splitlines() if line.endswith(".tar"))
    graph = uio.from_shard_list([f"{tmp_path}/none.tar", shard]).decode_audio().batch(2)
    assert sum(map(len, DataLoader(graph.as_dataset(), batch_size=None, num_workers=2))) == 5
    first, second, third = (uio.Loader(graph, rank=rank, world_size=3, uneven="join") for rank in range(3))
    with pytest.raises(NothingRead, match="1 failed"):
        list(first)
    assert sum(map(len, second)) == 5
    assert list(third) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_filter_that_keeps_nothing_is_an_error_where_nobody_else_may_keep_some(
    plain_corpus: Corpus, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    graph = uio.from_shard_list(plain_corpus.list).decode_audio().filter(min_frames=9_000).batch(2)
    for loader in (uio.Loader(graph), DataLoader(graph.as_dataset(), batch_size=None, num_workers=workers)):
        with raises(
            NothingRead, match=r"filter\(min_frames=9000\) left out \d+ as too_short\. Loosen it", loader=loader
        ):
            list(loader)
    assert list(uio.Loader(graph, failures=uio.Failures(max_setting_share=1))) == []
    assert list(uio.Loader(graph, rank=0, world_size=2, uneven="join")) == []
    assert "epoch 0 ends without an utterance on rank 0: filter(min_frames=9000) left out" in caplog.text


@pytest.mark.parametrize("workers", [0, 1])
def test_a_rank_for_which_there_is_nothing_is_told_so(
    plain_corpus: Corpus, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    graph = uio.list_files(plain_corpus.list).take(2).sharding_filter().open_files().load_from_tar().batch(2)
    loader = uio.Loader(graph, rank=7, world_size=8, uneven="join", num_workers=workers)
    assert list(loader) == []
    said = "epoch 0 ends without an utterance on rank 7: there was no list item for its lanes. Use fewer ranks"
    assert said in caplog.text
    caplog.clear()
    list(uio.Loader(graph, rank=1, world_size=8, uneven="join"))
    assert caplog.text == ""
    again = uio.Loader(graph, rank=1, world_size=8, uneven="join")
    list(again)
    again.load_state_dict(again.state_dict())
    again.set_epoch(0)
    assert list(again) == []
    assert "there was no list item" not in caplog.text  # it had all of them before


def test_an_epoch_without_an_end_is_told_at_its_beginning(
    plain_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    source = uio.from_shard_list(plain_corpus.list)
    for graph in (uio.mix({"a": source, "b": source}, stop="endless").batch(2), source.repeat().batch(2)):
        next(iter(uio.Loader(graph)))
        assert caplog.text.count("the epoch has no end") == 1
        assert "Give Loader(steps_per_epoch=…)" in caplog.text
        caplog.clear()
        next(iter(uio.Loader(graph, steps_per_epoch=3)))
        next(iter(uio.Loader(graph.take(3))))
        next(iter(graph.as_dataset()))
        assert "no end" not in caplog.text


def test_a_resumed_epoch_with_nothing_left_is_no_error(bad_corpus: Corpus) -> None:
    """Everything that is left fails, but utterances were delivered before."""
    graph = uio.from_shard_list(bad_corpus.list).decode_audio().batch(3)
    loader = uio.Loader(graph, lanes=2)
    batches = iter(loader)
    count = len(list(uio.Loader(graph, lanes=2)))
    for _ in range(count):
        next(batches)
    assert loader.stats().failures
    resumed = restored(graph, loader.state_dict(), lanes=2)
    resumed.set_epoch(0)
    assert list(resumed) == []
    skipping = uio.Loader(graph, lanes=2)
    skipping.skip(count + 5)
    assert list(skipping) == []


def test_the_next_epoch_is_read_when_the_data_is_mended(tmp_path: Path) -> None:
    loader = uio.Loader(typo(tmp_path))
    with pytest.raises(NothingRead):
        list(loader)
    made = corpus.shards(tmp_path / "data", [4], seconds=(0.3, 0.5))
    (tmp_path / "data" / "s000.tar").rename(tmp_path / "shard_of.tar")
    loader.set_epoch(1)
    assert sorted(key for batch in loader for key in keys_of(batch)) == sorted(made.keys)


@pytest.mark.parametrize("command", ["simulate", "bench"])
def test_commands_end_with_2(tmp_path: Path, command: str) -> None:
    (tmp_path / "graph.py").write_text(
        "import uio_pipes as uio\n"
        f"p = uio.from_shard_list(['{tmp_path}/none.tar']).decode_audio().fbank(80).batch(2).pad()\n"
    )
    done = uio_command(command, f"{tmp_path}/graph.py:p")
    assert done.returncode == 2
    assert "nothing could be read" in done.stderr
    assert "no such file" in done.stderr


# What an epoch leaves out, and lanes without data


def test_lanes_without_list_items_are_named_at_the_start(
    tmp_path: Path, plain_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    made = corpus.shards(tmp_path, [2, 2, 2], seconds=(0.1, 0.2))
    graph = uio.from_shard_list(made.list).decode_audio().batch(2)
    list(uio.Loader(graph, lanes=8))
    assert "5 of 8 lanes have nothing to deliver (of number 3, 4, 5, 6, 7), as there are only 3" in caplog.text
    assert "more (smaller) shards" in caplog.text
    caplog.clear()
    list(uio.Loader(graph, lanes=3))
    list(uio.Loader(uio.list_files(plain_corpus.list).take(6).sharding_filter().open_files().load_from_tar(), lanes=6))
    assert caplog.text == ""
    list(uio.Loader(uio.list_files(plain_corpus.list).take(2).sharding_filter().open_files().load_from_tar(), lanes=6))
    assert "4 of 6 lanes have nothing" in caplog.text


def test_an_epoch_of_steps_of_one_rank_names_what_failed_and_no_ranks(tmp_path: Path) -> None:
    with pytest.raises(
        uio.UioError, match=r"a whole pass over the data gave no utterance\. 3 failed \(3 as missing_file\)"
    ):
        list(uio.Loader(missing(tmp_path, 3), steps_per_epoch=3))


def test_what_failed_adds_up() -> None:
    graph = uio.from_iterable([]).filter(max_frames=10)
    skipped = {"missing_file": 9, "suspect": 4, "bad_audio": 5, "too_long": 3, "a": 2, "b": 1, "c": 1}
    told = Losses(failures=18, skipped=skipped, example="x").describe(graph)
    assert "left out 3 as too_long" in told
    assert "18 failed (9 as missing_file, 5 as bad_audio, 2 as a, 2 for other reasons); for example x" in told
    assert told.endswith("; 4 noted as suspect")
    told = Losses(failures=1, skipped={"no_audio": 8, "missing_file": 1}).describe(graph)  # an archive, and its rows
    assert told == "9 failed (8 as no_audio, 1 as missing_file)"
    assert Losses(failures=2, skipped={"bad_audio": 2, "suspect": 4}).only_failures
