"""Corpora that many tests read (and none writes to)."""

from __future__ import annotations

import os
from pathlib import Path

import corpus
import kaldi_data
import pytest
import shar_corpus as shar_files
from corpus import Corpus
from kaldi_data import KaldiCorpus


def _tool_missing(report: pytest.CollectReport | pytest.TestReport) -> bool:
    return report.skipped and "could not import" in str(report.longrepr)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):  # type: ignore[no-untyped-def]
    """A user may lack a tool, and its tests are skipped; .ci/run installs all of them, so there that is a failure."""
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("UIO_REQUIRE_ALL") and _tool_missing(report):
        report.outcome = "failed"
        report.longrepr = f"UIO_REQUIRE_ALL: {report.longrepr}"


@pytest.fixture(scope="session")
def plain_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus.shards(tmp_path_factory.mktemp("plain"), [5, 3, 6, 4, 2, 5], seconds=(0.3, 1.5))


@pytest.fixture(scope="session")
def gz_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus.shards(tmp_path_factory.mktemp("gz"), [4, 7, 3, 5], seconds=(0.3, 1.5), compress="gz")


@pytest.fixture(scope="session")
def bad_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Shards of which five are damaged, each in another way."""
    sizes = [4, 5, 3, 4, 5, 6, 3]
    return corpus.shards(tmp_path_factory.mktemp("bad"), sizes, seconds=(0.3, 1.5), damage=tuple(corpus.DAMAGE))


@pytest.fixture(scope="session")
def bad_gz_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """As ``bad_corpus``, in gzip streams that are sound themselves."""
    sizes = [4, 5, 3, 4, 5, 6, 3]
    folder = tmp_path_factory.mktemp("bad_gz")
    return corpus.shards(folder, sizes, seconds=(0.3, 1.5), compress="gz", damage=tuple(corpus.DAMAGE))


@pytest.fixture(scope="session")
def raw_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus.raw_list(tmp_path_factory.mktemp("raw"), 23)


@pytest.fixture(scope="session")
def feature_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus.feature_shards(tmp_path_factory.mktemp("features"), [6, 2, 7, 5])


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Forty-eight short utterances in 24 shards: for topologies up to 4 × 4."""
    return corpus.shards(tmp_path_factory.mktemp("many"), [2, 3, 1, 2] * 6, seconds=(0.3, 0.8))


@pytest.fixture(scope="session")
def kaldi_corpus(tmp_path_factory: pytest.TempPathFactory) -> KaldiCorpus:
    return kaldi_data.recordings(tmp_path_factory.mktemp("kaldi"), 14, segments=True)


@pytest.fixture(scope="session")
def shar_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shar_files.shar(tmp_path_factory.mktemp("shar"), [5, 3, 6, 2, 4])
