"""Hugging Face's ``datasets`` through ``from_iterable``: real objects, no map of the user's, exact in resuming."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import Case, check_cuts, digest, record
from corpus import wav_bytes
from datasets import Audio, Dataset, DatasetDict, concatenate_datasets, interleave_datasets, load_dataset
from parquet_corpus import rows, write
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker

import uio_pipes as uio
from uio_pipes.sources.iterable import decoded_columns, loses_items, way_of_next

NAMES = {"key": "id", "wav": "audio", "txt": "text"}


def undecoded(count: int = 23, first: int = 0) -> Dataset:
    return Dataset.from_list(rows(count, first)).cast_column("audio", Audio(decode=False))


def streamed(count: int = 23) -> Any:
    return undecoded(count).to_iterable_dataset(num_shards=min(count, 4))


DATA: dict[str, tuple[Callable[[], Any], str]] = {
    "map_style": (undecoded, "resumes at its number"),
    "map_style_shuffled": (lambda: undecoded().shuffle(seed=3), "resumes at its number"),
    "iterable": (streamed, "own state_dict"),
    "iterable_mapped": (
        lambda: streamed().map(lambda r: {"text": r["text"] + "!"}).filter(lambda r: r["speaker_id"]),
        "own state_dict",
    ),
    "shards_shuffled": (lambda: streamed().shuffle(seed=3, buffer_size=1), "own state_dict"),
    "shuffled": (lambda: streamed().shuffle(seed=3, buffer_size=8), "skipping"),
    "shuffled_then_mapped": (
        lambda: streamed().shuffle(seed=3, buffer_size=8).map(lambda r: {"text": r["text"] + "!"}),
        "skipping",
    ),
    "interleaved": (
        lambda: interleave_datasets([streamed(9), undecoded(9, 50).to_iterable_dataset()], [0.5, 0.5], seed=1),
        "own state_dict",
    ),
    "concatenated_shuffled": (
        lambda: concatenate_datasets([streamed(9).shuffle(seed=3, buffer_size=5), streamed(5)]),
        "skipping",
    ),
}


def graph(name: str) -> uio.Pipeline:
    source = uio.from_iterable(DATA[name][0](), fields=NAMES).sharding_filter()
    return source.decode_audio().fbank(num_mel_bins=8, dither=0.1).shuffle(4).batch(2).pad()


@pytest.mark.parametrize("name", DATA)
def test_a_dataset_is_delivered_once_and_resumed_anywhere(name: str) -> None:
    pipeline = graph(name)
    assert DATA[name][1] in str(pipeline)
    for options in ({}, {"lanes": 3}):
        recorded = record(Case(pipeline, options))
        assert sorted(recorded.keys) == sorted(row["id"] for row in DATA[name][0]())
        check_cuts(recorded, range(len(recorded.digests) + 1))


@pytest.mark.parametrize("name", ["map_style", "iterable", "shuffled", "interleaved"])
def test_in_workers_and_on_other_ranks(name: str) -> None:
    pipeline, options = graph(name), {"seed": 5, "lanes": 4, "uneven": "join"}
    whole = [digest(b) for b in uio.Loader(pipeline, **options)]  # type: ignore[arg-type]
    loader = uio.Loader(pipeline, num_workers=2, **options)  # type: ignore[arg-type]
    batches = iter(loader)
    assert [digest(next(batches)) for _ in range(3)] == whole[:3]
    state = loader.state_dict()
    assert [digest(b) for b in batches] == whole[3:]
    rest = []
    for rank in range(2):
        other = uio.Loader(pipeline, rank=rank, world_size=2, num_workers=1, **options)  # type: ignore[arg-type]
        other.load_state_dict(state)
        rest += [digest(b) for b in other]
    assert sorted(rest) == sorted(whole[3:])


def test_a_shuffled_dataset_has_another_order_in_each_epoch() -> None:
    loader = uio.Loader(uio.from_iterable(streamed().shuffle(seed=3, buffer_size=8), fields=NAMES))
    first, second = ([s["key"] for s in loader] for _ in range(2))
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_streamed_parquet_file(tmp_path: Path) -> None:
    file = write(tmp_path / "train.parquet", rows(11))
    data = load_dataset("parquet", data_files=str(file), split="train", streaming=True)
    pipeline = uio.from_iterable(data.cast_column("audio", Audio(decode=False)), fields=NAMES).decode_audio().batch(2)
    mine = uio.from_parquet(file).decode_audio().batch(2)
    recorded = record(Case(pipeline))
    assert recorded.keys == record(Case(mine)).keys
    check_cuts(recorded, range(len(recorded.digests) + 1))


def test_bytes_come_before_the_path_and_null_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(7))
    path = str(tmp_path / "a.wav")
    given = [
        {"id": "b", "audio": {"bytes": wav_bytes(1), "path": path}},
        {"id": "p", "audio": {"bytes": None, "path": path}},
        {"id": "n", "audio": {"bytes": None, "path": None}},
    ]
    data = Dataset.from_list(given).cast_column("audio", Audio(decode=False))
    loader = uio.Loader(uio.from_iterable(data, fields={"key": "id", "wav": "audio"}).decode_audio())
    got = {s["key"]: s["wav"].shape[1] for s in loader}
    assert got == {"b": (len(wav_bytes(1)) - 44) // 2, "p": (len(wav_bytes(7)) - 44) // 2}
    assert loader.stats().skipped == {"missing_audio": 1}


def test_decoded_arrays_are_taken_with_their_rate() -> None:
    samples = np.arange(-40, 40, dtype=np.float32) / 100
    items = [
        {"audio": {"array": samples, "sampling_rate": 8000}},
        {"audio": {"array": samples.tolist(), "sampling_rate": 8000}},
        {"audio": {"array": samples}},
    ]
    loader = uio.Loader(uio.from_iterable(items, fields={"wav": "audio"}).decode_audio())
    got = list(loader)
    assert [s["sample_rate"] for s in got] == [8000, 8000]
    assert all(np.array_equal(s["wav"][0].numpy(), samples) for s in got)
    assert loader.stats().skipped == {"missing_sample_rate": 1}


def test_a_dataset_that_would_decode_is_refused_with_the_remedy() -> None:
    data = Dataset.from_list(rows(3)).cast_column("audio", Audio())
    for items in (data, data.to_iterable_dataset()):
        with pytest.raises(uio.PipelineError, match=r'cast_column\("audio", Audio\(decode=False\)\)'):
            uio.from_iterable(items, fields=NAMES)


@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_numbers_of_torch_and_numpy_are_numbers(form: str) -> None:
    """The duration becomes float32, in which 2.06 is 2.0599999; as 2.06 it may stand for up to 2.07 s."""
    samples = [0.1] * int(2.0649 * 8000)
    item = {"id": "a", "audio": samples, "text": "a", "duration": 2.06, "rate": 8000, "speaker": 3}
    data = Dataset.from_list([item]).with_format(form)
    source = uio.from_iterable(data, fields={**NAMES, "sample_rate": "rate"})
    (batch,) = uio.Loader(source.decode_audio().batch(1).pad())
    assert batch["pcm"].shape == (1, len(samples))
    assert batch["speaker"].tolist() == [3]
    with_path = Dataset.from_list([{**r, "duration": 2.06} for r in rows(3)]).cast_column("audio", Audio(decode=False))
    loader = uio.Loader(uio.from_iterable(with_path.with_format(form), fields=NAMES).decode_audio().batch(3).pad())
    assert len(next(iter(loader))["keys"]) == 3


def test_rows_of_another_format_are_refused_with_the_remedy() -> None:
    with pytest.raises(uio.PipelineError, match=r"item 0 must be a mapping.*not Table.*\.with_format\(None\)"):
        list(uio.Loader(uio.from_iterable(undecoded(3).with_format("arrow"), fields=NAMES)))


def test_a_column_that_is_not_there_is_refused_at_once() -> None:
    for items in (undecoded(3), streamed()):
        with pytest.raises(uio.ListError, match=r"asks for 'sentence', .* it has id, audio, text"):
            uio.from_iterable(items, fields={**NAMES, "txt": "sentence"})
        with pytest.raises(uio.ListError, match=r"comes first, write fields=\{\"wav\": \"audio\"\}"):
            uio.from_iterable(items, fields={"audio": "wav"})


def test_a_field_that_no_column_has_is_missed_when_the_pipeline_is_described() -> None:
    for items in (undecoded(3), streamed(3)):
        with pytest.raises(uio.PipelineError, match=r"decode_audio works on wav, .* has id, audio, text, .*\"audio\""):
            uio.from_iterable(items).shuffle(3).decode_audio()
        with pytest.raises(uio.PipelineError, match=r"tokenize works on txt, .* write fields=\{.*\"txt\": \"text\""):
            uio.from_iterable(items, fields={"wav": "audio"}).decode_audio().tokenize(list)
        made = uio.from_iterable(items).map(lambda sample: {**sample, "wav": sample["audio"]["bytes"]})
        assert len(list(uio.Loader(made.decode_audio()))) == 3
        uio.from_iterable(items).tag({"txt": "the same"}).tokenize(list)


def test_audio_of_a_data_set_that_a_map_hands_on_as_it_is_says_what_to_do() -> None:
    made = uio.from_iterable(undecoded(3)).map(lambda sample: {**sample, "wav": sample["audio"]})
    with pytest.raises(uio.TooManyFailures, match=r"wav is a dict of bytes, path, .* its bytes, or leave the map out"):
        list(uio.Loader(made.decode_audio().batch(2).pad()))


def test_all_splits_together_are_refused() -> None:
    data = DatasetDict(train=undecoded(3), test=undecoded(2))
    with pytest.raises(uio.PipelineError, match=r"one split.*choose one of train, test: data\['train'\]"):
        uio.from_iterable(data, fields=NAMES)


def test_a_decoder_that_comes_anyway_is_refused_with_the_remedy() -> None:
    class AudioDecoder:
        """As torchcodec's, which datasets yield."""

    with pytest.raises(uio.PipelineError, match=r"item 0 is an audio decoder.*decode=False"):
        list(uio.Loader(uio.from_iterable([{"wav": AudioDecoder()}])))


def test_in_another_loader_with_workers_of_its_own() -> None:
    dataset = uio.from_iterable(streamed().shuffle(seed=3, buffer_size=8), fields=NAMES).sharding_filter().batch(2)
    for workers in (0, 2):
        loader = DataLoader(dataset.as_dataset(lanes=4), batch_size=None, num_workers=workers)
        assert sorted(s["key"] for batch in loader for s in batch) == [f"P{i:04d}" for i in range(23)]


def test_what_we_use_of_the_inside_of_datasets() -> None:
    assert decoded_columns(Dataset.from_list(rows(3)).cast_column("audio", Audio())) == ["audio"]
    assert decoded_columns(undecoded(3)) == decoded_columns([]) == []
    assert loses_items(streamed().shuffle(seed=1, buffer_size=2))
    assert not loses_items(streamed())
    assert not loses_items(undecoded(3))
    assert way_of_next(streamed()) is not next
    assert way_of_next(undecoded(3)) is next
    assert hasattr(worker, "_worker_info")
