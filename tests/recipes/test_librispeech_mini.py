"""The mini LibriSpeech: read by the field's own readers, the same bytes for a seed, no sentence in two parts."""

import shutil
from pathlib import Path

import pytest
import soundfile
from files import check_stays

pytest.importorskip("espeakng_loader")

from recipes.common.corpus import OtherCorpus
from recipes.common.spoken import Settings
from recipes.librispeech.layout import DEV_PARTS, TEST_PARTS
from recipes.librispeech.mini import make_mini
from recipes.librispeech.plan import MINI_PARTS, make_plan, sizes

SETTINGS = Settings(seed=3, utterances=30)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    assert make_mini(root, SETTINGS, jobs=2)
    return root


def test_torchaudio_reads_it(corpus: Path) -> None:
    torchaudio = pytest.importorskip("torchaudio")
    texts = {utterance.key: utterance.text for utterance in make_plan(SETTINGS)}
    for part in MINI_PARTS:
        read = torchaudio.datasets.LIBRISPEECH(corpus, part)
        assert len(read) == sizes(SETTINGS)[part]
        for number in range(len(read)):
            path, rate, text, speaker, chapter, utterance = read.get_metadata(number)
            key = Path(path).stem
            assert (rate, text) == (16_000, texts.pop(key))
            assert key == f"{speaker}-{chapter}-{utterance:04d}"
    assert not texts


def test_recordings_are_16_khz_flac_and_those_of_other_are_noisier(corpus: Path) -> None:
    softest = {}
    for part in ("test-clean", "test-other"):
        paths = sorted((corpus / "LibriSpeech" / part).rglob("*.flac"))
        info = soundfile.info(paths[0])
        assert (info.format, info.samplerate, info.subtype, info.channels) == ("FLAC", 16_000, "PCM_16", 1)
        heads = [soundfile.read(path, dtype="int16")[0][:160] for path in paths]
        softest[part] = min(head.std() for head in heads)  # before the first word
    assert softest["test-clean"] < 10 < softest["test-other"]


def test_the_table_of_speakers_has_all(corpus: Path) -> None:
    head, *lines = (corpus / "LibriSpeech" / "SPEAKERS.TXT").read_text().splitlines()
    assert head.startswith(";")
    rows = [[field.strip() for field in line.split("|")] for line in lines]
    folders = {(path.name, path.parent.name) for path in (corpus / "LibriSpeech").glob("*-*/*")}
    assert {(row[0], row[2]) for row in rows} == folders
    seconds = sum(soundfile.info(path).duration for path in corpus.rglob("*.flac"))
    assert sum(float(row[3]) for row in rows) == pytest.approx(seconds / 60, abs=0.05)


def test_parts_share_neither_sentences_nor_speakers() -> None:
    plan = make_plan(Settings(seed=1, utterances=700))
    assert len({u.key for u in plan}) == len(plan)
    speakers = [{u.key.split("-")[0] for u in plan if u.split == part} for part in MINI_PARTS]
    assert len(set().union(*speakers)) == sum(map(len, speakers))
    kinds = [("train-clean-100",), DEV_PARTS, TEST_PARTS]
    texts = [{u.text for u in plan if u.split in parts} for parts in kinds]
    assert len(set().union(*texts)) == sum(map(len, texts))
    assert {u.voice.language for u in plan if u.split == "train-clean-100"} == {"en-us", "en-gb-x-rp"}


def test_what_is_there_stays(corpus: Path, tmp_path: Path) -> None:
    check_stays(corpus, make_mini, SETTINGS, Settings(seed=4, utterances=30))
    shutil.copytree(corpus / "LibriSpeech" / "dev-clean", tmp_path / "LibriSpeech" / "dev-clean")
    with pytest.raises(OtherCorpus, match="real LibriSpeech"):
        make_mini(tmp_path, SETTINGS)
