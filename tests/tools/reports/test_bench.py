"""``uio bench``: clocks on every stage change nothing, and say where the time went. No test is decided by timing."""

import re
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.audio.decode import probe
from uio_pipes.base import clock
from uio_pipes.core.sample import Sample
from uio_pipes.tools.reports.bench import HEADERS, READING, Bench, Speed, StageCost, bench


def idle(sample: Sample) -> Sample:
    time.sleep(0.002)
    return sample


def slow_characters(text: str) -> list[int]:
    time.sleep(0.002)
    return [ord(character) for character in text]


def training(pipeline: uio.Pipeline) -> uio.Pipeline:
    audio = pipeline.map(idle).decode_audio().speed_perturb().filter(min_frames=20)
    audio = audio.map(idle, length="same").tokenize(slow_characters)
    return audio.fbank(num_mel_bins=8).shuffle(5).sort(4).dynamic_batch(500).pad()


def test_clocks_change_no_batch(plain_corpus: Corpus, raw_corpus: Corpus) -> None:
    sources = (uio.from_shard_list(plain_corpus.list, shuffle=True), uio.from_raw_list(raw_corpus.list))
    for pipeline in (training(sources[0]), training(uio.mix(sources, weights=[2, 1]))):
        plain = list(uio.Loader(pipeline, lanes=2, seed=3))
        timer = clock.start(short=0)
        clocked = list(uio.Loader(pipeline, lanes=2, seed=3))
        clock.stop()
        assert len(plain) > 2
        assert {"fbank", "pad", READING} <= {*timer.taken()[::3]}
        for a, b in zip(plain, clocked, strict=True):
            assert a["keys"] == b["keys"]
            assert torch.equal(a["feats"], b["feats"])


def test_every_stage_has_its_row(plain_corpus: Corpus) -> None:
    result = bench(training(uio.from_shard_list(plain_corpus.list)), seconds=0.3)
    rows = {row.stage: row for row in result.rows}
    stages = {
        "list_files",
        "load_from_tar",
        "map",
        "map (number 2)",
        "decode_audio",
        "speed_perturb",
        "fbank",
        "pad",
        READING,
    }
    assert stages <= rows.keys()
    assert sum(row.share for row in result.rows) == pytest.approx(1)
    assert min(rows[name].microseconds for name in ("map", "map (number 2)", "tokenize")) > 1500, "each sleeps for 2000"
    assert result.workers is None


def test_headers_have_a_row_of_their_own_whichever_stage_asks_first(
    raw_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(head: bytes, size: int) -> object:
        time.sleep(0.002)
        return probe(head, size)

    monkeypatch.setattr("uio_pipes.audio.length.probe", slow)
    pipeline = uio.from_raw_list(raw_corpus.list).decode_audio().filter(min_frames=2).batch(4).pad()
    rows = {row.stage: row for row in bench(pipeline, seconds=0.3).rows}
    assert rows[HEADERS].microseconds > 1500, "it sleeps for 2000"
    assert rows["filter"].microseconds < 1500


def test_workers_are_measured_too(plain_corpus: Corpus) -> None:
    result = bench(training(uio.from_shard_list(plain_corpus.list)), seconds=0.3, num_workers=2)
    assert result.workers is not None
    assert result.workers.utterances > 0


def test_a_pipeline_that_gives_nothing_is_an_error(plain_corpus: Corpus) -> None:
    empty = uio.from_shard_list(plain_corpus.list).decode_audio().filter(min_frames=9_000).batch(2).pad()
    with pytest.raises(uio.TooManyFailures, match=r"filter\(min_frames=9000\) left out 25 as too_short"):
        bench(empty, seconds=0.1)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        (
            lambda p: p.shuffle(9).batch(3),
            r"wait \d+\.\d% of the time for .*max_frames=\d+\) in place of .*\.batch\(…\)",
        ),
        (lambda p: p.bucket_batch(max_frames=60), None),  # which is the line that mends it
    ],
)
def test_what_ranks_would_lose_is_told_with_the_line_that_mends_it(
    batches: Callable[[uio.Pipeline], uio.Pipeline], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uio_pipes.tools.reports.bench.RANKS", 2)
    lengths = np.random.default_rng(1).integers(3, 20, 80).tolist()
    items = [{"key": str(i), "feat": np.zeros((n, 1), np.float32), "txt": ""} for i, n in enumerate(lengths)]
    advice = bench(batches(uio.from_iterable(items)).pad(), seconds=0.3).advice
    assert re.search(told, advice[-1]) if told else "wait" not in "".join(advice), advice


def found(*shares: tuple[str, float], workers: float | None = None, epochs: int = 1) -> Bench:
    rows = [StageCost(stage, share * 1000, share) for stage, share in shares]
    many = None if workers is None else Speed(int(workers), 1, 0.1, 1.0, 0.1, epochs, "")
    return Bench(rows, Speed(1000, 10, 0.1, 1.0, 0.1, 1, ""), 4 if many else 0, many, 0)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (found((READING, 0.5), ("load_from_tar", 0.2), ("fbank", 0.3)), "reading takes 70% .*local disk"),
        (found((HEADERS, 0.6), ("fbank", 0.4)), "headers takes 60% .*uio index and from_tar_index"),
        (found((HEADERS, 0.2), (READING, 0.3), ("fbank", 0.5)), "reading takes 50%"),
        (
            found(("read/resample (number 2)", 0.6), ("fbank", 0.4)),
            r"resample \(number 2\) takes 60%.*uio pack --resample",
        ),
        (found(("map (number 2)", 0.6), ("fbank", 0.4)), r"map \(number 2\) takes 60%.*profile it"),
        (found(("sort", 0.6), ("fbank", 0.4)), "sort takes 60%.*more workers share it"),
        (found(("fbank", 0.3), ("resample", 0.3), ("pad", 0.3)), "no stage dominates"),
        (
            found(("fbank", 0.6), workers=1200),
            "^4 workers give 1,200 utterances a second instead of 1,000: .*fewer workers.*; fbank takes 60%",
        ),
        (found(("fbank", 0.6), workers=3900), "^4 workers give 3,900 .* instead of 1,000: add workers .*; fbank"),
        (found(("fbank", 0.6), workers=1200, epochs=9), "^the data are too few .*; take 2,000 utterances; fbank"),
    ],
)
def test_advice_names_what_dominates(result: Bench, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uio_pipes.tools.reports.bench.cores", lambda: 8)
    assert re.search(words, "; ".join(result.advice))


def test_no_more_workers_than_cores_are_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uio_pipes.tools.reports.bench.cores", lambda: 4)
    advice = found(("fbank", 0.6), workers=3900).advice[0]
    assert advice.endswith("instead of 1,000: this machine has 4 cores")
