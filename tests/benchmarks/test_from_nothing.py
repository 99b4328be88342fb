"""Every benchmark runs with an empty folder for temporary files, on few utterances: its figures mean nothing then."""

import gc
import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest
from command import FORKS

from benchmarks import common

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "Report(" in path.read_text(encoding="utf-8") and path.stem not in ("common", "__main__")
)
ARGUMENTS = {"throughput": ["--only", "tar, one process", "waveforms, one process"]}
OWN_PROCESSES = {"network_disk", "ray_workers"}  # an interpreter with a library loaded before it; workers of Ray's own
PEERS = "Energon|LitData|Mosaic|Grain|SPDL|torchaudio.load|rapidgzip"  # not in `uio_pipes[dev]`; it is said


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nothing_in_it")


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_from_nothing(script: str, temporary: Path) -> None:
    if script == "remote" and shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("could not import nginx: it is not installed")
    before = _results()
    command = ["-m", f"benchmarks.{script}", *ARGUMENTS.get(script, [])]
    python = str(FORKS.stand_ins() / "python")  # so that the programs that it starts are forks, too
    forks = {} if script in OWN_PROCESSES else {"FORKS_PYTHON": python, "PYTHON_EXEC": python}
    done = FORKS.run(command, ROOT, {**_environment(temporary), **forks})
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if re.search("did not run|failed|not measured|could not", line)]
    assert [line for line in lines if not re.search(PEERS, line)] == []
    assert re.search(r"\d", done.stdout)
    assert _results() == before, "a quick run must not touch the results"


def test_a_measurement_has_a_process_of_its_own(temporary: Path) -> None:
    _python(
        """
        import benchmarks.common, benchmarks.corpus

        folder = benchmarks.corpus.default_folder()
        benchmarks.corpus.prepare(folder)
        benchmarks.common.QUICK = False
        measured = {"data": folder, "kind": "tar", "workers": 0}
        assert benchmarks.common.child("benchmarks.first_batch", **measured)["first"] > 0
        assert "no_such" in benchmarks.common.child("benchmarks.first_batch", **measured, no_such=1)["error"]
        """,
        temporary,
    )


def test_what_is_loaded_is_not_collected_while_the_clock_runs() -> None:
    common.settle()
    try:
        assert gc.get_freeze_count() > 0
        assert gc.get_count()[1:] == (0, 0)
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ImportError("Caught ImportError in DataLoader worker process 0.\nTrace …\nImportError: x is required.\n"),
            "ImportError: x is required: ",
        ),
        (
            RuntimeError(
                "Could not load libtorchcodec. Likely causes: …\n[start of libtorchcodec loading traceback]\n"
                "OSError: libavutil.so.60: cannot open shared object file: No such file or directory\n"
                "[end of libtorchcodec loading traceback]."
            ),
            "the system has no libavutil.so.60, which a peer needs (that of FFmpeg: apt install ffmpeg); ",
        ),
    ],
    ids=["a package", "a system library"],
)
def test_what_is_not_installed_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, told: str) -> None:
    common._told(type(error), error, None)
    assert capsys.readouterr().err == f"{told}{common.INSTALL}\n"


def test_a_target_is_not_measured_where_a_peer_lacks() -> None:
    report = common.Report("none", "None")
    report.target("2 × a peer", False, "nan×")
    report.target("2 × a peer", False, "1.50×")
    assert [line[:7] for line in report.lines if line.startswith("- ")] == ["- NOT M", "- FAIL:"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_an_older_commit_is_measured_with_its_own_package(temporary: Path) -> None:
    _python(
        """
        import benchmarks.common, benchmarks.corpus

        folder = benchmarks.corpus.default_folder()
        benchmarks.corpus.prepare(folder)
        benchmarks.common.QUICK = False
        measured = {"data": folder, "kind": "tar", "workers": 0}
        ((name, job),) = benchmarks.common.older({"mine": measured}, "HEAD").items()
        assert name == "mine, HEAD"
        assert benchmarks.common.child("benchmarks.first_batch", **job)["first"] > 0
        assert (benchmarks.common._folder_of("HEAD") / "uio_pipes" / "__init__.py").is_file()
        """,
        temporary,
    )


def test_a_corpus_that_was_made_in_another_way_is_made_anew(temporary: Path) -> None:
    _python(
        """
        import json, benchmarks.corpus

        folder = benchmarks.corpus.default_folder()
        made = benchmarks.corpus.prepare(folder, tar_only=True)
        facts = folder / "corpus.json"
        facts.write_text(json.dumps(json.loads(facts.read_text()) | {"made_by": [0]}))
        (folder / "tar.list").write_text("")
        assert benchmarks.corpus.prepare(folder, tar_only=True) == made
        assert len((folder / "tar.list").read_text().split()) == 6
        """,
        temporary,
    )


def _python(code: str, temporary: Path) -> None:
    done = FORKS.run(["-c", textwrap.dedent(code)], ROOT, _environment(temporary))
    assert done.returncode == 0, done.stderr[-2000:]


def _environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "UIO_BENCHMARKS": "quick", "TMPDIR": str(temporary)}


def _results() -> dict[str, float]:
    return {path.name: path.stat().st_mtime for path in (ROOT / "benchmarks" / "results").iterdir()}
