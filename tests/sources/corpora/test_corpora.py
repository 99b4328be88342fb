"""``from_corpus``: every published corpus, made small in each form that it is published in, delivers the keys, texts,
speakers, languages and sounds that it was made of, counts what it leaves out, and resumes."""

from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from corpora_small import BUILDS, ONE_FORM, Making, Said, made

import uio_pipes as uio
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.corpora.card import largest
from uio_pipes.sources.corpora.finding import find
from uio_pipes.sources.corpora.source import CORPORA

FORMS = [
    (name, downloaded)
    for name in BUILDS
    for downloaded in ((True,) if name in ONE_FORM else (False, True))
]  # fmt: skip
CHOICES: dict[str, dict[str, str]] = {"vctk": {"mic": "mic1"}}
MISLEADING = "train_a/data/mls_data/asr_x/covost_v2.xx_yy/[old]"  # what no part and no language may be taken from
LOSSY = 0.06  # seconds by which lossy codecs may make an utterance longer or shorter
Found = dict[str, uio.Sample]


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: f"{form[0]}-{'downloaded' if form[1] else 'extracted'}")
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Making]:
    name, downloaded = request.param
    return name.partition("/")[0], made(name, tmp_path_factory.mktemp("corpus") / MISLEADING, downloaded)


def loader(name: str, making: Making, part: str | None = None, **options: Any) -> uio.Loader:
    pipeline = uio.from_corpus(name, making.folder, part=part, **CHOICES.get(name, {}))
    return uio.Loader(pipeline.decode_audio().batch(2), **options)


def tone(sample: Any) -> tuple[float, float, float]:
    """The frequency that is loudest, the share of the power that is near it, and the length in seconds."""
    wav = np.asarray(sample["wav"], np.float64)
    wav = wav[0] if wav.ndim == 2 else wav
    rate = sample["sample_rate"]
    power = np.abs(np.fft.rfft(wav * np.hanning(len(wav)))) ** 2
    frequencies = np.fft.rfftfreq(len(wav), 1 / rate)
    peak = float(frequencies[power.argmax()])
    return peak, float(power[np.abs(frequencies - peak) < 25].sum() / power.sum()), len(wav) / rate


def check(sample: Any, said: Said) -> None:
    """The sample is the utterance: its fields, and its sound."""
    got = (sample.get("txt"), sample.get("speaker"), sample.get("lang") if said.lang else None)
    assert got == (said.txt, said.speaker, said.lang), said
    peak, share, seconds = tone(sample)
    assert abs(peak - said.tone) < 6, (said, peak)
    assert share > 0.9, (said, share)
    assert abs(seconds - said.seconds) < LOSSY, (said, seconds)
    if said.start is not None:
        assert (sample["start"], sample["end"]) == pytest.approx((said.start, said.end), abs=1e-6)


def test_every_part_is_delivered_and_what_is_left_out_is_counted(small: tuple[str, Making]) -> None:
    check_parts(*small)


def check_parts(name: str, making: Making) -> None:
    for part in dict.fromkeys(said.part for said in making.said):
        loading = loader(name, making, part, lanes=1)
        samples = [sample for batch in loading for sample in batch]
        wanted = {(said.key, said.lang): said for said in making.said if said.part == part}
        known = {key for key, lang in wanted if lang}  # in each language of a corpus, the same keys may stand
        found = [(sample["key"], sample.get("lang") if sample["key"] in known else None) for sample in samples]
        assert sorted(found, key=str) == sorted(wanted, key=str), part
        for name_and_lang, sample in zip(found, samples, strict=True):
            check(sample, wanted[name_and_lang])
        lost = Counter(loading.stats().skipped)
        expected = making.lost[part]
        assert {reason: lost[reason] for reason in expected} == dict(expected), (part, lost)
        assert set(lost) <= {*expected, "not_kept", "no_row"}, lost


def test_all_parts_are_read_together(small: tuple[str, Making]) -> None:
    name, making = small
    parts = list(dict.fromkeys(said.part for said in making.said))
    pipeline = uio.from_corpus(name, making.folder, part=parts, **CHOICES.get(name, {}))
    missing = {(said.key, said.tone) for said in making.said}  # parts hold each other in some corpora
    for batch in uio.Loader(pipeline.decode_audio().batch(2), lanes=1):
        for sample in batch:
            same = [said for said in making.said if (said.key, said.txt) == (sample["key"], sample.get("txt"))]
            said = min(same, key=lambda said: abs(said.tone - tone(sample)[0]))
            check(sample, said)
            missing.discard((said.key, said.tone))
    assert not missing


def test_training_data_are_read_by_default(small: tuple[str, Making]) -> None:
    name, making = small
    card = uio.sources.corpora.source.CORPORA[name]
    there = {said.part for said in making.said}
    parts = largest(card, [part for part in card.train if part in there])
    wanted = Counter(said.key for said in making.said if said.part in parts)
    assert Counter(sample["key"] for batch in loader(name, making, lanes=1) for sample in batch) == wanted


def test_it_resumes_in_the_middle(small: tuple[str, Making]) -> None:
    name, making = small
    loading = loader(name, making, lanes=2)
    states, keys = [loading.state_dict()], []
    for batch in loading:
        keys.append([sample["key"] for sample in batch])
        states.append(loading.state_dict())
    middle = len(keys) // 2
    again = loader(name, making, lanes=2)
    again.load_state_dict(states[middle])
    assert [[sample["key"] for sample in batch] for batch in again] == keys[middle:]
    assert again.stats().skipped == loading.stats().skipped


# Other places, to which a corpus that was made small is moved


def into(folder: str, *names: str) -> Callable[[Path], None]:
    def move(root: Path) -> None:
        (root / folder).mkdir(parents=True)
        for path in [root / name for name in names] if names else [p for p in root.iterdir() if p != root / folder]:
            path.rename(root / folder / path.name)

    return move


def archived(*names: str) -> Callable[[Path], None]:
    """Pack each folder into an archive: ``data_aishell.tgz`` of ``data_aishell``."""

    def pack(root: Path) -> None:
        for name in names:
            folder = root / name.partition(".")[0]
            with tarfile.open(root / name, "w:gz") as tar:
                tar.add(folder, folder.name)
            shutil.rmtree(folder)

    return pack


def upwards(folder: str) -> Callable[[Path], None]:
    def move(root: Path) -> None:
        for path in (root / folder).iterdir():
            path.rename(root / path.name)
        (root / folder).rmdir()

    return move


def in_small_letters(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.rename(path.with_name(path.name.lower()))


def of_one_microphone(root: Path) -> None:
    for path in root.glob("wav48_silence_trimmed/*/*_mic1.flac"):
        older = root / "wav48" / path.parent.name / path.name.replace("_mic1.flac", ".wav")
        older.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(older, *soundfile.read(path))
    shutil.rmtree(root / "wav48_silence_trimmed")


@pytest.mark.parametrize(
    ("name", "downloaded", "move", "form"),
    [
        ("aishell1", True, archived("data_aishell.tgz"), "as downloaded"),
        ("vctk", False, into("VCTK-Corpus-0.92"), "extracted"),
        ("vctk", False, of_one_microphone, "older, extracted"),
        ("timit", False, upwards("data"), "extracted, in capitals"),
        ("timit", False, in_small_letters, "extracted, in small letters"),
        ("timit", False, into("TIMIT", "data/TRAIN", "data/TEST"), "extracted, in capitals"),
        ("ami", False, upwards("ami_public_manual_1.6.2"), "extracted here"),
        ("ksponspeech", False, into("KsponSpeech_eval", "eval_clean", "eval_other"), "extracted"),
        ("covost2", True, archived("en.tar.gz", "sv-SE.tar.gz"), "as downloaded, audio as downloaded"),
        ("covost2", False, into("cv-corpus-4-2019-12-10", "en", "sv-SE"), "extracted, audio extracted"),
    ],
)  # fmt: skip
def test_other_places_are_found(
    tmp_path: Path, name: str, downloaded: bool, move: Callable[[Path], None], form: str
) -> None:
    making = made(name, tmp_path, downloaded)
    move(tmp_path)
    assert find(CORPORA[name], str(tmp_path), {}, PLAIN).layout.form == form
    check_parts(name, making)


@pytest.mark.parametrize("downloaded", [False, True])
def test_parts_for_limited_supervision(tmp_path: Path, downloaded: bool) -> None:
    making = made("mls", tmp_path, downloaded)
    train = [said for said in making.said if said.part == "train"]
    for part, wanted in {"9_hours": train[:2], "1_hours": train[2:]}.items():
        samples = [s for batch in loader("mls", making, part, lanes=1) for s in batch]
        assert sorted(sample["key"] for sample in samples) == sorted(said.key for said in wanted)
        for sample in samples:
            check(sample, next(said for said in wanted if said.key == sample["key"]))


def test_spgispeech_may_lie_beside_its_tables(tmp_path: Path) -> None:
    making = made("spgispeech", tmp_path, False)
    for part in (tmp_path / "spgispeech").iterdir():
        part.rename(tmp_path / part.name)
    (tmp_path / "spgispeech").rmdir()
    check_parts("spgispeech", making)
