"""Shar that the real Lhotse wrote, read by ``from_lhotse_shar``."""

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import Case, check_cuts, check_twice, in_fresh_process, record, restored, some_cuts
from helpers_bad import each_alone

lhotse = pytest.importorskip("lhotse")
from shar_data import cut_set, rewrite, write_shar  # noqa: E402

import uio_pipes as uio  # noqa: E402
from uio_pipes.base.errors import ListError, PipelineError, StateError  # noqa: E402


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cut_set(tmp_path_factory.mktemp("audio"), 14)


@pytest.fixture(scope="module")
def shar(cuts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shar(tmp_path_factory.mktemp("shar"), cuts)


@pytest.fixture
def copy(shar: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shar, tmp_path / "shar"))


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def write_lines(path: Path, content: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in content).encode()))


def keys(numbers: Any) -> list[str]:
    return [f"c{i:03d}" for i in numbers]


@pytest.mark.parametrize("form", ["flac", "wav"])
def test_audio_and_text_are_lhotses_own(form: str, cuts: Any, tmp_path: Path) -> None:
    folder = write_shar(tmp_path, cuts, recording=form)
    samples, skipped = each_alone(uio.from_lhotse_shar(folder).decode_audio())
    assert skipped == {}
    read = list(lhotse.CutSet.from_shar(in_dir=folder))
    assert [s["key"] for s in samples] == [cut.id for cut in read]
    for sample, cut in zip(samples, read, strict=True):
        said = cut.supervisions[0]
        assert (sample["txt"], sample["speaker"], sample["language"]) == (said.text, said.speaker, said.language)
        assert sample["snr"] == cut.snr
        assert sample["sample_rate"] == 8000
        np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_audio())


@pytest.mark.parametrize("packed", ["numpy", "lilcom"])
def test_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str) -> None:
    if packed == "lilcom":
        pytest.importorskip("lilcom")
    folder = write_shar(tmp_path / "shar", cut_set(tmp_path, 3, features=True), features=packed)
    samples, skipped = each_alone(uio.from_lhotse_shar(folder).sort(6))
    assert skipped == {}
    for cut in lhotse.CutSet.from_shar(in_dir=folder):
        (found,) = (s["feat"] for s in samples if s["key"] == cut.id)
        np.testing.assert_array_equal(found, cut.load_features())
    if packed == "lilcom":
        monkeypatch.setitem(sys.modules, "lilcom", None)
        assert each_alone(uio.from_lhotse_shar(folder)) == ([], {"missing_codec": 3})


def test_fields_may_be_chosen_by_paths_globs_and_braces(tmp_path: Path) -> None:
    folder = write_shar(tmp_path / "shar", cut_set(tmp_path, 6, features=True), recording="wav", features="numpy")
    assert {"wav", "feat"} <= set(each_alone(uio.from_lhotse_shar(folder).decode_audio())[0][0])
    named = {"cuts": f"{folder}/cuts.*.jsonl.gz", "recording": f"{folder}/recording.{{000000..000001}}.tar"}
    samples, _ = each_alone(uio.from_lhotse_shar(named).decode_audio())
    assert len(samples) == 6
    assert "feat" not in samples[0]


def test_values_in_jsonl_and_placeholders_and_cuts_without_audio(tmp_path: Path) -> None:
    made = list(cut_set(tmp_path, 6))
    del made[3].custom["snr"]
    made[2].recording = None
    folder = write_shar(tmp_path / "shar", lhotse.CutSet.from_cuts(made), recording="wav", snr="jsonl")
    samples, skipped = each_alone(uio.from_lhotse_shar(folder).decode_audio())
    assert [(s["key"], s.get("snr")) for s in samples] == [
        ("c000", 0.0), ("c001", 0.5), ("c003", None), ("c004", 2.0), ("c005", 2.5),
    ]  # fmt: skip
    assert skipped == {"missing_audio": 1}


def test_cuts_that_were_edited_later_are_cut_out(copy: Path) -> None:
    first = copy / "cuts.000000.jsonl.gz"
    edited = [json.loads(line) for line in lines(first)]
    edited[1] |= {"start": 0.1, "duration": 0.2}
    write_lines(first, [json.dumps(cut) for cut in edited])
    wanted = list(lhotse.CutSet.from_shar(in_dir=copy))[1].load_audio()
    edited[2] |= {"type": "MixedCut"}
    write_lines(first, [json.dumps(cut) for cut in edited])
    samples, skipped = each_alone(uio.from_lhotse_shar(copy).decode_audio())
    assert skipped == {"unsupported_cut": 1}
    np.testing.assert_array_equal(samples[1]["wav"].numpy(), wanted)
    assert wanted.shape == (1, 1600)


def test_one_file_a_field_without_numbers(cuts: Any, tmp_path: Path) -> None:
    folder = write_shar(tmp_path, cuts, size=None)
    assert [s["key"] for s in each_alone(uio.from_lhotse_shar(folder))[0]] == keys(range(14))


# Damage


def of_cuts(keep: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """Rewrite the lines of the second file of cuts."""
    path = "cuts.000001.jsonl.gz"
    return lambda folder: write_lines(folder / path, keep(lines(folder / path)))


def of_tar(number: int, keep: Callable[[str], bool]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / f"recording.{number:06d}.tar", keep)


# What is done, the cuts that are lost (of 4 in each shard), and what is counted
DAMAGE: dict[str, tuple[list[Callable[[Path], None]], list[int], dict[str, int]]] = {
    "a recording is missing": ([of_tar(1, lambda name: name[:4] != "c005")], [5], {"missing_recording": 1}),
    "a cut is missing": ([of_cuts(lambda given: [x for x in given if "c005" not in x])], [5], {"missing_cut": 1}),
    "recordings end early": ([of_tar(1, lambda name: name < "c006")], [6, 7], {"short_shard": 1}),
    "cuts end early": ([of_cuts(lambda given: given[:2])], [6, 7], {"short_shard": 1}),
    "manifest and data miss each other": (
        [of_tar(0, lambda name: name != "c001.json"), of_tar(2, lambda name: name != "c010.flac")],
        [1, 10],
        {"bad_pair": 2, "missing_recording": 2},
    ),
    "a line of cuts is bad": (
        [of_cuts(lambda given: [*given[:2], "{oops", *given[3:]])],
        [6],
        {"bad_line": 1, "missing_cut": 1},
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_costs_the_cuts_that_it_hits(name: str, copy: Path) -> None:
    damage, lost, counts = DAMAGE[name]
    for hurt in damage:
        hurt(copy)
    samples, skipped = each_alone(uio.from_lhotse_shar(copy))
    assert [s["key"] for s in samples] == keys(i for i in range(14) if i not in lost)
    assert skipped == counts


@pytest.mark.parametrize("where", [0, 512, 3000, 6000])
def test_no_flipped_or_missing_byte_of_a_tar_goes_unnoticed(where: int, copy: Path) -> None:
    path = copy / "recording.000001.tar"
    whole = path.read_bytes()
    path.write_bytes(whole[:where] + bytes([whole[where] ^ 0x55]) + whole[where + 1 :])
    samples, skipped = each_alone(uio.from_lhotse_shar(copy).decode_audio())
    assert len(samples) + sum(skipped.get(r, 0) for r in ("missing_recording", "bad_audio", "truncated_audio")) == 14
    assert skipped
    path.write_bytes(whole[: len(whole) // 2])
    samples, skipped = each_alone(uio.from_lhotse_shar(copy).decode_audio())
    assert skipped["short_shard"] == 1
    assert 10 <= len(samples) < 14


def test_cuts_that_cannot_be_unpacked_to_their_end(copy: Path) -> None:
    path = copy / "cuts.000001.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-30])
    samples, skipped = each_alone(uio.from_lhotse_shar(copy))
    assert skipped == {"truncated": 1, "short_shard": 1}
    assert [s["key"] for s in samples if s["key"] < "c004" or s["key"] > "c007"] == keys([*range(4), *range(8, 14)])


def test_missing_files_are_named_before_anything_is_read(copy: Path, tmp_path: Path) -> None:
    (copy / "recording.000002.tar").unlink()
    with pytest.raises(ListError, match="000002"):
        each_alone(uio.from_lhotse_shar(copy))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("a")
    with pytest.raises(ListError, match="is not a Lhotse Shar"):
        each_alone(uio.from_lhotse_shar(tmp_path / "empty"))
    with pytest.raises(PipelineError, match="source must be a folder"):
        uio.from_lhotse_shar({"recording": ["a"]})


# What holds for every source


@pytest.mark.parametrize("options", [{}, {"lanes": 3, "snapshot_every": 2}], ids=str)
@pytest.mark.parametrize("damaged", [False, True])
def test_rest_is_identical_after_every_cut(damaged: bool, options: dict[str, Any], copy: Path, tmp_path: Path) -> None:
    if damaged:
        rewrite(copy / "recording.000001.tar", lambda name: not name.startswith("c005"))
        rewrite(copy / "recording.000002.tar", lambda name: name < "c011")
    pipeline = uio.from_lhotse_shar(copy, shuffle=True).decode_audio().shuffle(5).sort(4).batch(2).pad()
    recorded = record(Case(pipeline, options))
    total = len(recorded.digests)
    check_cuts(recorded, some_cuts(total, 8))
    check_twice(recorded, total // 2)
    if options and damaged:
        assert in_fresh_process([(recorded.case, recorded.states[2])], tmp_path) == [recorded.digests[2:]]


def test_a_shard_that_changed_is_noticed_when_resuming(copy: Path) -> None:
    loader = uio.Loader(uio.from_lhotse_shar(copy).batch(2))
    next(iter(loader))
    state = loader.state_dict()
    rewrite(copy / "recording.000000.tar", lambda name: not name.startswith("c003"))
    again = restored(uio.from_lhotse_shar(copy).batch(2), state)
    with pytest.raises(StateError, match=r"recording of .* changed"):
        list(again)
