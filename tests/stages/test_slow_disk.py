"""Files of a disk that is slow to open them are read ahead: the same utterances, states and errors as without."""

import json
import os
import pickle
import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf
import torch
from corpus import raw_list, shards

import uio_pipes as uio
from uio_pipes.core.ledger import Ledger
from uio_pipes.io import local, opened_ahead
from uio_pipes.io.opened_ahead import LocalPath, read_ahead, whole
from uio_pipes.sources import tar_index
from uio_pipes.stages.reading import open_files
from uio_pipes.tools.data.index import index_lists

Run = tuple[list[Any], list[dict[str, Any]], dict[str, int]]  # batches, the state after each, and what was left out


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was opened."""
    counted, really = Counter[str](), local._opened

    def counting(path: str) -> int:
        counted[str(path)] += 1  # a path would stay, with what was read ahead of it
        return really(path)

    monkeypatch.setattr(local, "_opened", counting)
    return counted


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """All disks count as slow."""
    _be_slow(monkeypatch, True)


def _be_slow(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    monkeypatch.setattr(opened_ahead, "is_known", lambda path: True)
    for module in (opened_ahead, open_files):
        monkeypatch.setattr(module, "is_slow", lambda path: wanted)


def _lines(folder: Path, count: int = 60) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw_list(folder, count).list.read_text().splitlines()]


def _raw(lines: Any) -> uio.Pipeline:
    return uio.from_raw_list(lines, shuffle=True).decode_audio().shuffle(8).sort(4).batch(3).pad()


def _run(graph: uio.Pipeline, state: dict[str, Any] | None = None) -> Run:
    loader = uio.Loader(graph, seed=3)
    if state is not None:
        loader.load_state_dict(state)
    batches, states = [], []
    for batch in loader:
        batches.append(batch)
        states.append(loader.state_dict())
    return batches, states, loader.stats().skipped


def _assert_same(one: Run, other: Run) -> None:
    assert [batch["keys"] for batch in one[0]] == [batch["keys"] for batch in other[0]]
    assert all(torch.equal(a["pcm"], b["pcm"]) for a, b in zip(one[0], other[0], strict=True))
    assert [_positions(state) for state in one[1]] == [_positions(state) for state in other[1]]
    assert one[2] == other[2]


def _positions(state: dict[str, Any]) -> list[str]:
    """Return what is in a state but the time that the trainer has waited, and the checksum of it."""
    return [re.sub(r'"(waited_us|crc32)": *("\w+"|\d+)', "", text) for text in state.values()]


def test_each_recording_is_opened_once(tmp_path: Path, slow: None, opened: Counter[str]) -> None:
    lines = _lines(tmp_path)
    batches, _, skipped = _run(_raw(lines))
    assert sum(len(batch["keys"]) for batch in batches) == 60
    assert not skipped
    assert {opened[line["wav"]] for line in lines} == {1}


def _damage(lines: list[dict[str, Any]]) -> None:
    Path(lines[10]["wav"]).unlink()
    Path(lines[11]["wav"]).write_bytes(b"")
    Path(lines[20]["wav"]).write_bytes(b"RIFF, and no more")
    Path(lines[30]["wav"]).chmod(0)
    lines[40]["wav"] = str(Path(lines[40]["wav"]).parent)


@pytest.mark.parametrize("durations", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
def test_utterances_states_and_failures_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool, durations: bool
) -> None:
    lines = [{**line, "duration": 5.0} if durations else line for line in _lines(tmp_path)]
    if damaged:
        _damage(lines)
    runs = []
    for wanted in (False, True):
        _be_slow(monkeypatch, wanted)
        runs.append(_run(_raw(lines)))
    _assert_same(*runs)
    assert len(runs[0][2]) >= 3 * damaged
    _assert_same(_run(_raw(lines), runs[1][1][7]), tuple(part[8:] if n < 2 else part for n, part in enumerate(runs[0])))


def _raw_list(folder: Path, lines: list[dict[str, Any]]) -> uio.Pipeline:
    return uio.from_raw_list(str(_written(folder / "lists" / "raw.list", lines)), shuffle=True)


def _nemo(folder: Path, lines: list[dict[str, Any]]) -> uio.Pipeline:
    rows = [{"audio_filepath": line["wav"], "duration": 9.0, "text": line["txt"]} for line in lines]
    return uio.from_nemo(str(_written(folder / "lists" / "nemo.json", rows)), shuffle=True)


def _table(folder: Path, lines: list[dict[str, Any]]) -> uio.Pipeline:
    table = _written(folder / "lists" / "table.jsonl", lines)
    return uio.from_table(str(table), fields={"key": "key", "wav": "wav", "txt": "txt"}, shuffle=True)


def _cuts(folder: Path, lines: list[dict[str, Any]]) -> uio.Pipeline:
    cuts = []
    for line in lines:
        samples = (folder / "lists" / line["wav"]).resolve().stat().st_size // 2 - 22
        source = {"type": "file", "channels": [0], "source": line["wav"]}
        sound = {"id": line["key"], "sources": [source], "sampling_rate": 8000, "num_samples": samples}
        said = {"id": line["key"], "start": 0, "duration": samples / 8000, "text": line["txt"]}
        cuts.append({**said, "type": "MonoCut", "channel": 0, "recording": sound, "supervisions": [said]})
    return uio.from_lhotse_cuts(str(_written(folder / "lists" / "cuts.jsonl", cuts)), shuffle=True)


def _kaldi(folder: Path, lines: list[dict[str, Any]]) -> uio.Pipeline:
    for name, field in (("wav.scp", "wav"), ("text", "txt")):
        (folder / name).write_text("".join(f"{line['key']} {line[field]}\n" for line in lines))
    return uio.from_kaldi(str(folder / "wav.scp"), str(folder / "text"), shuffle=True)


def _written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("source", "start"),
    [
        *((source, start) for source in (_raw_list, _nemo, _table, _cuts) for start in ("", "../")),
        *((source, "wavs/") for source in (_raw_list, _nemo, _table, _kaldi)),
        (_raw_list, "FOLDER/"),
    ],
)
def test_a_file_is_opened_once_wherever_its_path_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, start: str, opened: Counter[str]
) -> None:
    """``""``: absolute paths; ``../``: relative to the list; ``wavs/``: to the working directory; ``FOLDER/``: to the
    folder above that of the data."""
    lines = _lines(tmp_path)
    (tmp_path / "wavs").symlink_to(Path(lines[0]["wav"]).parent)
    of_each = {"": lambda path: path, "../": lambda path: f"../{path.relative_to(tmp_path)}"}
    of_each |= {"wavs/": lambda path: f"wavs/{path.name}", "FOLDER/": lambda path: path.relative_to(tmp_path.parent)}
    files = [Path(line["wav"]) for line in lines]
    lines = [{**line, "wav": str(of_each[start](path))} for line, path in zip(lines, files, strict=True)]
    monkeypatch.chdir(tmp_path if start == "wavs/" else "/")
    looked, exists, runs = Counter[str](), os.path.exists, []
    monkeypatch.setattr(os.path, "exists", lambda path: (looked.update([str(path)]), exists(path))[1])
    for wanted in (False, True):
        _be_slow(monkeypatch, wanted)
        graph = source(tmp_path, lines).decode_audio().shuffle(8).sort(4).batch(3).pad()
        looked.clear()
        opened.clear()
        runs.append(_run(graph))
    _assert_same(*runs)
    assert sum(len(batch["keys"]) for batch in runs[1][0]) == 60
    assert not [path for path in looked if path.endswith(".wav")]
    times = Counter(str(Path(path).resolve()) for path in opened.elements() if exists(path) and path.endswith(".wav"))
    assert times == dict.fromkeys(map(str, files), 1)


def test_the_first_place_that_has_a_file_is_taken_and_errors_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, runs, failed = _lines(tmp_path), [], []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists").mkdir()
    for number, line in enumerate(lines):
        path = Path(line["wav"])
        line["wav"] = path.name
        if number % 5 == 0:  # the others are in the working directory
            path.unlink()
        if number % 5 == 1:  # and another one beside the list
            (tmp_path / "lists" / path.name).write_bytes(b"RIFF, and no more")
        if number % 5 == 2:
            (tmp_path / "lists" / path.name).mkdir()
    for wanted in (False, True):
        _be_slow(monkeypatch, wanted)
        found: list[str] = []
        monkeypatch.setattr(Ledger, "fail", _noting(found, Ledger.fail))
        runs.append(_run(_raw_list(tmp_path, lines).decode_audio().batch(3).pad()))
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        failed.append(sorted(found))
    _assert_same(*runs)
    assert failed[0] == failed[1]
    assert runs[1][2] == {"missing_file": 12, "unreadable_file": 12, "bad_audio": 12}


def _noting(found: list[str], fail: Any) -> Any:
    def noting(self: Any, error: Any, stage: str) -> None:
        found.append(f"{stage}: {error}")
        fail(self, error, stage)

    return noting


def test_indexed_shards_are_opened_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: None) -> None:
    corpus, threads = shards(tmp_path, [5] * 9), Counter[str]()
    index_lists([str(corpus.list)])
    monkeypatch.setattr(tar_index, "is_slow", lambda path: True)
    table, really = uio.from_tar_index(corpus.list).stages[0].table(), local._opened
    monkeypatch.setattr(
        local, "_opened", lambda path: (threads.update([threading.current_thread().name]), really(path))[1]
    )
    for number in range(len(table)):
        table.fields(number)["wav"].read()
    assert sum(threads.values()) == 9
    assert threading.current_thread().name not in threads


def test_a_file_that_comes_late_is_found(tmp_path: Path, slow: None) -> None:
    path = LocalPath(str(tmp_path / "a.wav"))
    read_ahead([path], needed=False)
    assert whole(path) is None
    path = LocalPath(_lines(tmp_path, 1)[0]["wav"])
    read_ahead([path], needed=False)
    assert whole(path) == Path(path).read_bytes()
    del path


def test_more_than_the_budget_is_not_held(
    tmp_path: Path, slow: None, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened_ahead._held  # by other tests: logged errors hold utterances
    monkeypatch.setattr(opened_ahead, "BUDGET", before + 100_000)
    lines, most = _lines(tmp_path), 0
    loader = uio.Loader(_raw(lines), seed=3, failures="raise")
    for _ in loader:
        most = max(most, opened_ahead._held - before)
    sizes = sorted(Path(line["wav"]).stat().st_size for line in lines)
    assert 0 < most <= sum(sizes) // 2  # the budget, 6 whole files, 60 headers, and what busy threads have not let go
    assert {opened[line["wav"]] for line in lines} == {1, 2}
    del loader


def test_a_path_is_a_text_that_holds_nothing_elsewhere(tmp_path: Path, slow: None) -> None:
    (line,) = _lines(tmp_path, 1)
    path = LocalPath(line["wav"])
    read_ahead([path], needed=True)
    assert whole(path)
    assert path == line["wav"]
    copy = pickle.loads(pickle.dumps(path))
    assert (type(copy), copy) == (str, line["wav"])
    del path


def test_shards_are_opened_once_and_ahead(tmp_path: Path, slow: None, opened: Counter[str]) -> None:
    corpus = shards(tmp_path, [5, 5, 5, 5])
    graph = uio.from_shard_list(str(corpus.list)).decode_audio().batch(2).pad()
    batches, states, _ = found = _run(graph)
    assert sorted(key for batch in batches for key in batch["keys"]) == list(corpus.keys)
    assert {number for path, number in opened.items() if path.endswith(".tar")} == {1}
    for at in (0, 3, 7):
        _assert_same(_run(graph, states[at]), (batches[at + 1 :], states[at + 1 :], found[2]))


def test_several_shards_are_opened_ahead(tmp_path: Path, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, together, really = set[str](), threading.Barrier(open_files.AHEAD), local._opened

    def opening(path: str) -> int:
        if path.endswith(".tar") and path not in opened:
            opened.add(path)
            if len(opened) > 1:  # all but the first one wait for each other
                together.wait(20)
        return really(path)

    monkeypatch.setattr(local, "_opened", opening)
    corpus = shards(tmp_path, [5] * (1 + open_files.AHEAD))
    batches = _run(uio.from_shard_list(str(corpus.list)).decode_audio().batch(2).pad())[0]
    assert sorted(key for batch in batches for key in batch["keys"]) == list(corpus.keys)
    assert not together.broken


def test_a_shard_that_is_missing_fails_at_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = shards(tmp_path, [4, 4, 4])
    (tmp_path / "s001.tar").unlink()
    runs = []
    for wanted in (False, True):
        _be_slow(monkeypatch, wanted)
        runs.append(_run(uio.from_shard_list(str(corpus.list)).decode_audio().batch(2).pad()))
    _assert_same(*runs)
    assert runs[1][2] == {"missing_file": 1}


def test_a_disk_is_slow_by_its_last_openings() -> None:
    local._openings["/mnt/slow"].extend([0.02] * 4)
    local._openings["/mnt/fast"].extend([0.02] + [0.00002] * 7)
    local._openings["/mnt/new"].extend([0.02] * 3)
    assert local.is_slow("/mnt/slow/a/b.wav")
    assert not local.is_slow("/mnt/fast/a/b.wav")
    assert not local.is_slow("/mnt/new/a.wav")
    assert not local.is_slow("a.wav")


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that nobody comes back from; other files are slow to open."""
    names, opened, exists = set[str](), local._opened, os.path.exists

    def hang(path: Any) -> None:
        while os.path.basename(str(path)) in names:
            time.sleep(0.05)

    def opening(path: str) -> int:
        hang(path)
        time.sleep(0.002)
        return opened(path)

    def asking(path: Any) -> bool:
        hang(path)
        return exists(path)

    monkeypatch.setattr(local, "_opened", opening)
    monkeypatch.setattr(os.path, "exists", asking)
    return names


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["absolute", "relative", "manifest", "index"])
def test_only_what_hangs_is_passed_over(tmp_path: Path, hanging: set[str], kind: str, workers: int) -> None:
    if kind == "index":
        several = shards(tmp_path, [3] * 8)
        index_lists([str(several.list)])
        graph, name = uio.from_tar_index(str(several.list)), "s005.tar"
    else:
        lines = _lines(tmp_path, 40)
        name = Path(lines[13]["wav"]).name
        for line in lines:
            line["duration"] = sf.info(line["wav"]).duration
            line["wav"] = line["wav"] if kind == "absolute" else os.path.relpath(line["wav"], tmp_path)
            line |= {"audio_filepath": line["wav"], "text": line["txt"]}
        (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
        graph = (uio.from_nemo if kind == "manifest" else uio.from_raw_list)(str(tmp_path / "lines"))
    expected = [sample["key"] for batch in uio.Loader(graph.batch(1)) for sample in batch]
    lost = expected[15:18] if kind == "index" else expected[13:14]

    hanging.add(name)
    options = {"stall": 0.3, "stall_limit": 0.6, "failures": uio.Failures(hung="skip")}
    loader = uio.Loader(graph.decode_audio().batch(1), num_workers=workers, **options)
    try:
        found = [sample["key"] for batch in loader for sample in batch]
        assert found == [key for key in expected if key not in lost]
        assert loader.stats().skipped == {"hung": len(lost)}
    finally:
        hanging.clear()
