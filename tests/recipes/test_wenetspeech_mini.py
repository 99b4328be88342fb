"""The mini corpus: WenetSpeech's layout and JSON, the same for a seed, with the faults that the real one has."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from files import check_stays

pytest.importorskip("espeakng_loader")
pytest.importorskip("ijson")

from recipes.aishell.sentences import split_of
from recipes.common.corpus import OtherCorpus
from recipes.wenetspeech.layout import BadMetadata, metadata_path, recordings
from recipes.wenetspeech.mini import make_mini
from recipes.wenetspeech.plan import HELD_OUT, NO_FILE, NO_TEXT, PAST_THE_END, Settings, make_plan

SETTINGS = Settings(seed=3, hours=0.015, minutes=0.3)  # 3 recordings of some 20 s to train on


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    assert make_mini(root, SETTINGS, jobs=2)
    return root


@pytest.fixture(scope="module")
def entries(corpus: Path) -> list[dict[str, Any]]:
    return list(recordings(corpus))


def test_json_has_the_real_ones_form(corpus: Path, entries: list[dict[str, Any]]) -> None:
    assert json.loads(metadata_path(corpus).read_text()) == {"audios": entries}
    assert len(entries) == 3 + 3 + 2
    for entry in entries:
        assert set(entry) == {"aid", "duration", "md5", "path", "source", "tags", "url", "segments"}
        assert entry["path"] == f"audio/{entry['path'].split('/')[1]}/{entry['source']}/B00000/{entry['aid']}.opus"
        for number, segment in enumerate(entry["segments"]):
            assert set(segment) == {"sid", "confidence", "begin_time", "end_time", "subsets", "text"}
            assert segment["sid"] == f"{entry['aid']}_S{number:05d}"


def test_recordings_are_opus_of_the_length_told(corpus: Path, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        if (corpus / entry["path"]).is_file():
            info = soundfile.info(corpus / entry["path"])
            assert (info.samplerate, info.channels, info.format, info.subtype) == (16_000, 1, "OGG", "OPUS")
            assert info.duration == pytest.approx(entry["duration"], abs=0.006)
            assert 10 < info.duration < 40


def test_segments_are_where_the_speech_is(corpus: Path, entries: list[dict[str, Any]]) -> None:
    entry = entries[0]
    samples, rate = soundfile.read(corpus / entry["path"])
    speech = np.zeros(len(samples), bool)
    for segment in entry["segments"]:
        speech[round(segment["begin_time"] * rate) : round(segment["end_time"] * rate)] = True
    assert samples[speech].std() > 20 * samples[~speech].std()


def test_subsets_follow_the_confidence(entries: list[dict[str, Any]]) -> None:
    segments = [segment for entry in list_of_many() for segment in entry]
    assert {subset for line in segments for subset in line[0]} == {"L", "M", "S", "W", *HELD_OUT.values()}
    for subsets, confidence in segments:
        if "W" in subsets:
            assert 0.6 <= confidence < 0.95
        elif "M" in subsets or "S" in subsets:
            assert confidence == 1.0
            assert "L" in subsets
        else:
            assert confidence >= 0.95
    assert all(0 <= segment["confidence"] <= 1 for entry in entries for segment in entry["segments"])


def list_of_many() -> list[list[tuple[tuple[str, ...], float]]]:
    return [[(line.subsets, line.confidence) for line in one.lines] for one in make_plan(Settings(1, 1.0))]


def test_it_has_the_faults_of_the_real_one(corpus: Path, entries: list[dict[str, Any]]) -> None:
    missing = [entry for entry in entries if not (corpus / entry["path"]).is_file()]
    assert len(missing) == 1
    assert missing[0]["segments"]
    present = [entry for entry in entries if entry not in missing]
    segments = [(entry, segment) for entry in present for segment in entry["segments"]]
    assert sum(segment["end_time"] > entry["duration"] + 1 for entry, segment in segments) == 1
    assert sum(segment["text"] == "" for _, segment in segments) == 1
    assert sum(not entry["segments"] for entry in present) == 1  # not labelled at all
    faults = Counter(line.fault for one in make_plan(SETTINGS) for line in one.lines)
    assert (faults[NO_TEXT], faults[PAST_THE_END]) == (1, 1)
    assert [one.fault for one in make_plan(SETTINGS) if one.fault] == [NO_FILE]


def test_no_sentence_of_the_tests_is_trained_on() -> None:
    for one in make_plan(Settings(1, 1.0)):
        part = one.path.split("/")[1]
        expected = {"train": "train", "dev": "dev"}.get(part, "test")
        assert all(split_of("".join(line.text.split())) == expected for line in one.lines if line.text)


def test_the_same_seed_says_the_same_on_any_number_of_processes(corpus: Path, tmp_path: Path) -> None:
    make_mini(tmp_path, SETTINGS, jobs=1)
    assert metadata_path(tmp_path).read_bytes() == metadata_path(corpus).read_bytes()
    for path in corpus.rglob("*.opus"):
        samples, again = (soundfile.read(root / path.relative_to(corpus))[0] for root in (corpus, tmp_path))
        assert np.array_equal(samples, again)


def test_what_is_there_stays_and_so_does_a_real_corpus(corpus: Path, tmp_path: Path) -> None:
    check_stays(corpus, make_mini, SETTINGS, Settings(4, SETTINGS.hours))
    (tmp_path / "audio").mkdir()
    with pytest.raises(OtherCorpus, match="real WenetSpeech"):
        make_mini(tmp_path, SETTINGS)


def test_metadata_that_breaks_off_is_an_error_and_no_shorter_corpus(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    metadata_path(tmp_path).write_bytes(metadata_path(corpus).read_bytes()[:-100])
    with pytest.raises(BadMetadata, match="fetch it again"):
        list(recordings(tmp_path))
