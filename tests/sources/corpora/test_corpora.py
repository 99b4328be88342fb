"""``from_corpus``: every published corpus, made small in each form that it is published in, delivers the keys, texts,
speakers, languages and sounds that it was made of, counts what it leaves out, and resumes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from corpora_small import BUILDS, ONE_FORM, Making, Said, made

import uio_pipes as uio

FORMS = [
    (name, downloaded)
    for name in BUILDS
    for downloaded in ((True,) if name in ONE_FORM else (False, True))
]  # fmt: skip
CHOICES: dict[str, dict[str, str]] = {"vctk": {"mic": "mic1"}}
LOSSY = 0.06  # seconds by which lossy codecs may make an utterance longer or shorter
Found = dict[str, uio.Sample]


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: f"{form[0]}-{'downloaded' if form[1] else 'extracted'}")
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Making]:
    name, downloaded = request.param
    return name.partition("/")[0], made(name, tmp_path_factory.mktemp("corpus"), downloaded)


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
    name, making = small
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
    parts = [part for part in card.train if part in there][: 1 if card.nested else None]
    wanted = Counter(said.key for said in making.said if said.part in parts)
    assert Counter(sample["key"] for batch in loader(name, making, lanes=1) for sample in batch) == wanted


@pytest.mark.parametrize("lanes", [1, 3])
def test_it_resumes_in_the_middle(small: tuple[str, Making], lanes: int) -> None:
    name, making = small
    loading = loader(name, making, lanes=lanes)
    states, keys = [loading.state_dict()], []
    for batch in loading:
        keys.append([sample["key"] for sample in batch])
        states.append(loading.state_dict())
    middle = len(keys) // 2
    again = loader(name, making, lanes=lanes)
    again.load_state_dict(states[middle])
    assert [[sample["key"] for sample in batch] for batch in again] == keys[middle:]
    assert again.stats().skipped == loading.stats().skipped
