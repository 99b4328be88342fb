"""``uio state``: what a checkpoint holds; two compared; moved to another topology."""

import io
import json
import os
import pickle
import re
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.core.ledger import Ledger
from uio_pipes.run.state import _LANE_KEYS, _META_KEYS
from uio_pipes.tools.reports.states import differences, find_state, moves, per_rank, progress, view


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


def test_shards_done_under_way_and_to_come(many_shards: Corpus) -> None:
    shards = [line for line in many_shards.list.read_text().splitlines() if line.endswith(".tar")]
    loader = uio.Loader(training(many_shards), seed=1, lanes=2)
    keys: list[str] = []
    for step, batch in enumerate(loader):
        keys += batch["keys"]
        items, _ = progress(view(loader.state_dict()), str(many_shards.list))
        assert sorted(name for names in items.values() for name in names) == sorted(shards)
        by_shard = {shard: _keys(shard) for shard in shards}
        assert all(by_shard[s] <= set(keys) for s in items["done"])
        assert not any(by_shard[s] & set(keys) for s in items["to come"])
        assert len(items["under way"]) <= 2
        if step == 0:
            assert not items["done"] or len(items["to come"]) > 20
    done, _ = progress(view(loader.state_dict()), str(many_shards.list))
    assert len(done["done"]) == len(shards)


@pytest.mark.parametrize("sort", [0, 5])
def test_what_buffers_may_have_read_is_never_told_as_to_come(many_shards: Corpus, sort: int) -> None:
    pipeline = uio.from_shard_list(many_shards.list, shuffle=True).decode_audio().shuffle(6)
    pipeline = pipeline.sort(sort) if sort else pipeline
    loader = uio.Loader(pipeline.batch(2).pad(), lanes=3)
    shards = {line: _keys(line) for line in many_shards.list.read_text().splitlines() if line.endswith(".tar")}
    keys: set[str] = set()
    for batch in loader:
        keys |= set(batch["keys"])
        seen = view(loader.state_dict())
        items, seen = progress(seen, str(many_shards.list))
        assert sorted(name for names in items.values() for name in names) == sorted(shards)
        assert all(shards[s] <= keys for s in items["done"])
        assert not any(shards[s] & keys for s in items["to come"])
        under_way = [lane for lane in seen.lanes if lane.k and not lane.done]
        assert all(lane.url in items["under way"] and lane.offset is not None for lane in under_way if lane.since)
        assert all(lane.held <= lane.since for lane in under_way)
    assert len(items["done"]) == len(shards)


def test_a_lane_read_to_its_end_has_nothing_to_come(many_shards: Corpus) -> None:
    loader = uio.Loader(uio.from_shard_list(many_shards.list).decode_audio().shuffle(99).batch(2).pad(), lanes=2)
    next(iter(loader))
    items, seen = progress(view(loader.state_dict()), str(many_shards.list))
    assert [len(items[name]) for name in ("done", "under way", "not finished", "to come")] == [0, 12, 0, 12]
    assert [(lane.held, lane.since, lane.offset) for lane in seen.lanes] == [(16, 18, 0), (0, 0, None)]


def _keys(shard: str) -> set[str]:

    with tarfile.open(shard) as tar:
        return {name.split(".")[0] for name in tar.getnames()}


def test_another_list_is_refused(many_shards: Corpus, plain_corpus: Corpus) -> None:
    with pytest.raises(uio.StateError, match="is not the list of the state"):
        progress(view(run(many_shards, 3)), str(plain_corpus.list))


def test_differences(many_shards: Corpus) -> None:
    old, new = (view(run(many_shards, n, lanes=3)) for n in (4, 6))
    found = differences(old, new)
    assert found["meta"] == {"step": [4, 6]}
    assert [(m["lane"], m["k"], m["utterances"]) for m in found["lanes"]] == [(1, [1, 2], 2), (2, [1, 2], 2)]
    assert not any(differences(old, old).values())
    other = uio.Loader(training(many_shards).take(3), seed=2, lanes=2)
    meta = differences(old, view(other.state_dict()))["meta"]
    assert {"seed", "lanes", "graph", "step"} == meta.keys()
    assert "take" in meta["graph"][1]


def test_states_of_ranks_are_joined_and_cut_anew(many_shards: Corpus) -> None:
    ranks = [run(many_shards, 3, lanes=6, rank=r, world_size=2) for r in range(2)]
    assert view(ranks[0]).missing == [1, 3, 5]
    with pytest.raises(uio.StateError, match="give the files of all ranks"):
        moves(view(ranks[0]), 3, 2)
    merged = uio.merge_states(ranks)
    rows = moves(view(merged), 3, 2)
    assert [(r["rank"], r["worker"], r["lanes"]) for r in rows] == [
        (0, 0, [0]), (0, 1, [3]), (1, 0, [1]), (1, 1, [4]), (2, 0, [2]), (2, 1, [5]),
    ]  # fmt: skip
    rest: list[str] = []
    for rank, part in enumerate(per_rank(merged, 3)):
        loader = uio.Loader(training(many_shards), seed=1, lanes=6, rank=rank, world_size=3)
        loader.load_state_dict(part)
        rest += [k for b in loader for k in b["keys"]]
    assert len(rest) == len(many_shards.keys) - 12
    with pytest.raises(uio.StateError, match="6 lanes cannot feed 7 ranks"):
        moves(view(merged), 7, 0)


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
    with pytest.raises(uio.StateError, match="could run code"):
        find_state(str(tmp_path / "new.pickle"))


def test_damaged_states_are_refused(many_shards: Corpus) -> None:
    good = run(many_shards, 3)
    for bad in (good["lane_000000"].replace('"k": ', '"k": 1'), good["lane_000000"][:-9], "[]"):
        with pytest.raises(uio.StateError, match=r"lane_000000 (is damaged|does not end in a checksum)"):
            view(good | {"lane_000000": bad})
    with pytest.raises(uio.StateError, match="lane 9"):
        view(good | {"lane_000009": good["lane_000000"]})


def test_the_page_describes_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs" / "state.md").read_text()
    fields = {name for _, name in (*_META_KEYS, *_LANE_KEYS)} | {"schema", "nodes", "crc32"}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == fields
    counts = page.partition("`counts` has ")[2].partition("\n\n")[0]
    assert {*Ledger.SAVED, "waited_us"} == set(re.findall(r"`(\w+)`", counts))
