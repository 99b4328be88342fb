"""What ``benchmarks.compare`` counts when it kills a loader: utterances that training lacks, or got twice."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import compare
from benchmarks.corpus import Corpus
from benchmarks.peers import Batch, Resumable, Work

COUNT, AT = 30, 25  # batches of one utterance; the last checkpoint before the kill is after 20


def _from(start: int) -> Iterator[Batch]:
    for number in range(start, COUNT):
        yield Batch([f"key{number}"], torch.zeros(1, 1), torch.ones(1))


def _endless(work: Work) -> Resumable:
    given = [work.state or 0]

    def batches() -> Iterator[Batch]:
        while True:  # an epoch that is shuffled across its edge: some utterances come twice in as many as it has
            given[0] += 1
            yield Batch([f"key{given[0] % (COUNT - 5)}"], torch.zeros(1, 1), torch.ones(1))

    return Resumable(batches(), lambda: given[0], endless=work.endless)


def _without_a_way(work: Work) -> Iterator[Batch]:
    yield from _from(0)


def _that_is(behind: int) -> Callable[[Work], Iterable[Batch]]:
    """Return a loader whose state is so many batches behind those that it has given; ahead if below 0."""

    def make(work: Work) -> Resumable:
        given = [work.state or 0]

        def batches() -> Iterator[Batch]:
            for batch in _from(given[0]):
                given[0] += 1
                yield batch

        return Resumable(batches(), lambda: given[0] - behind)

    return make


def _failing(work: Work) -> Resumable:
    if work.state is not None:
        raise ValueError("first line\nit cannot be loaded")
    return Resumable(_from(0), lambda: 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_that_is(0), "0 / 0"),
        (_that_is(3), "3 / 3"),
        (_that_is(-4), "4 / 0"),
        (_without_a_way, "0 / 20 *"),
        (_endless, "0 / 0"),
        (_failing, "it cannot be loaded"),
    ],
    ids=["exact", "behind", "ahead", "without a way", "endless", "failing"],
)
def test_counts_what_is_lost_and_repeated(
    make: Callable[[Work], Iterable[Batch]], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "EVERY", 10)
    work = Work(Corpus(tmp_path, COUNT, 1.0, "none"), 1)
    assert compare._told(compare._killed(work, make, AT)) == told


def test_a_loader_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import time

    monkeypatch.setattr(compare, "PATIENCE", 0.2)
    assert compare._forked(lambda: time.sleep(60), tmp_path / "told") == 1
    assert (tmp_path / "told").read_text() == "did not end within 0.2 s"
