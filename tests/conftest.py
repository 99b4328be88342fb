"""Corpora that many tests read (and none writes to)."""

import fcntl
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import archive_files
import conversation_data
import corpus
import cuts_corpus
import huge_pages
import kaldi_data
import nemo_data
import pytest
import shar_corpus as shar_files
import torch
import touchdataset
from corpus import Corpus
from fault_server import FaultServer, serving
from hypothesis import HealthCheck, settings
from indexed_corpus import indexed
from kaldi_data import KaldiCorpus

import uio_pipes as uio
from uio_pipes.io import retry, shelf
from uio_pipes.run import empty_epochs

# All pools of a process are served by one process, which imports what the first of them names; others need torch, too.
forkserver.set_forkserver_preload = lambda names: forkserver._forkserver.set_forkserver_preload(
    [*names, "uio_pipes.tools.data.pack", "uio_pipes.tools.data.verify"]
)
retry.FIRST = 0.01  # seconds: the servers of tests fail on purpose, and are well when they are asked again

# Timing decides no test, on a busy machine neither.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):  # type: ignore[no-untyped-def]
    """Skip a test that looks into ``/proc`` where there is none, as on macOS."""
    try:
        return (yield)
    except FileNotFoundError as error:
        if str(error.filename).startswith("/proc") and not Path("/proc/self").exists():
            pytest.skip(f"there is no {error.filename}")
        raise


# Folders and files of tests that take long: `scripts/test`, which has some minutes, leaves them out, `--all` does not.
SLOW = frozenset(
    [
        "benchmarks",
        "browser",
        "gpu",
        "interop",
        "recipes",
        "sweeps",
        "test_accelerate",
        "test_archives",
        "test_auto_workers",
        "test_bad_input",
        "test_chunk_parts",
        "test_clean_end",
        "test_corpora",
        "test_crash",
        "test_datapipes",
        "test_docs",
        "test_early_start",
        "test_epochs",
        "test_every_source",
        "test_faults",
        "test_finding",
        "test_fit_budget",
        "test_generated_graphs",
        "test_hf_trainer",
        "test_lightning",
        "test_lost_workers",
        "test_memory",
        "test_mesh",
        "test_mixes",
        "test_mpeg",
        "test_numbering",
        "test_other_systems",
        "test_packaging",
        "test_peers",
        "test_perturbation",
        "test_ray_workers",
        "test_remote",
        "test_shares",
        "test_sharing",
        "test_site",
        "test_skip",
        "test_slow_disk",
        "test_stall",
        "test_stream",
        "test_torch_loaders",
        "test_tour",
        "test_trackers",
    ]
)


def _is_slow(path: Path) -> bool:
    return not SLOW.isdisjoint(path.relative_to(Path(__file__).parent).with_suffix("").parts)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, what they import (half of all that tests import, by time) is not imported."""
    return True if config.option.markexpr == "not slow" and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item.path):
            item.add_marker("slow")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No machine of .ci/run need have a GPU: ``scripts/gpu`` runs these tests on one that has."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("there is no CUDA GPU; scripts/gpu runs this where there is one")


def pytest_collection_finish() -> None:
    """Garbage collections, of which tests of leaks make many, pass over the millions of objects that stay, and forks,
    as which workers start, share them in huge pages."""
    gc.collect()
    gc.freeze()
    huge_pages.collapse()


@pytest.fixture(autouse=True, scope="module")
def _loses_on_purpose(request: pytest.FixtureRequest) -> Iterator[None]:
    """Many tiny corpora lose much on purpose. The limit of what settings may lose holds in ``run`` and ``inspect``."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    with pytest.MonkeyPatch.context() as patch:
        if folder not in ("run", "inspect") or request.path.stem == "test_clean_end":
            patch.setattr(empty_epochs, "FEWEST", 1 << 30)
        yield


@pytest.fixture(autouse=True)
def _own_shelves() -> Iterator[None]:
    """No test finds what ``.cache`` holds in memory of another one's."""
    yield
    shelf._shelves.clear()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let the threads of a test take turns far more often than usual, to find what they do to one another."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that scripts/docs filled, once for all processes of this run."""
    if sys.version_info < (3, 11):
        pytest.skip("Zensical needs Python 3.11")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site").exists():
            if (made := _docs("--help")).returncode:  # which makes its environment
                give_up = pytest.fail if "UIO_REQUIRE_ALL" in os.environ else pytest.skip
                give_up(f"requirements/docs.txt cannot be installed here: {made.stderr[-500:]}")
            done = _docs("--folder", shared / "making")
            assert done.returncode == 0, done.stdout + done.stderr
            (shared / "making").rename(shared / "site")
    return shared / "site"


def _docs(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(__file__).parents[1] / "scripts" / "docs"), *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True)


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


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def kaldi_corpus(tmp_path_factory: pytest.TempPathFactory) -> KaldiCorpus:
    return kaldi_data.recordings(tmp_path_factory.mktemp("kaldi"), 14, segments=True)


@pytest.fixture(scope="session")
def shar_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shar_files.shar(tmp_path_factory.mktemp("shar"), [5, 3, 6, 2, 4])


@pytest.fixture(scope="session")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuts_corpus.cuts(tmp_path_factory.mktemp("cuts"), 21)


@pytest.fixture(scope="session")
def tar(plain_corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(plain_corpus.list, shuffle=True)


@pytest.fixture(scope="session")
def tar_index(plain_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    folder = tmp_path_factory.mktemp("indexes")
    indexed(plain_corpus.list, folder)
    return uio.from_tar_index(plain_corpus.list, shuffle=True, verify="crc", indexes=str(folder))


@pytest.fixture(scope="session")
def touch(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    utterances, root = touchdataset.speech(23), tmp_path_factory.mktemp("touch")
    folders = [touchdataset.write(root / str(i), utterances[9 * i : 9 * i + 9]) for i in range(3)]
    return uio.from_indexed(folders, shuffle=True)


@pytest.fixture(scope="session")
def nemo(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    data = nemo_data.tarred(tmp_path_factory.mktemp("nemo"), [4, 5, 4])
    return uio.from_nemo(data.manifests, data.tars, shuffle=True)


@pytest.fixture(scope="session")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    root = tmp_path_factory.mktemp("conversations")
    return uio.from_conversations(conversation_data.every_shape(root, 4), shuffle=True)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[uio.Pipeline]:
    """A pair of texts with blank lines, and JSON lines."""
    root = tmp_path_factory.mktemp("text")
    (root / "a.zh").write_text("".join(f"文{i}\n" if i % 5 else "\n" for i in range(16)))
    (root / "a.en").write_text("".join(f"text {i}\n" for i in range(16)))
    (root / "a.jsonl").write_text("".join(json.dumps({"text": f"文{i}", "id": i}) + "\n" for i in range(13)))
    pair = uio.from_text({"txt": root / "a.zh", "target": root / "a.en"}, shuffle=True)
    return [pair, uio.from_jsonl(root / "a.jsonl", shuffle=True)]


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    from parquet_corpus import rows as parquet_rows  # needs pyarrow, which most tests can do without
    from parquet_corpus import write as write_parquet

    folder = tmp_path_factory.mktemp("parquet")
    for number, count in enumerate((13, 5, 9)):
        write_parquet(folder / f"train-{number}.parquet", parquet_rows(count, 20 * number))
    return uio.from_parquet(str(folder / "*.parquet"), shuffle=True)


@pytest.fixture(scope="session")
def table(raw_corpus: Corpus) -> uio.Pipeline:
    """A table that names files, with segments of some; one row is left out on purpose, and one is damaged."""
    raw = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    rows: list[dict[str, object]] = [{"audio": each["wav"], "text": each["txt"], "about": each["key"]} for each in raw]
    cut = [{**row, "from": 0.05 * n, "to": 0.05 * n + 0.2} for n, row in enumerate(rows[:4])]
    names = {"key": "{about}{from or ''}", "wav": "audio", "txt": "text", "start": "from", "end": "to"}
    given = [*rows, *cut, {"audio": "", "text": "", "about": "bad"}]
    return uio.from_table(given, fields=names, drop={"about": raw[1]["key"]}, shuffle=True)


@pytest.fixture(scope="session")
def archived(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    """Tars, compressed and plain, which are read in their order: members of no, one and several rows."""
    folder = tmp_path_factory.mktemp("archived")
    rows: list[tuple[object, ...]] = [("id", "shard", "path", "text", "begin", "end")]
    for shard, (suffix, count) in enumerate((("tar.gz", 5), ("tar.gz", 3), ("tar", 4), ("tar.gz", 6))):
        members = [(f"./{shard}/{number}.wav", archive_files.tone(7 * shard + number, 1.0)) for number in range(count)]
        archive_files.write_archive(folder / f"audio-{shard}.{suffix}", members)
        segments = [(number, 0.3 * part) for number in range(1, count + 1) for part in range(1 + number % 3)]
        rows += [
            (f"{shard}-{n}-{b}", f"{shard}.{suffix}", f"{shard}/{n}.wav", f"文{n}", b, b + 0.3) for n, b in segments
        ]
    table = archive_files.write_table(folder / "table.tsv", rows)
    names = {"key": "id", "wav": "path", "txt": "text", "start": "begin", "end": "end"}
    return uio.from_table(table, fields=names, archives="audio-{shard}", stream=True, shuffle=True)


@pytest.fixture(scope="session")
def pipelines(
    tar: uio.Pipeline,
    raw_corpus: Corpus,
    kaldi_corpus: KaldiCorpus,
    shar_corpus: Path,
    cuts: Path,
    tar_index: uio.Pipeline,
    touch: uio.Pipeline,
    nemo: uio.Pipeline,
    conversations: uio.Pipeline,
    texts: list[uio.Pipeline],
    parquet: uio.Pipeline,
    table: uio.Pipeline,
    archived: uio.Pipeline,
) -> list[uio.Pipeline]:
    """Pipelines that a stage's example may be built on: one for each source that delivers utterances."""
    return [
        tar,
        uio.from_raw_list(raw_corpus.list, shuffle=True),
        uio.from_kaldi(kaldi_corpus.folder, shuffle=True),
        uio.from_lhotse_shar(shar_corpus, shuffle=True),
        uio.from_lhotse_cuts(cuts, shuffle=True),
        tar_index,
        touch,
        nemo,
        conversations,
        *texts,
        parquet,
        table,
        archived,
    ]
