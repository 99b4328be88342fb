"""``uio pack``, run as users run it: what it writes, what it survives, what it says."""

import contextlib
import json
import os
import signal
import subprocess
import time
import zlib
from pathlib import Path

import pytest
from command import RATE, digests, make_wav, members, start, uio, write_list
from servers import s3_server

import uio_pipes

EACH = 100  # utterances in a shard
COUNT = 900


@pytest.fixture(scope="module")
def raw_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_list(tmp_path_factory.mktemp("corpus"), COUNT)


@pytest.fixture(scope="module")
def packed(raw_list: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed at once, by one process, as flac."""
    out = tmp_path_factory.mktemp("packed")
    done = uio("pack", raw_list, out, "--per-shard", EACH, "--format", "flac", "--jobs", 1)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, f"{out}/shards.list"), done.stderr
    return out


def test_files_are_packed_as_they_are(raw_list: Path, tmp_path: Path) -> None:
    done = uio("pack", raw_list, tmp_path / "out", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["shards"], report["utterances"], report["failed"]) == (0, 1, COUNT, {})
    assert (tmp_path / "out/shards.list").read_text() == f"{tmp_path}/out/shards_000000000.tar\n"
    found = list(members(tmp_path / "out"))
    assert [name for name, _ in found[:3]] == ["U00000.txt", "U00000.speaker", "U00000.wav"]
    lines = [json.loads(line) for line in raw_list.read_text().splitlines()]
    expected = [(line["txt"].encode(), line["speaker"].encode(), Path(line["wav"]).read_bytes()) for line in lines]
    assert [data for _, data in found] == [data for one in expected for data in one]


def test_the_manifest_tells_what_is_there(packed: Path) -> None:
    begin, *entries = [json.loads(line) for line in (packed / "shards.list.manifest").read_text().splitlines()]
    assert begin["manifest"] == 1
    assert [entry["shard"] for entry in entries] == (packed / "shards.list").read_text().split()
    for entry in entries:
        data = Path(entry["shard"]).read_bytes()
        assert (entry["bytes"], entry["crc32"]) == (len(data), f"{zlib.crc32(data):08x}")
    assert sum(entry["utterances"] for entry in entries) == COUNT
    assert {entry["utterances"] for entry in entries[:-1]} == {EACH}
    assert sum(entry["frames"] for entry in entries) == sum(30 + 10 * (i % 7) for i in range(COUNT))


def test_an_array_of_jobs_writes_the_same_bytes_and_the_last_one_the_list(
    raw_list: Path, packed: Path, tmp_path: Path
) -> None:
    for share, waiting in ((2, 6), (3, 3), (1, 0)):
        assert not (tmp_path / "shards.list").exists()
        job = uio("pack", raw_list, tmp_path, "--per-shard", EACH, "--format", "flac", "--split", f"{share}/3",
                  "--jobs", 1, "--json")  # fmt: skip
        assert (job.returncode, json.loads(job.stdout)["waiting"]) == (0, waiting)
    assert digests(tmp_path) == digests(packed)
    for name, first in (("shards.list", 0), ("shards.list.manifest", 1)):  # a manifest's head is a hash of its lines
        lines = (packed / name).read_text().replace(str(packed), str(tmp_path)).splitlines()
        assert (tmp_path / name).read_text().splitlines()[first:] == lines[first:]


def test_killed_in_the_middle_it_goes_on_and_ends_with_the_same_bytes(
    raw_list: Path, packed: Path, tmp_path: Path
) -> None:
    command = ("pack", raw_list, tmp_path, "--per-shard", EACH, "--format", "flac", "--jobs", 2)
    job = start(*command)
    try:
        wait_for_shards(job, tmp_path, 2)
        job.kill()  # its helpers end by themselves
        job.wait()
        done = digests(tmp_path)
        assert 2 <= len(done) < len(digests(packed))
        assert not (tmp_path / "shards.list").exists()
    finally:
        end(job)
    noted = [name for name in done if (tmp_path / f"pack.journal/{name}.json").exists()]
    assert noted
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in noted}
    assert uio(*command).returncode == 0
    assert digests(tmp_path) == digests(packed)
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in noted}, "packed again"
    assert not list(tmp_path.rglob("*.part"))


def test_ctrl_c_says_so_in_one_line_and_ends_with_130(raw_list: Path, packed: Path, tmp_path: Path) -> None:
    job = start("pack", raw_list, tmp_path, "--per-shard", EACH, "--format", "flac", "--jobs", 2)
    try:
        wait_for_shards(job, tmp_path, 1)
        os.killpg(job.pid, signal.SIGINT)  # as a terminal does it
        _, said = job.communicate(timeout=60)
    finally:
        end(job)
    assert job.returncode == 130
    assert "stopped; the same command goes on" in said
    assert "Traceback" not in said
    assert uio("pack", raw_list, tmp_path, "--per-shard", EACH, "--format", "flac").returncode == 0
    assert digests(tmp_path) == digests(packed)


def wait_for_shards(job: subprocess.Popen[str], out: Path, count: int) -> None:
    until = time.monotonic() + 60
    while len(list(out.rglob("shards_*.tar"))) < count:
        assert job.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < until
        time.sleep(0.002)


def end(job: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def test_what_fails_is_counted_and_listed_and_the_rest_is_packed(tmp_path: Path) -> None:
    good = make_wav(0.5, 1)
    files = {"good.wav": good, "noise.wav": b"no audio" * 50, "empty.wav": good[:44], "cut.wav": good[:5000],
             "nothing.wav": b""}  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    lines = [
        {"key": "a", "wav": "good.wav", "txt": "一"},
        {"key": "gone", "wav": "gone.wav", "txt": "二"},
        {"key": "noise", "wav": "noise.wav", "txt": "二"},
        {"key": "nothing", "wav": "nothing.wav", "txt": "二"},
        {"key": "cut", "wav": "cut.wav", "txt": "二"},
        {"key": "a", "wav": "good.wav", "txt": "again"},
        {"key": "../x", "wav": "good.wav", "txt": "out"},
        {"key": "late", "wav": "good.wav", "txt": "late", "start": 0.4, "end": 9},
        {"key": "untold", "wav": "good.wav"},
        {"key": "part", "wav": "good.wav", "txt": "部", "start": 0.1, "end": 0.3},
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + '{"key": "torn", "wa\n'
    (tmp_path / "raw.list").write_text(text)
    done = uio("pack", "raw.list", "out", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, report["utterances"]) == (1, 2)
    assert report["failed"] == {
        "missing_file": 1, "bad_audio": 1, "truncated_audio": 1, "duplicate_key": 1, "bad_key": 1, "bad_segment": 1,
        "missing_text": 1, "bad_line": 1, "empty_audio": 1,
    }  # fmt: skip
    failed = [json.loads(line) for line in (tmp_path / "out/failed.jsonl").read_text().splitlines()]
    assert {one["key"] for one in failed} >= {"gone", "noise", "nothing", "cut", "a", "../x", "late", "untold"}
    assert all(one["detail"] for one in failed)
    found = dict(members(tmp_path / "out"))
    assert found["a.wav"] == good
    assert len(found["part.wav"]) == 44 + 2 * 3200


def test_what_was_not_there_is_packed_when_it_is(tmp_path: Path) -> None:
    raw_list = write_list(tmp_path / "corpus", 20)
    lost = tmp_path / "corpus/r3.wav"
    lost.rename(tmp_path / "lost.wav")
    assert uio("pack", raw_list, tmp_path / "out").returncode == 1
    (tmp_path / "lost.wav").rename(lost)
    assert uio("pack", raw_list, tmp_path / "out").returncode == 0
    assert len(list(members(tmp_path / "out"))) == 3 * 20
    lost.write_bytes(b"broken")
    assert uio("pack", raw_list, tmp_path / "other").returncode == 1
    lost.write_bytes(make_wav(0.6, 3))
    assert uio("pack", raw_list, tmp_path / "other").returncode == 1
    assert uio("pack", raw_list, tmp_path / "other", "--retry-failed").returncode == 0
    assert digests(tmp_path / "other") == digests(tmp_path / "out")


def kaldi(folder: Path) -> Path:
    folder.mkdir()
    (folder / "one.wav").write_bytes(make_wav(3, 1))
    (folder / "two.wav").write_bytes(make_wav(2, 2))
    (folder / "wav.scp").write_text(f"one {folder}/one.wav\ntwo {folder}/two.wav\npipe cat {folder}/two.wav |\n")
    (folder / "text").write_text("one 一 二\ntwo 三\npipe 四\n")
    (folder / "utt2spk").write_text("one X\ntwo Y\na X\nb X\n")
    return folder


def test_a_kaldi_folder(tmp_path: Path) -> None:
    folder = kaldi(tmp_path / "kaldi")
    refused = uio("pack", folder, tmp_path / "out")
    assert (refused.returncode, "--allow-pipes" in refused.stderr) == (2, True)
    assert uio("pack", folder, tmp_path / "out", "--allow-pipes").returncode == 0
    found = dict(members(tmp_path / "out"))
    assert [*found] == [
        "one.txt", "one.speaker", "one.wav", "two.txt", "two.speaker", "two.wav", "pipe.txt", "pipe.wav",
    ]  # fmt: skip
    assert found["pipe.wav"] == found["two.wav"]
    assert found["one.txt"] == "一 二".encode()


def test_segments_of_a_kaldi_folder(tmp_path: Path) -> None:
    folder = kaldi(tmp_path / "kaldi")
    (folder / "text").write_text("a 五\nb 六\nc 七\nd 八\n")
    (tmp_path / "cuts").write_text("a one 0 1.5\nb one 1.5 2.75\nc two 0.5 1\nd pipe 0 1\ne one 0 1\n")
    done = uio("pack", folder, tmp_path / "out", "--segments", tmp_path / "cuts", "--allow-pipes", "--json",
               "--length-groups", "10:60,60:200")  # fmt: skip
    report = json.loads(done.stdout)
    assert (done.returncode, report["utterances"], report["failed"]) == (1, 4, {"missing_text": 1})
    assert sorted(digests(tmp_path / "out")) == ["10_60/data-00000.tar", "60_200/data-00000.tar"]
    lengths = {name: (len(data) - 44) / 2 / RATE for name, data in members(tmp_path / "out") if name.endswith(".wav")}
    assert lengths == {"c.wav": 0.5, "a.wav": 1.5, "b.wav": 1.25, "d.wav": 1.0}


@pytest.mark.parametrize("segments", ["", "one one 0 1\ncut gone 0 1\n"], ids=["recordings", "segments"])
def test_texts_and_segments_without_a_recording_are_counted_as_convert_does(tmp_path: Path, segments: str) -> None:
    folder = kaldi(tmp_path / "kaldi")
    (folder / "wav.scp").write_text(f"one {folder}/one.wav\n")
    if segments:
        (folder / "segments").write_text(segments)
    reports = [json.loads(uio(c, folder, tmp_path / c, "--json").stdout) for c in ("pack", "convert")]
    assert [r["utterances"] for r in reports] == [1, 1]
    assert [r["failed"] for r in reports] == [{"missing_recording": 3 if segments else 2}] * 2
    assert f"{folder}/text, line 2" in (tmp_path / "pack/failed.jsonl").read_text()


def test_to_indexed_and_again(raw_list: Path, tmp_path: Path) -> None:
    command = ("pack", raw_list, tmp_path / "out", "--to", "indexed", "--per-shard", 400, "--resample", 8000)
    assert uio(*command).returncode == 0
    folders = [f"{tmp_path}/out/data-{i:05d}" for i in range(3)]
    assert (tmp_path / "out/shards.list").read_text() == "".join(f"{f} audio+metainfo\n" for f in folders)
    loader = uio_pipes.Loader(uio_pipes.from_indexed(tmp_path / "out/shards.list").decode_audio().batch(50).pad())
    keys = [key for batch in loader for key in batch["keys"]]
    assert sorted(keys) == [f"U{i:05d}" for i in range(COUNT)]
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.bin")}
    (tmp_path / "out/data-00001/audio.bin").write_bytes(b"cut off")
    assert uio(*command, "--split", "1/1", "--jobs", 1).returncode == 0
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.bin")}


@pytest.mark.slow
def test_from_s3_to_s3(raw_list: Path, packed: Path, tmp_path: Path) -> None:
    with s3_server() as endpoint:
        import s3fs

        env = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1",
               "FSSPEC_S3_ENDPOINT_URL": endpoint}  # fmt: skip
        s3 = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=endpoint, skip_instance_cache=True)
        s3.mkdir("corpus")
        s3.put(f"{raw_list.parent}/", "corpus/", recursive=True)
        text = raw_list.read_text().replace(str(raw_list.parent), "s3://corpus")
        s3.pipe("corpus/far.list", text.encode())
        command = ("pack", "s3://corpus/far.list", "s3://corpus/out", "--per-shard", EACH, "--format", "flac")
        done = uio(*command, **env)
        assert done.returncode == 0, done.stderr
        s3.invalidate_cache()
        expected = digests(packed)
        assert {name: s3.cat(f"corpus/out/{name}") for name in expected} == expected
        listed = s3.cat("corpus/out/shards.list").decode().split()
        assert listed == [f"s3://corpus/out/{name}" for name in expected]
        s3.rm([f"corpus/out/{name}" for name in ("shards.list", "shards_000000003.tar")])
        kept = s3.info("corpus/out/shards_000000001.tar")["LastModified"]
        done = uio(*command, **env)
        assert done.returncode == 0, done.stderr
        s3.invalidate_cache()
        assert s3.cat("corpus/out/shards_000000003.tar") == expected["shards_000000003.tar"]
        assert s3.cat("corpus/out/shards.list").decode().split() == listed
        assert s3.info("corpus/out/shards_000000001.tar")["LastModified"] == kept


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["raw.lst", "out"], "there is no raw.lst; is raw.list meant?"),
        (["raw.list", "s4://bucket/out"], "Protocol not known: s4; is s3:// meant?"),
        (["s4://bucket/raw.list", "out"], "is s3:// meant?"),
        (["raw.list", "out", "--per-shrd", "3"], "--per-shard"),
        (["raw.list", "out", "--split", "3/2"], "i from 1 to n, as 3/8"),
        (["raw.list", "out", "--length-groups", "500:10"], "LOW:HIGH"),
        (["raw.list", "out", "--length-groups", "20:200,10:22"], "10:22 and 20:200"),
        (["raw.list", "out", "--length-groups", "10:500"], '"duration" (seconds)'),
        (["raw.list", "out", "--format", "mp3"], "'as-is', 'wav', 'flac'"),
        (["raw.list", "out", "--segments", "cuts"], "Kaldi folder"),
        (["raw.list"], "Missing argument 'source'"),
        (["raw.list", "https://127.0.0.1:9/out"], "cannot be used"),
        (["raw.list", "/proc/out"], "/proc/out"),
        (["raw.list", "out", "--resample", "5"], "--resample"),
        (["gone.list", "out"], "nothing was packed: 1 missing_file; the first: gone.wav: no such file"),
    ],
)
def test_a_mistake_is_one_line_that_helps(tmp_path: Path, arguments: list[str], says: str) -> None:
    write_list(tmp_path, 5)
    (tmp_path / "shards.list").write_text("a.tar\n")
    (tmp_path / "gone.list").write_text('{"key": "a", "wav": "gone.wav", "txt": "b"}\n')
    done = uio("pack", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("packing")]  # its bar
    assert line.startswith("error: ")
    assert says in line
    assert not (tmp_path / "out/shards.list").exists()
