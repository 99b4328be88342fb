"""``from_kaldi``: utterances joined from Kaldi's tables, none silently lost."""

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import corpus
import kaldiio
import numpy as np
import pytest
import soundfile
from contract import keys_of
from failing import fails_as
from kaldi_data import KaldiCorpus, recordings, write

import uio_pipes as uio
from uio_pipes.base.errors import ListError, NothingRead, TooManyFailures
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Failures, Ledger


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KaldiCorpus:
    return recordings(tmp_path_factory.mktemp("kaldi"))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> KaldiCorpus:
    return recordings(tmp_path_factory.mktemp("segments"), 6, segments=True)


def run(pipeline: uio.Pipeline, **policy: Any) -> tuple[list[uio.Sample], Ledger]:
    ledger = Ledger(Failures(**policy))
    node = pipeline.build(Lane(ledger))
    node.reset(None)
    samples = []
    while True:
        try:
            samples.append(node.next())
        except StopIteration:
            return samples, ledger


def delivered(pipeline: uio.Pipeline) -> tuple[list[str], dict[str, int]]:
    """Return the keys that a trainer gets, and the counts of what was skipped."""
    loader = uio.Loader(pipeline.decode_audio().batch(1))
    return [key for batch in loader for key in keys_of(batch)], loader.stats().skipped


def keys(pipeline: uio.Pipeline) -> list[str]:
    return [sample.key for sample in run(pipeline)[0]]


def pcm(path: Path) -> np.ndarray:
    return soundfile.read(path, dtype="float32")[0]


# What is read


def test_tables_named_one_by_one_are_used_and_no_others(whole: KaldiCorpus) -> None:
    samples, _ = run(uio.from_kaldi(whole.folder / "wav.scp", whole.folder / "text"))
    assert set(samples[0]) == {"key", "wav", "txt"}
    assert set(run(uio.from_kaldi(str(whole.folder / "wav.scp")))[0][0]) == {"key", "wav"}


def test_segments_are_cut_out(cut: KaldiCorpus) -> None:
    samples, ledger = run(uio.from_kaldi(cut.folder).decode_audio())
    assert tuple(s.key for s in samples) == cut.keys
    assert ledger.failures == 0
    for sample in samples[:2]:
        first = round((0.05 if sample.key.endswith("0") else 0.3) * 8000)
        assert sample.plan.samples == 2000
        np.testing.assert_array_equal(sample["wav"][0].numpy(), pcm(cut.folder / "R000.wav")[first : first + 2000])


def test_a_segment_may_end_with_its_recording(cut: KaldiCorpus, tmp_path: Path) -> None:
    write(tmp_path / "segments", {"A": "R000 0.5 -1"})
    sample = run(uio.from_kaldi(cut.folder / "wav.scp", segments=tmp_path / "segments").decode_audio())[0][0]
    assert sample.plan.samples == len(pcm(cut.folder / "R000.wav")) - 4000 == sample["wav"].shape[1]


def test_blanks_marks_and_line_ends_of_every_kind(whole: KaldiCorpus, tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_bytes(f"\ufeffA \t{whole.folder}/R000.wav \r\n\n  B {whole.folder}/R001.wav".encode())
    (tmp_path / "text").write_bytes("B 你 好 \r\nA\r\n".encode())
    samples, _ = run(uio.from_kaldi(tmp_path))
    assert [(s.key, s["txt"]) for s in samples] == [("A", ""), ("B", "你 好")]


# What is missing, twice or malformed


def test_what_the_tables_do_not_share_is_counted_by_reason(whole: KaldiCorpus, tmp_path: Path) -> None:
    lines = (whole.folder / "wav.scp").read_text().splitlines()
    (tmp_path / "wav.scp").write_text("\n".join(lines[:8]) + "\n")
    write(tmp_path / "text", {k: "x" for k in whole.keys if k not in ("R001", "R002")})
    write(tmp_path / "utt2spk", {k: "S" for k in whole.keys if k != "R005"})
    samples, ledger = run(uio.from_kaldi(tmp_path))
    assert [s.key for s in samples] == ["R000", "R003", "R004", "R006", "R007"]
    assert ledger.skipped == {"missing_text": 2, "missing_speaker": 1, "missing_recording": 4}
    assert "'R001'" in ledger.reports[0]
    assert "wav.scp, line 2" in ledger.reports[0]
    assert "text, line 7" in ledger.reports[3]
    with fails_as("missing_text"):
        run(uio.from_kaldi(tmp_path), on_error="raise")


def test_segments_of_unknown_recordings_and_impossible_ones_are_counted(cut: KaldiCorpus, tmp_path: Path) -> None:
    write(tmp_path / "segments", {"A": "R000 0 0.2", "B": "R9 0 1", "C": "R000 2 1", "D": "R000 0 9", "E": "R000 -2 1"})
    got, skipped = delivered(uio.from_kaldi(cut.folder / "wav.scp", segments=tmp_path / "segments"))
    assert got == ["A"]
    assert skipped == {"missing_recording": 1, "bad_segment": 3}


def test_bad_utf8_is_counted(whole: KaldiCorpus, tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_bytes((whole.folder / "wav.scp").read_bytes() + b"\xff\xfe a.wav\n")
    (tmp_path / "text").write_bytes(
        (whole.folder / "text").read_bytes().replace("文R004".encode(), b"\xff") + b"\xff\xfe a\n"
    )
    samples, ledger = run(uio.from_kaldi(tmp_path))
    assert len(samples) == 11
    assert ledger.skipped == {"bad_text": 2}


def test_relative_paths_start_at_the_working_directory(
    whole: KaldiCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "wav.scp", {"A": "R000.wav"})
    write(tmp_path / "arks.scp", {"A": "wavs.ark:5"})
    monkeypatch.chdir(whole.folder)
    assert delivered(uio.from_kaldi(tmp_path / "wav.scp")) == (["A"], {})
    assert keys(uio.from_kaldi(tmp_path / "arks.scp")) == ["A"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NothingRead, match="relative paths start at the working directory"):
        delivered(uio.from_kaldi(tmp_path / "wav.scp"))
    with pytest.raises(ListError, match="relative paths start at the working directory"):
        run(uio.from_kaldi(tmp_path / "arks.scp"))


# Pipes


def test_pipes_are_run_and_those_that_fail_are_counted(whole: KaldiCorpus, tmp_path: Path) -> None:
    write(tmp_path / "wav.scp", {"A": f"{whole.folder}/R000.wav", "B": f"cat {whole.folder}/R001.wav |"})
    samples, ledger = run(uio.from_kaldi(tmp_path, allow_pipes=True).decode_audio())
    assert ledger.failures == 0
    assert samples[1].plan.samples == len(pcm(whole.folder / "R001.wav")) == samples[1]["wav"].shape[1]
    write(
        tmp_path / "wav.scp",
        {"A": "cat /no/file |", "B": f"cat {whole.folder}/R001.wav |", "C": "echo no audio |", "D": "true |"},
    )
    got, skipped = delivered(uio.from_kaldi(tmp_path, allow_pipes=True))
    assert got == ["B"]
    assert skipped == {"pipe_failed": 1, "bad_audio": 1, "empty_audio": 1}


def test_pipes_are_run_late_where_a_table_tells_the_length(
    whole: KaldiCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``utt2dur``, or by the segment."""
    write(tmp_path / "wav.scp", {"A": f"cat {whole.folder}/R000.wav |", "B": f"cat {whole.folder}/R001.wav |"})
    durations = {key: len(pcm(whole.folder / f"{name}.wav")) / 8000 for key, name in (("A", "R000"), ("B", "R001"))}
    write(tmp_path / "utt2dur", {key: f"{duration:.3f}" for key, duration in durations.items()})
    samples, _ = run(uio.from_kaldi(tmp_path, allow_pipes=True).decode_audio())
    write(tmp_path / "segments", {"A-1": "A 0.1 0.333333", "B-1": "B 0.0712345 0.4"})
    samples += run(uio.from_kaldi(tmp_path, allow_pipes=True).decode_audio())[0]
    import uio_pipes.io.command as command

    with monkeypatch.context() as patched:
        patched.setattr(command, "run_command", None)
        planned = [s.plan.samples / s.plan.sample_rate for s in samples]
    for sample, seconds in zip(samples, planned, strict=True):
        assert sample["wav"].shape[1] / 8000 <= seconds < sample["wav"].shape[1] / 8000 + 0.002


# Lengths


def test_lanes_are_balanced_by_the_lengths_that_tables_tell(
    whole: KaldiCorpus, cut: KaldiCorpus, tmp_path: Path
) -> None:
    def weights(folder: Path) -> list[int] | None:
        found = uio.from_kaldi(folder).stages[0].table().weights  # type: ignore[attr-defined]
        return None if found is None else list(found)

    assert weights(whole.folder) is None
    assert set(weights(cut.folder) or []) <= {25, 26}
    shutil.copytree(whole.folder, tmp_path / "data")
    write(tmp_path / "data" / "utt2dur", {"R000": "1.0", "R002": "3.0"})
    assert weights(tmp_path / "data") == [100, 200, 300, *[200] * 9]


def test_a_text_for_far_more_than_there_is_stops_with_a_remedy(whole: KaldiCorpus, tmp_path: Path) -> None:
    write(tmp_path / "text", {**dict.fromkeys(whole.keys, "x"), **{f"Z{i}": "y" for i in range(200)}})
    with pytest.raises(TooManyFailures, match=r"filter_scp\.pl"):
        run(uio.from_kaldi(whole.folder / "wav.scp", tmp_path / "text"))


def test_tables_of_many_lines_take_little_memory(tmp_path: Path) -> None:
    names = [f"BAC009S{i:06d}" for i in range(40_000)]
    write(tmp_path / "wav.scp", {name: f"audio/{name}.wav" for name in names})
    write(tmp_path / "text", dict.fromkeys(reversed(names), "x"))
    tracemalloc.start()
    loader = uio.Loader(uio.from_kaldi(tmp_path).batch(1))
    assert len(loader) == 40_000
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 40_000 * 200


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("numpy", r'a numpy array, as write_function="numpy" of kaldiio makes it, .*: write the ark again by'),
        ("pickle", r'a pickle, as write_function="pickle" of kaldiio makes it'),
    ],
)
def test_arks_that_only_kaldiio_reads_are_named(function: str, message: str, tmp_path: Path) -> None:
    arrays = {"a": np.zeros((9, 4), np.float32)}
    kaldiio.save_ark(str(tmp_path / "a.ark"), arrays, scp=str(tmp_path / "a.scp"), write_function=function)
    (tmp_path / "text").write_text("a x\n")
    with pytest.raises(uio.UioError, match=message):
        list(uio.Loader(uio.from_kaldi(tmp_path / "a.scp", tmp_path / "text").batch(1), failures="raise"))


def test_a_line_of_several_files_is_espnets(tmp_path: Path) -> None:
    for name in ("a.wav", "b.wav", "c d.wav"):
        (tmp_path / name).write_bytes(corpus.wav_bytes(1))
    (tmp_path / "text").write_text("x 1\ny 2\n")
    (tmp_path / "wav.scp").write_text(f"x {tmp_path}/a.wav {tmp_path}/b.wav\ny {tmp_path}/c d.wav\n")
    graph = uio.from_kaldi(tmp_path / "wav.scp", tmp_path / "text").decode_audio().batch(2)
    loader = uio.Loader(graph)
    assert [s["key"] for batch in loader for s in batch] == ["y"]
    with pytest.raises(
        uio.UioError, match=r"names 2 files, as ESPnet's wav\.scp of several channels.*sox -M \S+a\.wav"
    ):
        list(uio.Loader(graph, failures="raise"))
