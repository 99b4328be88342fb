"""``balance`` and ``balanced_batch``: the order of a table drawn by the values of a field."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from archive_files import tar_bytes
from corpus import wav_bytes
from helpers_bad import run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.tools.data.index import index_lists

SIZES = {"en": 160, "de": 40, "sw": 9}


def rows(sizes: dict[str, int], **more: Any) -> list[dict[str, Any]]:
    return [{"key": f"{name}{i}", "txt": "t", "lang": name, **more} for name, n in sizes.items() for i in range(n)]


def with_draw(sample: uio.Sample, rng: Any) -> uio.Sample:
    sample["drawn"] = int(rng.integers(1 << 40))
    return sample


@pytest.mark.parametrize(("power", "shares"), [(0.0, (1, 1, 1)), (0.5, (160**0.5, 40**0.5, 3)), (1.0, (160, 40, 9))])
def test_shares_follow_the_power_law_and_nobody_is_left_out(power: float, shares: tuple[float, ...]) -> None:
    """Over epochs, all utterances of a language come equally often, each time with draws of its own."""
    graph = uio.from_table(rows(SIZES)).balance("lang", power).map(with_draw)
    loader, total = uio.Loader(graph, lanes=3, seed=4), sum(SIZES.values())
    heard, drawn = Counter[str](), list[int]()
    for epoch in range(6):
        came = list(loader)
        assert len(came) == total == len(loader)
        counts = Counter(sample["lang"] for sample in came)
        for name, share in zip(SIZES, shares, strict=True):
            assert abs(counts[name] - total * share / sum(shares)) <= 1, epoch
        heard.update(sample["key"] for sample in came)
        drawn += [sample["drawn"] for sample in came]
    for name, size in SIZES.items():
        often = [heard[f"{name}{i}"] for i in range(size)]
        assert max(often) - min(often) <= 2
    assert len(set(drawn)) == len(drawn)


def test_every_source_with_known_values(tmp_path: Path) -> None:
    """A raw list, a Kaldi folder, and tars with an index whose values are members."""
    names = [f"{speaker}{i}" for speaker, n in (("a", 12), ("b", 3)) for i in range(n)]
    for name in names:
        (tmp_path / f"{name}.wav").write_bytes(wav_bytes(len(name)))
    raw = [{"key": n, "wav": str(tmp_path / f"{n}.wav"), "txt": "t", "speaker": n[0]} for n in names]
    for file, value in {"wav.scp": f"{tmp_path}/{{}}.wav", "text": "t", "utt2spk": "{}"}.items():
        of = [name[0] if file == "utt2spk" else name for name in names]
        (tmp_path / file).write_text("".join(f"{n} {value.format(v)}\n" for n, v in zip(names, of, strict=True)))
    members = [
        (f"{n}.{s}", d) for n in names for s, d in {"wav": wav_bytes(1), "txt": b"t", "speaker": n[:1].encode()}.items()
    ]
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    index_lists([str(tmp_path / "a.tar")])
    for source in uio.from_raw_list(raw), uio.from_kaldi(tmp_path), uio.from_tar_index(str(tmp_path / "a.tar")):
        counts = Counter(sample["key"][0] for sample in uio.Loader(source.balance("speaker", power=0)))
        assert sorted(counts.values()) == [7, 8], source


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=9),
    classes=st.integers(1, 4),
    each=st.integers(1, 4),
    lanes=st.integers(1, 4),
    unread=st.integers(0, 5),
)
def test_batches_have_several_of_each_of_several(
    sizes: list[int], classes: int, each: int, lanes: int, unread: int
) -> None:
    named = {f"s{i}-": size for i, size in enumerate(sizes)}
    table = rows(named) + [{"key": f"bad{i}", "txt": None, "lang": "x"} for i in range(unread)]
    graph = uio.from_table(table, fields={"key": "key", "txt": "txt", "lang": "lang"})
    loader = uio.Loader(graph.balanced_batch("lang", classes, each), lanes=lanes)
    if classes > len(sizes):
        with pytest.raises(uio.ListError, match=rf"classes is {classes}, but 'lang' has only"):
            list(loader)
        return
    batches = list(loader)
    for batch in batches:
        values = [sample["lang"] for sample in batch]
        assert len(values) == classes * each
        assert len(set(values)) == classes
        assert values == [value for value in values[::each] for _ in range(each)]
        for value in set(values):  # nobody twice in a group that has enough others
            own = [sample["key"] for sample in batch if sample["lang"] == value]
            assert len(set(own)) == min(each, named[value])
    assert len(batches) % lanes == 0
    most = -(-sum(-(-size // each) for size in sizes) // (classes * lanes)) * lanes
    assert len(batches) == most
    heard = {sample["key"] for batch in batches for sample in batch}
    for value, size in named.items():
        came = sum(key.startswith(value) for key in heard)
        assert came == min(size, most * each)
    assert loader.stats().skipped == ({"missing_text": unread} if unread else {})


def test_what_a_filter_leaves_out_leaves_its_batch_smaller() -> None:
    graph = uio.from_table(rows({"a": 8, "b": 8, "c": 8, "d": 8}))
    whole = [[sample["key"] for sample in batch] for batch in uio.Loader(graph.balanced_batch("lang", 2, 2))]
    kept = graph.filter(lambda sample: not sample.key.startswith("a") and sample.key != "b3")
    batches, _ = run(kept.balanced_batch("lang", 2, 2))
    out = [[key for key in batch if key[0] != "a" and key != "b3"] for batch in whole]
    assert [[sample["key"] for sample in batch] for batch in batches] == [batch for batch in out if batch]


@pytest.mark.parametrize("stage", ["balance", "balanced_batch"])
def test_an_utterance_without_the_field_is_an_error(stage: str) -> None:
    table = [*rows({"a": 3}), {"key": "n", "txt": "t"}]
    graph = uio.from_table(table)
    graph = graph.balance("lang") if stage == "balance" else graph.balanced_batch("lang", 1, 1)
    with pytest.raises(uio.ListError, match=rf"{stage}: an utterance has no 'lang' \(.* 4 has key, txt\): add it"):
        list(uio.Loader(graph))
