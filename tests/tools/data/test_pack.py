"""Packing raw lists into shards."""

import hashlib
import io
import json
import os
import signal
import tarfile
from dataclasses import replace
from pathlib import Path

import kaldi_data
import numpy as np
import pytest
import soundfile
from encoded import chirp, encode
from ogg_files import ogg

import uio_pipes as uio
from recipes.common.lists import ListWriter, line_of
from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.pack import WHOLE, LengthGroup, OtherPacking, PackingFailed, PackSettings, pack
from uio_pipes.tools.data.reading import RawTable, TableUtterances, Utterance
from uio_pipes.tools.data.writing.cutting import Form
from uio_pipes.tools.data.writing.journal import Journal

RATE = 16_000
RECORDINGS, EACH = 8, 12
SETTINGS = PackSettings(size=7, groups=(LengthGroup(10, 100), LengthGroup(100, 200)))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments of 8 lossless recordings, in two groups of lengths; the last one ends after its recording."""
    root = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(1)
    with ListWriter(root / "train") as lists:
        for number in range(RECORDINGS):
            path = root / f"r{number}.flac"
            soundfile.write(path, (rng.standard_normal(RATE * 20) * 3000).astype(np.int16), RATE)
            for i in range(EACH):
                start = round(1.6 * i, 2)
                end = round(start + float(rng.uniform(0.2, 1.59)), 2)
                lists.write(Utterance(f"r{number}_S{i:05d}", str(path), f"文{i}", start, end, f"r{number}"))
        lists.write(Utterance("late", str(path), "晚", 19.0, 20.5, f"r{number}"))
    return root / "train" / "data.list"


@pytest.fixture(scope="module")
def packed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "shards"
    pack(source, out, out.with_name("shards.list"), SETTINGS)
    return out


def utterances_of(raw_list: Path) -> list[Utterance]:
    return [one for one in TableUtterances(RawTable(str(raw_list))) if isinstance(one, Utterance)]


def digests(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): hashlib.sha1(path.read_bytes()).hexdigest() for path in out.rglob("*.tar")}


def members(shard: Path) -> dict[str, bytes]:
    with tarfile.open(shard) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_utterances_are_grouped_by_length_in_the_lists_order(source: Path, packed: Path) -> None:
    utterances = [u for u in utterances_of(source) if u.key != "late"]
    for group in SETTINGS.groups:
        shards = sorted((packed / group.folder).glob("data-*.tar"))
        assert [shard.name for shard in shards] == [f"data-{n:05d}.tar" for n in range(len(shards))]
        keys = [[name[:-4] for name in members(shard) if name.endswith(".wav")] for shard in shards]
        assert all(len(one) == SETTINGS.size for one in keys[:-1])
        wanted = [u.key for u in utterances if group.low <= (u.seconds or 0) * 100 + 1e-6 < group.high]
        assert [key for one in keys for key in one] == wanted


def test_samples_are_those_of_raw_mode(source: Path, packed: Path) -> None:
    shards = sorted(map(str, packed.rglob("*.tar")))
    from_shards = {
        s["keys"][0]: s["pcm"] for s in batches(uio.list_files(shards).sharding_filter().open_files().load_from_tar())
    }
    from_raw = {s["keys"][0]: s["pcm"] for s in batches(uio.from_raw_list(str(source)))}
    assert len(from_shards) == RECORDINGS * EACH
    assert from_raw.keys() == from_shards.keys()
    assert all(pcm.equal(from_shards[key]) for key, pcm in from_raw.items())


def batches(pipeline: uio.Pipeline) -> uio.Loader:
    return uio.Loader(pipeline.decode_audio().batch(1).pad())


@pytest.mark.parametrize("segment", [(None, None), (0.1, 0.6), (0.1, None)], ids=["whole", "segment", "to the end"])
@pytest.mark.parametrize("form", ["wav", "flac"])
def test_audio_that_decodes_to_less_or_to_no_numbers_is_no_utterance(
    tmp_path: Path, form: Form, segment: tuple[float | None, float | None]
) -> None:
    samples = np.linspace(-0.5, 0.5, RATE, dtype=np.float32)
    good, cut, no_numbers = (tmp_path / f"{name}.wav" for name in ("good", "cut", "no_numbers"))
    soundfile.write(good, samples, RATE)
    cut.write_bytes(good.read_bytes()[:-20_000])  # segments before the end, too: as in decode_audio
    samples[2000] = np.nan
    soundfile.write(no_numbers, samples, RATE, subtype="FLOAT")
    lines = [Utterance(path.stem, str(path), "一", *segment) for path in (good, cut, no_numbers)]
    (tmp_path / "data.list").write_text("".join(line_of(one) + "\n" for one in lines))
    result = pack(tmp_path / "data.list", tmp_path / "out", tmp_path / "list", PackSettings(form=form))
    assert (result.utterances, dict(result.failed)) == (1, {"truncated_audio": 1, "nan_audio": 1})
    failed = map(json.loads, (tmp_path / "out" / "failed.jsonl").read_text().splitlines())
    told = {one["key"]: one["detail"] for one in failed}
    assert "cut.wav: the header declares 32000 bytes of samples, but the file contains 12000" in told["cut"]
    assert "no_numbers.wav: some samples are NaN" in told["no_numbers"]


def test_what_lies_in_no_group_is_counted(source: Path, tmp_path: Path) -> None:
    lengths = [(u.seconds or 0) * 100 for u in utterances_of(source)]
    settings = PackSettings(groups=(LengthGroup(50, 80), LengthGroup(90, 120)))
    result = pack(source, tmp_path / "out", tmp_path / "list", settings)
    assert result.left_out["too_short"] == sum(n + 1e-6 < 50 for n in lengths)
    assert result.left_out["too_long"] == sum(n + 1e-6 >= 120 for n in lengths)
    assert result.left_out["between_groups"] == sum(80 <= n + 1e-6 < 90 for n in lengths)
    assert result.utterances + result.left_out.total() == len(lengths)


@pytest.mark.parametrize("jobs", [2, 3])
def test_any_number_of_processes_makes_the_same_shards(source: Path, packed: Path, tmp_path: Path, jobs: int) -> None:
    pack(source, tmp_path / "out", tmp_path / "list", SETTINGS, jobs)
    assert digests(tmp_path / "out") == digests(packed)


def test_each_recording_is_opened_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []  # by inode

    class Counted(soundfile.SoundFile):  # type: ignore[misc]
        def __init__(self, file: int, closefd: bool) -> None:
            opened.append(os.fstat(file).st_ino)
            super().__init__(file, closefd=closefd)

    monkeypatch.setattr("uio_pipes.tools.data.writing.cutting.soundfile.SoundFile", Counted)
    pack(source, tmp_path / "out", tmp_path / "list", SETTINGS)
    assert len(opened) == len(set(opened)) == RECORDINGS


def test_goes_on_from_a_missing_note_and_a_damaged_shard(source: Path, packed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack(source, out, tmp_path / "list", SETTINGS)
    note = out / "pack.journal/10_100/data-00002.tar.json"
    note.rename(note.with_name(f".{note.name}.77.part"))
    (out / "10_100/data-00001.tar").write_bytes(b"cut off")
    (out / "100_200/data-00000.tar").unlink()
    pack(source, out, tmp_path / "list", SETTINGS)
    assert digests(out) == digests(packed)


def test_other_settings_or_another_list_are_refused(source: Path, packed: Path, tmp_path: Path) -> None:
    with pytest.raises(OtherPacking, match=r"was written otherwise \(utterances in a part 7 -> 9\)"):
        pack(source, packed, tmp_path / "list", PackSettings(9, SETTINGS.groups))
    other = tmp_path / "data.list"
    other.write_text(source.read_text().splitlines()[0] + "\n")
    with pytest.raises(OtherPacking, match=r"\(the list has changed\); choose another folder"):
        pack(other, packed, tmp_path / "list", SETTINGS)


def kill_oneself(*_: object) -> None:
    """As the kernel does it when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_two_at_once_are_refused(source: Path, tmp_path: Path) -> None:
    journal = Journal(Folder(tmp_path / "out"), WHOLE)
    with pytest.raises(OtherPacking, match="another process packs"):
        pack(source, tmp_path / "out", tmp_path / "list", SETTINGS)
    journal.close()
    assert pack(source, tmp_path / "out", tmp_path / "list", SETTINGS).utterances == RECORDINGS * EACH


def test_a_helper_that_is_killed_is_an_error_that_says_what_to_do(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uio_pipes.tools.data.pack.make_task", kill_oneself)
    with pytest.raises(PackingFailed, match="fewer --jobs"):
        pack(source, tmp_path / "out", tmp_path / "list", SETTINGS, jobs=2)
    assert not (tmp_path / "list").exists()


@pytest.mark.parametrize("segments", [False, True], ids=["whole", "segments"])
def test_wavs_in_an_ark_are_packed(segments: bool, tmp_path: Path) -> None:
    corpus = kaldi_data.recordings(tmp_path / "data", segments=segments)
    result = pack(
        corpus.folder, tmp_path / "out", tmp_path / "shards.list", PackSettings(form="as-is", sample_rate=None)
    )
    assert (result.utterances, result.failed) == (len(corpus.keys), {})
    found = {s["keys"][0]: s["pcm"] for s in batches(uio.from_shard_list(tmp_path / "shards.list"))}
    for wanted in batches(uio.from_kaldi(corpus.folder)):
        assert wanted["pcm"].equal(found.pop(wanted["keys"][0]))
    assert not found


def packed_from(source: list[Utterance], root: Path, form: Form) -> tuple[set[str], dict[str, int]]:
    """Keys that were packed, and failures."""
    with ListWriter(root / "list") as lists:
        for utterance in source:
            lists.write(utterance)
    settings = PackSettings(groups=(), size=100, form=form)
    result = pack(root / "list" / "data.list", root / form, root / f"{form}.list", settings)
    keys = {name.rpartition(".")[0] for shard in (root / form).rglob("*.tar") for name in members(shard)}
    return keys, dict(result.failed)


@pytest.mark.parametrize("form", ["as-is", "wav"])
@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_ogg_files_that_were_cut_off_or_damaged_are_no_utterances(tmp_path: Path, subtype: str, form: Form) -> None:
    whole = ogg(3, subtype)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    data = {"sound": whole, "cut": whole[: len(whole) // 2], "flipped": bytes(flipped), "two": whole + ogg(1, subtype)}
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    source = [Utterance(name, str(tmp_path / name), "x") for name in data]
    keys, failed = packed_from(source, tmp_path, form)
    assert keys == {"sound"}
    assert failed == {"truncated_audio": 1, "bad_audio": 2}


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_segments_of_a_damaged_recording_that_are_sound_are_packed(tmp_path: Path, subtype: str) -> None:
    whole = ogg(30, subtype)
    data = bytearray(whole)
    data[len(data) // 2] ^= 1
    source = []
    for name, content in (("whole", whole), ("flipped", bytes(data)), ("cut", whole[: len(whole) // 2])):
        (tmp_path / name).write_bytes(content)
        source += [Utterance(f"{name}{i:02d}", str(tmp_path / name), "x", float(i), i + 1.0) for i in range(30)]
    keys, failed = packed_from(source, tmp_path, "wav")
    assert {f"whole{i:02d}" for i in range(30)} <= keys
    flipped = {f"flipped{i:02d}" for i in range(30)} - keys
    assert 1 <= len(flipped) <= 12
    assert failed["bad_audio"] == len(flipped)
    cut = {f"cut{i:02d}" for i in range(30)} - keys
    assert 10 <= len(cut) <= 20
    assert failed["truncated_audio"] == len(cut)
    shard = members(next((tmp_path / "wav").rglob("*.tar")))
    for name in keys:  # what was decoded behind the damage is what was there
        expected, _ = soundfile.read(io.BytesIO(shard[f"whole{name[-2:]}.wav"]))
        actual, _ = soundfile.read(io.BytesIO(shard[f"{name}.wav"]))
        assert np.abs(actual - expected).max() < (1e-4 if subtype == "VORBIS" else 2e-2), name


@pytest.mark.parametrize("suffix", ["flac", "mp3", "m4a", "aac", "wma"])
def test_files_kept_as_they_are_are_whole(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    wav = chirp(RATE * 2, RATE)
    if suffix in ("flac", "mp3"):
        soundfile.write(tmp_path / f"whole.{suffix}", wav[0], RATE)
        whole = (tmp_path / f"whole.{suffix}").read_bytes()
    else:
        whole = encode(wav, RATE, suffix)
        (tmp_path / f"whole.{suffix}").write_bytes(whole)
    source = [Utterance("whole", str(tmp_path / f"whole.{suffix}"), "x")]
    for cut in range(1, 8):
        (tmp_path / f"cut{cut}.{suffix}").write_bytes(whole[: len(whole) * cut // 8 + 1])
        source.append(Utterance(f"cut{cut}", str(tmp_path / f"cut{cut}.{suffix}"), "x"))
    keys, failed = packed_from(source, tmp_path, "as-is")
    assert keys == {"whole"}
    assert sum(failed.values()) == 7
    assert set(failed) <= {"truncated_audio", "bad_audio"}
    assert "error:" not in capfd.readouterr().err  # as libmpg123 prints it after a seek


def test_compressed_shards_are_the_same_bytes_from_any_number_of_processes(
    source: Path, packed: Path, tmp_path: Path
) -> None:
    """With a checksum in every frame."""
    settings = replace(SETTINGS, name=f"{SETTINGS.part_name}.zst")
    for jobs in (1, 2):
        pack(source, tmp_path / f"{jobs}", tmp_path / f"{jobs}.list", settings, jobs=jobs)
    roots = (tmp_path / "1", tmp_path / "2")
    one, two = ({p.relative_to(root): p.read_bytes() for p in root.rglob("*.tar.zst")} for root in roots)
    assert one == two
    assert all(data[4] & 4 for data in one.values())
    plain = {s["key"]: s["wav"] for s in uio.Loader(uio.from_shard_list(sorted(map(str, packed.rglob("*.tar")))))}
    loader = uio.Loader(uio.from_shard_list(str(tmp_path / "1.list")))
    assert {s["key"]: s["wav"] for s in loader} == plain
    assert loader.stats().skipped == {}
