"""The mini corpus: AISHELL-1's layout, the same bytes for a seed, no sentence in two parts."""

import os
from pathlib import Path

import pytest
import soundfile
from files import check_stays, digests

pytest.importorskip("espeakng_loader")

from recipes.aishell.layout import SPLITS
from recipes.aishell.mini import make_mini
from recipes.aishell.plan import Settings, make_plan, settings_for, sizes
from recipes.aishell.sentences import split_of
from recipes.common.corpus import OtherCorpus, SpeakingFailed, in_fresh_processes

SETTINGS = Settings(seed=3, utterances=60)  # more than one block for each of two processes


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    assert make_mini(root, SETTINGS, jobs=2)
    return root


def test_layout_is_aishells(corpus: Path) -> None:
    assert (corpus / "data_aishell/wav/train/S0002/BAC009S0002W0122.wav").is_file()
    for split in SPLITS:
        wavs = list((corpus / "data_aishell" / "wav" / split).glob("S*/BAC009S*W*.wav"))
        assert len(wavs) == sizes(SETTINGS)[split]
        assert all(wav.stem[6:11] == wav.parent.name for wav in wavs)


def test_recordings_are_16_khz_16_bit_mono_speech(corpus: Path) -> None:
    info = soundfile.info(corpus / "data_aishell/wav/train/S0002/BAC009S0002W0122.wav")
    assert (info.samplerate, info.subtype, info.channels) == (16_000, "PCM_16", 1)
    assert 0.5 < info.duration < 10
    samples, _ = soundfile.read(info.name)
    assert 0.02 < samples.std() < 0.5


def test_same_seed_gives_same_bytes_on_any_number_of_processes(corpus: Path, tmp_path: Path) -> None:
    make_mini(tmp_path, SETTINGS, jobs=1)
    assert digests(tmp_path) == digests(corpus)


def test_parts_share_neither_sentences_nor_speakers() -> None:
    plan = make_plan(settings_for(hours=1, seed=1))
    texts = {split: {u.text for u in plan if u.split == split} for split in SPLITS}
    speakers = {split: {u.key[6:11] for u in plan if u.split == split} for split in SPLITS}
    for parts in (texts, speakers):
        assert all(parts.values())
        assert len(set().union(*parts.values())) == sum(map(len, parts.values()))
    assert all(split_of(u.text) == u.split for u in plan)
    assert len({u.key for u in plan}) == len(plan)


def test_what_is_there_stays_and_so_does_a_real_corpus(corpus: Path, tmp_path: Path) -> None:
    check_stays(corpus, make_mini, SETTINGS, Settings(seed=4, utterances=60))
    (tmp_path / "data_aishell" / "wav").mkdir(parents=True)
    with pytest.raises(OtherCorpus, match="real AISHELL-1"):
        make_mini(tmp_path, SETTINGS)


def test_every_block_is_spoken_by_a_process_of_its_own() -> None:
    pids = list(in_fresh_processes(os.getpid, [()] * 4, jobs=2))
    assert len({*pids, os.getpid()}) == 5


def test_a_killed_process_is_an_error_and_no_hang() -> None:
    with pytest.raises(SpeakingFailed, match="start again"):
        list(in_fresh_processes(os._exit, [(1,)] * 3, jobs=2))
