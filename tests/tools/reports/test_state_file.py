"""``uio state``: what a checkpoint holds."""

import io
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.core.ledger import Ledger
from uio_pipes.run.state import _LANE_KEYS, _META_KEYS
from uio_pipes.tools.reports.states import find_state, view


def training(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=8).batch(2).pad()


def run(corpus: Corpus, batches: int, **options: Any) -> dict[str, str]:
    loader = uio.Loader(training(corpus), seed=1, **options)
    for _ in zip(range(batches), loader, strict=False):
        pass
    return loader.state_dict()


def test_it_is_found_in_any_checkpoint(many_shards: Corpus, tmp_path: Path) -> None:
    state = run(many_shards, 5, lanes=3)
    torch.save({"model": {"w": torch.zeros(3)}, "data": {"loader": state}, "step": 5}, tmp_path / "c.pt")
    (tmp_path / "s.json").write_text(json.dumps(state))
    assert find_state(str(tmp_path / "c.pt")) == ("data.loader", state)
    assert find_state(str(tmp_path / "s.json")) == ("", state)


def test_it_is_found_at_a_url(many_shards: Corpus) -> None:
    state, memory = run(many_shards, 5, lanes=3), fsspec.filesystem("memory")
    saved = io.BytesIO()
    torch.save({"loader": state}, saved)
    memory.pipe_file("/states/c.pt", saved.getvalue())
    memory.pipe_file("/states/s.json", json.dumps(state).encode())
    assert find_state("memory://states/c.pt") == ("loader", state)
    assert find_state("memory://states/s.json") == ("", state)
    with pytest.raises(uio.DataError, match=r"memory://states/none\.json"):
        find_state("memory://states/none.json")


def test_the_view_is_what_the_loader_counted(many_shards: Corpus) -> None:
    seen = view(run(many_shards, 7, lanes=3))
    assert seen.stats.utterances == sum(lane.stats.utterances for lane in seen.lanes) == 14
    assert [lane.k for lane in seen.lanes] == [3, 2, 2]
    assert seen.done == 0
    assert seen.missing == []


def test_of_buffers_it_shows_where_they_begin(many_shards: Corpus) -> None:
    loader = uio.Loader(uio.from_shard_list(many_shards.list).decode_audio().shuffle(99).batch(2).pad(), lanes=2)
    next(iter(loader))
    lanes = view(loader.state_dict()).lanes
    assert [(lane.held, lane.since, lane.exhausted) for lane in lanes] == [(16, 18, True), (0, 0, False)]


def test_lanes_of_other_ranks_are_missing(many_shards: Corpus) -> None:
    assert view(run(many_shards, 3, lanes=6, rank=0, world_size=2)).missing == [1, 3, 5]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/uio_was_here",)


def test_hostile_and_foreign_files_are_refused_with_a_message(tmp_path: Path) -> None:
    files: dict[str, tuple[bytes, str]] = {
        "pickle": (pickle.dumps({"loader": Evil()}), "not loaded, as it could run code|neither JSON nor"),
        "empty": (b"", "is empty"),
        "zeros": (b"\0" * 4096, "is empty|neither JSON nor|not a file of torch.save"),
        "cut": (b'{"meta": "{}"', "damaged JSON"),
        "deep": (b"[" * 200_000, "damaged JSON"),
        "other": (b'{"weights": [1, 2]}', "holds no state"),
        "raw list": (b'{"key": "a"}\n{"key": "b"}\n', "no state of a loader: it seems to be JSON lines"),
        "text": ("a 今天天气\n".encode() * 99, "no state of a loader: it seems to be text"),
        "audio": (b"RIFF    WAVEfmt ", r"no state of a loader: it seems to be audio \(wav\)"),
        "tar": (b"a.wav".ljust(257, b"\0") + b"ustar\x0000", "no state of a loader: it seems to be a tar archive"),
        "noise": (os.urandom(4096), "not a file of torch.save|neither JSON nor|damaged JSON|holds no state"),
        "zip": (b"PK\x03\x04" + b"x" * 99, "neither JSON nor|not a file of torch.save"),
    }
    for name, (data, message) in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(uio.StateError, match=message):
            find_state(str(tmp_path / name))
    torch.save({"loader": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(uio.StateError, match="could run code"):
        find_state(str(tmp_path / "evil.pt"))
    assert not Path("/tmp/uio_was_here").exists()


@pytest.mark.filterwarnings("error")
def test_what_a_file_holds_too_much_is_named_in_words_of_our_own(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(1, 1), tmp_path / "module.pt")
    with pytest.raises(uio.StateError, match=r"\(weights_only refused torch\.nn\.modules\.linear\.Linear\)") as raised:
        find_state(str(tmp_path / "module.pt"))
    assert "\x1b" not in str(raised.value)
    (tmp_path / "new.pickle").write_bytes(pickle.dumps({"loader": Evil()}, protocol=4))  # torch warns of the protocol
    with pytest.raises(uio.StateError):
        find_state(str(tmp_path / "new.pickle"))


def test_the_page_describes_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs" / "state.md").read_text()
    fields = {name for _, name in (*_META_KEYS, *_LANE_KEYS)} | {"schema", "nodes", "crc32"}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == fields
    counts = page.partition("`counts` has ")[2].partition("\n\n")[0]
    assert {*Ledger.SAVED, "waited_us"} == set(re.findall(r"`(\w+)`", counts))
