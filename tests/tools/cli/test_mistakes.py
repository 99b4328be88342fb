"""Mistakes of users, and odd data: commands overwrite nothing, and obey nothing that stands in data."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import UIO, digests, forked, uio, write_list

from uio_pipes.base.urls import printable
from uio_pipes.io.folders import meant

COUNT = 14


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_list(tmp_path / "data", COUNT)


def changed(raw: Path, name: str, *lines: dict[str, Any] | str) -> Path:
    """A list beside ``raw``: of strings, and of its first lines with changes."""
    good = [json.loads(line) for line in raw.read_text().splitlines()]
    texts = (line if isinstance(line, str) else json.dumps(good[n] | line) for n, line in enumerate(lines))
    path = raw.with_name(name)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def kaldi(folder: Path, raw: Path, **tables: str) -> Path:
    folder.mkdir()
    wav = raw.with_name("r0.wav")
    for name, text in ({"wav.scp": f"a cat {wav} |\nb {wav}\n", "text": "a A\nb B\n"} | tables).items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", ["inspect", "verify", "pack", "convert", "dict", "cmvn"])
@pytest.mark.parametrize("lacking", ["all", "text"])
def test_a_command_tells_its_option_for_names_of_fields(name: str, lacking: str, raw: Path, tmp_path: Path) -> None:
    """Pasted as they are, a field a time, they read the data."""
    good = [json.loads(line) for line in raw.read_text().splitlines()]
    names = {"key": "utt", "wav": "snd"} if lacking == "all" else {}
    rows = [{(names | {"txt": "sentence"}).get(n, n): value for n, value in line.items()} for line in good]
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = [tmp_path / "out"] if name in ("pack", "convert", "dict", "cmvn") else []
    done = uio(name, raw, *out)
    told = done.stdout + done.stderr
    assert "fields=" not in told
    if lacking == "text" and name == "cmvn":  # which needs none
        return
    options = list[str]()
    while option := re.search(r"write --fields ('[^']*'|[^;,\s]+)", told):
        options += shlex.split(option[1])
        assert len(options) <= 3, told
        out = [path.with_name(f"out{len(options)}") for path in out]
        done = uio(name, raw, *out, "--fields", ",".join(options))
        told = done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["cmvn", "RAW", "RAW"],
        ["cmvn", "RAW", "LINK"],
        ["dict", "RAW", "LINK"],
        ["pack", "RAW", "OUT", "--list", "RAW"],
        ["convert", "RAW", "OUT", "--list", "LINK"],
        ["verify", "RAW", "--quarantine", "LINK"],
        ["verify", "GLOB", "--quarantine", "RAW"],
        ["inspect", "PAGE", "--report", "PAGE"],
    ],
)
def test_what_is_read_is_never_overwritten(raw: Path, arguments: list[str]) -> None:
    link, page = raw.with_name("link"), raw.with_name("list.html")
    link.symlink_to(raw)
    page.write_bytes(raw.read_bytes())
    files = {"RAW": raw, "LINK": link, "PAGE": page, "OUT": raw.with_name("out")}
    named = files | {"GLOB": f"{raw.parent}/*.list"}
    before = raw.read_bytes()
    done = uio(*(named.get(one, one) for one in arguments))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "would be overwritten" in done.stderr
    assert [raw.read_bytes(), page.read_bytes()] == [before] * 2
    assert not raw.with_name("out").exists()


@pytest.mark.parametrize("options", [[], ["--per-shard", 3], ["--per-shard", 3, "--jobs", 3]])
def test_a_key_is_packed_once_whatever_the_shards(raw: Path, tmp_path: Path, options: list[object]) -> None:
    lines = raw.read_text().splitlines(keepends=True)
    twice = raw.with_name("twice.list")
    twice.write_text("".join([*lines[:5], lines[0], *lines[5:], lines[9], lines[9]]))
    done = uio("pack", twice, tmp_path / "out", "--json", *options)
    report = json.loads(done.stdout)
    assert (done.returncode, report["utterances"], report["failed"]) == (1, COUNT, {"duplicate_key": 3})
    failed = [json.loads(line) for line in (tmp_path / "out/failed.jsonl").read_text().splitlines()]
    assert [one["key"] for one in failed] == ["U00000", "U00009", "U00009"]
    assert "utterance 6 of the list has the key of utterance 1" in failed[0]["detail"]
    assert json.loads(uio("verify", tmp_path / "out/shards.list", "--json").stdout)["findings"] == []


def test_jobs_of_an_array_leave_out_the_same_copies(raw: Path, tmp_path: Path) -> None:
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join([*lines, *lines[:4]]))  # the last shard has copies only
    whole, split = tmp_path / "whole", tmp_path / "split"
    assert uio("pack", raw, whole, "--per-shard", 7).returncode == 1
    for share in ("2/2", "1/2"):
        done = uio("pack", raw, split, "--per-shard", 7, "--split", share, "--json")
    assert json.loads(done.stdout)["failed"] == {"duplicate_key": 4}
    assert digests(whole) == digests(split)
    assert len(digests(whole)) == 2
    again = uio("pack", raw, whole, "--per-shard", 7, "--json")
    assert json.loads(again.stdout)["failed"] == {"duplicate_key": 4}


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_segment_behind_its_recording_is_found_without_decoding(raw: Path, command: str) -> None:
    path = changed(raw, "late.list", {"start": 0.1, "end": 99}, {"start": 0.1, "end": 0.3})
    found = uio(command, path, "--json")
    report = json.loads(found.stdout)
    assert (found.returncode, report["failures" if command == "inspect" else "reasons"]) == (1, {"bad_segment": 1})


def test_control_characters_are_shown_not_obeyed(raw: Path, tmp_path: Path) -> None:
    evil = "a\x1b[31m\0\x9b\u202e\u2028$"
    path = changed(raw, "evil.list", {"txt": evil}, {"key": "k\x1b]0;x\x07\u202e", "wav": "/nope"}, {"txt": "\ud800"})
    for command in ("inspect", "verify"):
        for options in ([], ["--json"]):
            done = uio(command, path, *options)
            assert done.returncode == 1
            assert not any(c in done.stdout + done.stderr for c in "\x1b\0\x9b\u202e\u2028"), command
    assert "\\x1b" in uio("inspect", path).stdout
    assert printable("文 é\x1b\u202e") == "文 é\\x1b\\u202e"
    packed = uio("pack", path, tmp_path / "out")
    assert (packed.returncode, packed.stderr.count("\x1b]"), packed.stderr.count("\u202e")) == (1, 0, 0)


def test_a_page_of_odd_characters_comes_without_warnings(raw: Path) -> None:
    path = changed(raw, "odd.list", {"txt": "a\x1b\0\u0378𝕏"})
    done = uio("inspect", path, "--report", raw.with_name("page.html"))
    assert (done.returncode, "Glyph" in done.stderr) == (0, False), done.stderr
    assert "\x1b" not in raw.with_name("page.html").read_text()


def test_pipes_run_only_where_allowed(raw: Path, tmp_path: Path) -> None:
    folder = kaldi(tmp_path / "kd", raw)
    for arguments in (["inspect", folder], ["verify", folder], ["convert", folder, tmp_path / "out"]):
        refused = uio(*arguments)
        assert (refused.returncode, "--allow-pipes" in refused.stderr) == (2, True), refused.stderr
        assert not (tmp_path / "out").exists()
        done = uio(*arguments, "--allow-pipes", "--json")
        assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, 2), done.stderr


def test_a_damaged_table_is_named_with_its_line(raw: Path, tmp_path: Path) -> None:
    folder = kaldi(tmp_path / "kd", raw, segments="a a 0 0.2\nshort a 0\n")
    done = uio("pack", folder, tmp_path / "out")
    assert (done.returncode, f"{folder}/segments, line 2" in done.stderr) == (2, True)


def test_a_line_that_is_no_utf8_is_counted(raw: Path, tmp_path: Path) -> None:
    lines = raw.read_bytes().splitlines(keepends=True)
    path = raw.with_name("bad.list")
    path.write_bytes(lines[0] + lines[1].replace(b'"U00001"', b'"U\xff"') + lines[2])
    found = uio("verify", path, "--quarantine", tmp_path / "q", "--json")
    assert (found.returncode, json.loads(found.stdout)["reasons"]) == (1, {"bad_line": 1}), found.stderr
    assert json.loads((tmp_path / "q").read_text())["url"] == f"{path}, line 2"
    summed = uio("cmvn", path, tmp_path / "cmvn", "--json", "--jobs", 1)
    report = json.loads(summed.stdout)
    assert (summed.returncode, report["utterances"], report["failures"]) == (1, 2, 1), summed.stderr


@pytest.mark.parametrize("options", [[], ["--format", "flac"], ["--resample", 8000]])
def test_bad_recordings_are_named(raw: Path, tmp_path: Path, options: list[object]) -> None:
    empty, noise = tmp_path / "empty.wav", tmp_path / "noise.wav"
    empty.write_bytes(b"")
    noise.write_bytes(b"no audio" * 99)
    path = changed(raw, "bad.list", {"wav": str(empty)}, {"wav": str(noise)}, {})
    done = uio("pack", path, tmp_path / "out", "--json", *options)
    assert json.loads(done.stdout)["failed"] == {"empty_audio": 1, "bad_audio": 1}
    text = (tmp_path / "out/failed.jsonl").read_text()
    assert (str(empty) in text, str(noise) in text, "BytesIO" in text) == (True, True, False)


def test_folders_are_answered_with_what_fits(raw: Path, tmp_path: Path) -> None:
    assert uio("convert", raw, tmp_path / "cv").returncode == 0
    folder = kaldi(tmp_path / "kd", raw)
    expected = {
        ("convert", tmp_path / "cv", tmp_path / "cv2"): f"{tmp_path}/cv/data.list",
        ("verify", tmp_path / "cv"): f"{tmp_path}/cv/data.list",
        ("verify", folder): "--allow-pipes",
    }
    for arguments, hint in expected.items():
        done = uio(*arguments)
        assert (done.returncode, done.stderr.count("\n"), hint in done.stderr) == (2, 1, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["pack", "RAW", "memory://x"], ["convert", "RAW", "memory://x"], ["index", "RAW", "--into", "memory://x"]],
)
def test_nothing_is_written_to_the_memory_of_a_command(raw: Path, arguments: list[str]) -> None:
    done = uio(*(raw if one == "RAW" else one for one in arguments))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "is lost when the command ends" in done.stderr


def test_protocols_that_are_not_known_are_named_with_a_near_one_or_the_usual() -> None:
    assert meant("htp://host/a") == "; is http:// meant?"
    assert meant("s4://bucket/a") == "; is s3:// meant?"
    assert "usual are http://" in meant("foo://host/a")
    assert meant("s3://bucket/a") == ""


def test_a_bucket_without_a_key_is_not_asked_for_again() -> None:
    pytest.importorskip("s3fs")
    done = uio("verify", "s3://x", AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")
    assert (done.returncode, done.stderr.count("\n"), "Invalid length" in done.stderr) == (2, 1, True), done.stderr


def test_cache_without_a_command_shows_its_help_and_no_empty_error() -> None:
    done = uio("cache")
    assert (done.returncode, "prune" in done.stdout, done.stderr) == (2, True, "")


LIMITED = """
import resource
from uio_pipes.tools.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
main()
"""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["pack", "--jobs", "1"], "shards_000000000.tar"),
        (["pack", "--jobs", "2", "--per-shard", "7"], "shards_00000000"),
        (["convert"], "data-00000"),
        (["convert", "--to", "raw", "--jobs", "1"], "wav-00000"),
    ],
)
def test_a_full_disk_is_named(raw: Path, tmp_path: Path, command: list[str], name: str) -> None:
    limited = [command[0], raw, tmp_path / "out", *command[1:]]
    if command[-1] == "1":
        done = forked("-c", LIMITED, *limited)
    else:  # helper processes have the limits of the process that started first
        bash = ["bash", "-c", 'ulimit -f 16; exec "$@"', "-", UIO, *limited]
        done = subprocess.run(bash, capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, f"{tmp_path}/out/{name}" in last, "File too large" in last) == (2, True, True), done.stderr
