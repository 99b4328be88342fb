"""``from_nemo``: manifests as NeMo lays them out, in files and in tars; nothing is opened to plan."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converting import convert
from nemo_data import Tarred, pcm, plain, tar, tarred, wav, write
from test_kaldi import delivered, run

import uio_pipes as uio
from uio_pipes.base.errors import ListError, TooManyFailures
from uio_pipes.formats.archives.archive import Archive
from uio_pipes.formats.archives.directory import TarDirectory
from uio_pipes.io.access import PLAIN
from uio_pipes.io.local import LocalFile
from uio_pipes.sources.nemo.table import expanded, shard_number
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.verify import verify
from uio_pipes.tools.reports.inspect import inspect


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Tarred:
    return tarred(tmp_path_factory.mktemp("nemo") / "data", [4, 3, 4])


# Rows


def test_rows_give_text_duration_and_every_other_name(tmp_path: Path) -> None:
    samples, ledger = run(uio.from_nemo(plain(tmp_path, 4)).decode_audio())
    assert [s.key for s in samples] == ["u0", "u0-000010-000025", "u1", "u2", "u3", "u3-000010-000025"]
    assert (samples[0]["txt"], samples[0]["lang"], ledger.failures) == ("文0", "zh", 0)
    np.testing.assert_array_equal(samples[2]["wav"][0].numpy(), pcm(1))
    cut = samples[5]
    assert (cut["txt"], cut["start"], cut["end"], "offset" in cut) == ("cut 3", 0.1, 0.35, False)
    np.testing.assert_array_equal(cut["wav"][0].numpy(), pcm(3, 0.1, 0.35))


def test_what_lhotse_reads_of_the_same_rows_is_the_same(tmp_path: Path) -> None:
    lhotse = pytest.importorskip("lhotse")
    samples, _ = run(uio.from_nemo(plain(tmp_path, 6)).decode_audio())
    for sample in samples:
        cut = lhotse.Recording.from_file(tmp_path / "wavs" / f"{sample.key.split('-')[0]}.wav").to_cut()
        if "start" in sample:
            cut = cut.truncate(offset=sample["start"], duration=sample["duration"])
        np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_audio())


def test_a_relative_path_starts_at_the_manifest_or_else_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = plain(tmp_path / "a", 1)
    monkeypatch.chdir(tmp_path)
    assert delivered(uio.from_nemo("a/manifest.json"))[0] == ["u0", "u0-000010-000025"]
    shutil.move(tmp_path / "a" / "wavs", tmp_path / "wavs")
    assert delivered(uio.from_nemo(manifest))[0] == ["u0", "u0-000010-000025"]
    shutil.rmtree(tmp_path / "wavs")
    pipeline = uio.from_nemo(manifest)
    with pytest.raises(TooManyFailures, match=r"a/wavs/u0.wav.*missing_file"):
        delivered(pipeline)


def test_keys_come_from_the_row_if_it_has_one_and_can_be_chosen(tmp_path: Path) -> None:
    row = {"audio_filepath": "x/a.b.wav", "duration": 1.5, "text": "t"}
    rows = [row, {**row, "id": 7}, {**row, "key": "k"}, {**row, "utt": "mine"}]
    manifest = write(tmp_path / "m.json", rows)
    assert [s.key for s in run(uio.from_nemo(manifest))[0]] == ["a.b", "7", "k", "a.b"]
    chosen = uio.from_nemo(manifest, fields={"key": "utt", "txt": "utt"})
    assert [(s.key, s.get("txt")) for s in run(chosen)[0]] == [("mine", "mine")], "the others lack the text asked for"


def test_an_offset_of_0_is_in_the_key_and_times_may_be_text(tmp_path: Path) -> None:
    row = {"audio_filepath": "a.wav", "text": "t"}
    times = [(None, 0.5), (0, 0.5), (0.0, 0.7), ("0.1", "0.5")]
    manifest = write(tmp_path / "m.json", [{**row, "offset": offset, "duration": d} for offset, d in times])
    samples, ledger = run(uio.from_nemo(manifest))
    assert [s.key for s in samples] == ["a", "a-000000-000050", "a-000000-000070", "a-000010-000050"]
    assert (samples[3]["start"], samples[3]["end"], samples[3]["duration"]) == (0.1, 0.6, 0.5)
    assert ledger.failures == 0


@pytest.mark.parametrize(
    ("fields", "of"),
    [
        (None, "context_audio_filepath"),
        ({"context": "context_audio_filepath", "context_duration": "context_audio_duration"}, "context"),
    ],
)
def test_other_files_of_a_row_are_found_as_its_audio_is(tmp_path: Path, fields: dict[str, str] | None, of: str) -> None:
    (row, *_) = plain(tmp_path / "data", 2).read_text().splitlines()
    duration = len(pcm(1)) / 8000
    prompted = {**json.loads(row), "context_audio_filepath": "wavs/u1.wav", "context_audio_duration": duration}
    manifest = write(tmp_path / "data" / "m.json", [prompted, {**prompted, "context_audio_filepath": "wavs/no.wav"}])
    loader = uio.Loader(uio.from_nemo(manifest, fields=fields).decode_audio().decode_audio(of=of).batch(1))
    ((sample,),) = loader
    np.testing.assert_array_equal(sample["wav"][0].numpy(), pcm(0))
    np.testing.assert_array_equal(sample[of][0].numpy(), pcm(1))
    assert sample.get("context_duration", duration) == duration
    assert loader.stats().skipped == {"missing_file": 1}


def test_rows_marked_skipme_are_counted_and_no_failures_and_a_missing_text_of_pandas_is_no_text(tmp_path: Path) -> None:
    row = {"audio_filepath": "a.wav", "duration": 1.0, "text": "t"}
    rows = [{**row, "_skipme": True}, {**row, "text": float("nan")}, {**row, "_skipme": False}, {**row, "_skipme": 1}]
    pipeline = uio.from_nemo(write(tmp_path / "m.json", rows))
    samples, ledger = run(pipeline)
    assert ["txt" in sample for sample in samples] == [False, True]
    assert (len(samples), ledger.skipped, ledger.failures) == (2, {"skipme": 2}, 0)
    assert len(uio.Loader(pipeline.decode_audio().batch(1))) == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"duration": 1.0, "text": "t"}, "missing_audio"),
        ({"audio_filepath": ["a.wav", "b.wav"], "duration": 1.0}, "missing_audio"),
        ({"audio_filepath": "a.wav", "duration": 1.0, "offset": -1}, "bad_segment"),
        ({"audio_filepath": "a.wav", "duration": 1.0, "offset": "x"}, "bad_segment"),
        ({"audio_filepath": "a.wav", "duration": "x", "offset": "y"}, "bad_segment"),
        ({"audio_filepath": "a.wav", "duration": 0, "offset": 1}, "bad_segment"),
        ({"audio_filepath": "a.wav", "duration": float("nan"), "offset": 1}, "bad_segment"),
    ],
    ids=str,
)
def test_bad_rows_are_counted_by_line(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    good = {"audio_filepath": "a.wav", "duration": 1.0}
    manifest = write(tmp_path / "m.json", [good, row, good])
    samples, ledger = run(uio.from_nemo(manifest))
    assert (len(samples), ledger.skipped) == (2, {reason: 1})
    assert f"{manifest}, line 2" in ledger.reports[0]


# Names


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("d/audio__OP_0..2_CL_.tar", ["d/audio_0.tar", "d/audio_1.tar", "d/audio_2.tar"]),
        ("d/audio_{0..1}.tar", ["d/audio_0.tar", "d/audio_1.tar"]),
        ("d/audio_(0..1).tar", ["d/audio_0.tar", "d/audio_1.tar"]),
        ("d/audio_[00..01].tar", ["d/audio_00.tar", "d/audio_01.tar"]),
        ("d/audio_<0..1>.tar", ["d/audio_0.tar", "d/audio_1.tar"]),
        ("d_(a,b)/m.json, c.json", ["d_a/m.json", "d_b/m.json", "c.json"]),
        ("corpus (old)/m.json", ["corpus (old)/m.json"]),
        ("s3://b/_OP_a,b_CL_/audio_0.tar", ["s3://b/a/audio_0.tar", "s3://b/b/audio_0.tar"]),
    ],
)
def test_names_are_expanded_as_in_nemo(name: str, files: list[str]) -> None:
    assert list(expanded([name], PLAIN)) == files


@pytest.mark.parametrize(
    ("name", "number"),
    [("x_9/audio_12.tar", 12), ("manifest_3_normalized.json", 3), ("m_v2_07.json.gz", 7), ("s3://b/a_1.tar?k=_2", 1)],
)
def test_the_last_number_of_a_name_is_that_of_the_shard(name: str, number: int) -> None:
    assert shard_number(name) == number


# Tars


def expected(shards: Tarred) -> list[str]:
    stems = (row["audio_filepath"].removesuffix(".wav") for row in shards.rows)
    return [f"{stem}-000010-000020" if "-sub" in stem else stem for stem in stems]


@pytest.mark.parametrize("which", ["sharded", "whole", "pairs", "groups", "gz"])
def test_tarred_manifests_in_each_form(shards: Tarred, which: str, tmp_path: Path) -> None:
    root = shards.whole.parent
    ones = [str(root / "sharded_manifests" / f"manifest_{i}.json") for i in range(3)]
    tars = [str(root / f"audio_{i}.tar") for i in range(3)]
    (tmp_path / "all.json.gz").write_bytes(gzip.compress(shards.whole.read_bytes()))
    given: Any = {
        "sharded": (shards.manifests, shards.tars),
        "whole": (shards.whole, shards.tars),
        "pairs": (ones, tars[::-1]),  # paired by their numbers
        "groups": ([[one] for one in ones], [[one] for one in tars]),
        "gz": (tmp_path / "all.json.gz", tars),
    }[which]
    samples, ledger = run(uio.from_nemo(*given).decode_audio())
    assert [s.key for s in samples] == expected(shards)
    assert ledger.failures == 0
    for sample in samples:
        number = int(sample.key.removeprefix("data_u").split("-")[0])
        cut = (0.1, 0.1 + 0.2) if "-sub1" in sample.key else ()
        np.testing.assert_array_equal(sample["wav"][0].numpy(), pcm(number, *cut))


def test_two_data_sets_whose_shards_have_the_same_numbers(shards: Tarred, tmp_path: Path) -> None:
    other = tarred(tmp_path / "other", [2, 2])
    both = uio.from_nemo([shards.manifests, other.manifests], [shards.tars, other.tars])
    assert delivered(both)[0] == expected(shards) + expected(other)


def test_headers_are_read_once_and_payloads_are_not(shards: Tarred, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, sizes = TarDirectory(str(shards.whole.parent / "audio_0.tar")), list[int]()
    read = LocalFile.read_upto
    monkeypatch.setattr(LocalFile, "read_upto", lambda f, at, n: sizes.append(n) or read(f, at, n))  # type: ignore[func-returns-value]
    assert directory.find(("nothing.wav", "./data_u1.WAV")).size == len(wav(1))
    assert max(sizes) <= 4096
    read_before = len(sizes)
    directory.find(("data_u2.wav",))
    assert len(sizes) == read_before


def test_an_index_is_used_instead_of_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tarred(tmp_path / "data", [3, 3])
    report = index_lists([str(tmp_path / "data" / "audio_*.tar")], text="", manifests=None)
    assert (report.utterances, report.problems) == (6, [])
    monkeypatch.setattr(Archive, "_headers", lambda _: pytest.fail("headers were read"))
    assert delivered(uio.from_nemo(data.manifests, data.tars)) == (expected(data), {})


# What is wrong with tars


def test_missing_members_and_wrong_shards_are_counted_by_name(tmp_path: Path) -> None:
    tar(tmp_path / "audio_0.tar", {"a.wav": wav(0)})
    tar(tmp_path / "audio_1.tar", {"b.wav": wav(1)})
    row = {"duration": 3.0, "text": "t"}
    names = [("a.wav", 0), ("b.wav", 0), ("b.wav", 1), ("a.wav", 7), ("a.wav", None)]
    rows = [{**row, "audio_filepath": name, "shard_id": shard} for name, shard in names]
    pipeline = uio.from_nemo(write(tmp_path / "m.json", rows), str(tmp_path / "audio_(0..1).tar"))
    assert delivered(pipeline) == (["a", "b"], {"missing_member": 1, "wrong_shard": 2})


def test_a_row_in_the_manifest_of_another_shard(tmp_path: Path) -> None:
    data = tarred(tmp_path / "data", [2, 2])
    rows = [{**row, "shard_id": 1} for row in data.rows if row["shard_id"] == 0]
    write(tmp_path / "data" / "sharded_manifests" / "manifest_0.json", rows)
    assert delivered(uio.from_nemo(data.manifests, data.tars))[1] == {"wrong_shard": 3}


@pytest.mark.parametrize("damage", ["header", "cut", "gz", "gone"])
def test_damaged_tars_cost_only_what_is_lost(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    data = tarred(tmp_path / "data", [3, 2])
    path = tmp_path / "data" / "audio_0.tar"
    whole = bytearray(path.read_bytes())
    second = 512 + -(-len(wav(0)) // 512) * 512
    if damage == "header":
        whole[second : second + 8] = b"\xff" * 8
    content = {"cut": bytes(whole[: second + 700]), "gz": gzip.compress(whole)}.get(damage, bytes(whole))
    path.unlink() if damage == "gone" else path.write_bytes(content)
    keys, skipped = delivered(uio.from_nemo(data.manifests, data.tars))
    lost = {"header": {"missing_member": 1}, "gz": {"compressed_tar": 4}, "gone": {"missing_file": 4}}
    assert skipped == lost.get(damage, {"truncated": 1, "missing_member": 1})
    assert keys == [key for key in expected(data) if key in keys]
    assert len(keys) == 7 - sum(skipped.values())
    if damage == "header":
        assert "it is damaged" in caplog.text


def test_manifests_and_tars_that_do_not_pair(shards: Tarred, tmp_path: Path) -> None:
    root = str(shards.whole.parent)
    with pytest.raises(ListError, match="shard 2 is only in one of them"):
        run(uio.from_nemo(shards.manifests, f"{root}/audio_(0..1).tar"))
    shutil.copy(f"{root}/audio_0.tar", tmp_path / "one.tar")
    with pytest.raises(ListError, match="a shard number of its own"):
        run(uio.from_nemo(shards.whole, [f"{root}/audio_0.tar", str(tmp_path / "one.tar")]))


# The commands


def test_inspect_verify_and_convert_know_a_manifest(tmp_path: Path) -> None:
    manifest = str(plain(tmp_path / "plain", 6))
    known = recognize(manifest)
    assert known.kind == "NeMo manifest"
    contents = inspect(known.pipeline)
    assert (contents.utterances, contents.failures) == (8, {})
    (tmp_path / "plain" / "wavs" / "u1.wav").write_bytes(wav(1)[:300])
    *_, report = verify([manifest])
    assert report.reasons == {"truncated_audio": 1}
    made = convert(manifest, str(tmp_path / "out"), to="raw")
    assert made.utterances == 7


def test_verify_names_members_that_no_row_wants_and_damage(tmp_path: Path) -> None:
    data = tarred(tmp_path / "data", [2, 2])
    tar(tmp_path / "data" / "audio_1.tar", {"data_u2.wav": wav(2), "data_u3.wav": wav(3), "extra.wav": wav(4)})
    *_, report = verify([str(data.whole)])
    assert report.reasons == {"unlisted_member": 1}
    found = report.findings[0]
    assert (Path(found.url).name, found.member) == ("audio_1.tar", "extra.wav")
    assert recognize(str(tmp_path / "data" / "sharded_manifests" / "manifest_0.json")).kind == "NeMo manifest"
    (tmp_path / "data" / "audio_0.tar").unlink()
    (tmp_path / "data" / "audio_1.tar").unlink()
    with pytest.raises(ListError, match=r"no audio_0.tar"):
        recognize(str(data.whole))
