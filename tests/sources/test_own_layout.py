"""A layout of data from outside the package: a table with length, fields and a digest, and the stage that lists it."""

import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import pytest

import uio_pipes as uio
from uio_pipes.base.errors import DataError
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY

RATE = 16_000


# What the author of a layout writes: folders of `NAME.wav`, each with what was said in `NAME.txt`


class Pairs:
    """The recordings of a folder, by number."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).glob("*.wav"))
        self.weights = None  # lengths, if something tells them without opening every file
        self.digest = blake2b(repr([path.name for path in self.paths]).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, number: int) -> str:
        return str(self.paths[number])

    def key(self, number: int) -> str:
        return self.paths[number].stem

    def fields(self, number: int) -> dict[str, Any]:
        text = self.paths[number].with_suffix(".txt")
        if not text.exists():
            raise DataError("missing_text", "the recording has no text: write it", url=str(text))
        return {"key": self.key(number), "wav": self.place(number), "txt": text.read_text()}


@dataclass(frozen=True)
class ListPairs(Source):
    name: ClassVar[str] = "list_pairs"

    folder: str = field(metadata=NO_IDENTITY)  # what it holds has a fingerprint of its own
    shuffle: bool = False

    def table(self) -> Pairs:
        return Pairs(self.folder)


def from_pairs(folder: str | Path, *, shuffle: bool = False) -> uio.Pipeline:
    return uio.Pipeline((ListPairs(str(folder), shuffle),)).sharding_filter().load_records()


# What the package does with it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(20):
        with wave.open(str(tmp_path / f"u{number:02d}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(bytes(2 * RATE // 10 * (1 + number % 3)))
        (tmp_path / f"u{number:02d}.txt").write_text(f"text {number}")
    return tmp_path


def keys(batches: Any) -> list[list[str]]:
    return [batch["keys"] for batch in batches]


def graph(folder: Path) -> uio.Pipeline:
    return from_pairs(folder, shuffle=True).decode_audio().shuffle(5).dynamic_batch(max_frames=60).pad()


@pytest.mark.parametrize("stop", [1, 4])
def test_it_resumes_in_mid_epoch(folder: Path, stop: int) -> None:
    (folder / "u07.txt").unlink()
    whole = keys(uio.Loader(graph(folder), lanes=2))
    assert sorted(key for batch in whole for key in batch) == [f"u{n:02d}" for n in range(20) if n != 7]
    loader = uio.Loader(graph(folder), lanes=2)
    batches = iter(loader)
    first = [next(batches) for _ in range(stop)]
    resumed = uio.Loader(graph(folder), lanes=2)
    resumed.load_state_dict(loader.state_dict())
    assert keys(first) + keys(resumed) == whole
    assert resumed.stats().skipped == {"missing_text": 1}


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.rename(path.with_name("v00.wav"))])
def test_a_changed_folder_is_noticed(folder: Path, change: Callable[[Path], object]) -> None:
    loader = uio.Loader(graph(folder))
    next(iter(loader))
    state = loader.state_dict()
    change(folder / "u00.wav")
    again = uio.Loader(graph(folder))
    with pytest.raises(uio.StateError, match="list"):
        again.load_state_dict(state)


def test_it_is_counted_and_looked_at(folder: Path) -> None:
    pipeline = from_pairs(folder)
    assert len(uio.Loader(pipeline.batch(1))) == 20
    assert "text 0" in str(pipeline.peek())
    assert pipeline.fingerprint() == from_pairs(folder.parent).fingerprint()  # the items have one of their own
    assert pipeline.fingerprint() != from_pairs(folder, shuffle=True).fingerprint()
