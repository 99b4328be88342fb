"""A small project folder that all pages of the documentation use: ``uio example``.

::

    DIR/data/wav/U000.wav …            48 short recordings, 16 kHz
             raw.list                  WeNet's raw list of them
             kaldi/                    Kaldi's tables of them: wav.scp, text, utt2spk
             shards/, shards.list      the same as tar shards, by `uio pack`
             lang_char.txt             the dictionary of their texts, by `uio dict`
             global_cmvn               their mean and variance, by `uio cmvn`
             features/, feature_shards.list      shards of their filter banks, KEY.npy and KEY.txt
             noise/, noise.list        noises
             rooms/, rooms.list        impulse responses
             texts.txt, texts.list     texts alone
             example.json              what was made, and from which seed

Paths in lists are relative to DIR, where the commands of the pages are run. All of it is made under another name and
then moved into its place, so that ``data`` is never incomplete.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from uio_pipes.base.errors import UioError
from uio_pipes.base.json_text import parse_json
from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.dictionary import characters, write_table
from uio_pipes.tools.data.example_speech import RATE, SENTENCES, Samples, SpokenSentence, noises, rooms, talk
from uio_pipes.tools.data.pack import FeatureSettings, PackSettings, pack
from uio_pipes.tools.data.writing.cutting import encode

PER_SHARD = 4  # twelve shards: something for each of twelve lanes


def write_all(spoken: list[SpokenSentence], seed: int) -> None:
    """Write everything: recordings, lists, tables, shards, dictionary, features."""
    paths = _write_wavs("data/wav", {one.key: one.samples for one in spoken})
    lines = [{"key": u.key, "wav": p, "txt": u.txt, "speaker": u.speaker} for u, p in zip(spoken, paths, strict=True)]
    write_lines(Path("data/raw.list"), (json.dumps(line, ensure_ascii=False) for line in lines))
    for table, field in (("wav.scp", "wav"), ("text", "txt"), ("utt2spk", "speaker")):
        write_lines(Path("data/kaldi", table), (f"{line['key']} {line[field]}" for line in lines))
    _write_sounds("noise", noises(seed))
    _write_sounds("rooms", rooms(seed))
    write_lines(Path("data/texts.txt"), SENTENCES)
    write_lines(Path("data/texts.list"), ["data/texts.txt"])
    write_table(Path("data/lang_char.txt"), characters(one.txt for one in spoken))
    as_uio_pack = PackSettings(PER_SHARD, form="as-is", sample_rate=None, name="shards_{:09d}.tar")
    pack("data/raw.list", "data/shards", "data/shards.list", as_uio_pack)
    from uio_pipes.tools.data.cmvn import FBANK, compute_cmvn  # only here: it needs torch

    compute_cmvn("data/raw.list", Path("data/global_cmvn"))
    features = replace(as_uio_pack, features=FeatureSettings(conf=FBANK), name="features_{:09d}.tar")
    pack("data/raw.list", "data/features", "data/feature_shards.list", features)
    for left_by_a_command in [*Path("data").glob("*.manifest"), *Path("data").glob("*.journal")]:
        left_by_a_command.unlink()


def _write_sounds(name: str, sounds: Iterable[Samples]) -> None:
    """Write recordings without texts, and their list."""
    paths = _write_wavs(f"data/{name}", {f"{name}{number}": samples for number, samples in enumerate(sounds)})
    write_lines(Path(f"data/{name}.list"), paths)


def _write_wavs(folder: str, sounds: dict[str, Samples]) -> list[str]:
    Path(folder).mkdir(parents=True)
    for key, samples in sounds.items():
        Path(folder, f"{key}.wav").write_bytes(encode(samples, RATE, "wav"))
    return [f"{folder}/{key}.wav" for key in sounds]


FACTS = "example.json"
CONTENT = {
    "data/raw.list": "WeNet's raw list; the recordings are in data/wav",
    "data/kaldi": "Kaldi's tables of the same recordings",
    "data/shards.list": "the same as tar shards; they are in data/shards",
    "data/lang_char.txt": "dictionary of characters",
    "data/global_cmvn": "mean and variance of 80 filter banks",
    "data/feature_shards.list": "tar shards of the filter banks; they are in data/features",
    "data/noise.list": "noises to add",
    "data/rooms.list": "impulse responses of rooms",
    "data/texts.list": "texts alone",
}


class ExampleProblem(UioError):
    """The example cannot be made there; the message says why and what to do."""


@dataclass(frozen=True)
class Example:
    """The example that was made. ``speech``: the way it was spoken; ``files``: their names within ``data``."""

    seed: int
    utterances: int
    seconds: float
    speech: str
    files: list[str]


def make_example(folder: Path, seed: int = 0) -> tuple[Example, bool]:
    """Make ``folder/data``; the second value is False if it was there already. Nothing is ever overwritten.

    Raises: ExampleProblem.
    """
    data = (folder / "data").resolve()
    if data.is_dir() and any(data.iterdir()):
        return _known(data, seed), False
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".uio-example-", dir=data.parent) as scratch, _working_in(Path(scratch)):
        speech, spoken = talk(seed)
        write_all(spoken, seed)
        files = sorted(str(path.relative_to("data")) for path in Path("data").rglob("*") if path.is_file())
        seconds = sum(len(one.samples) for one in spoken) / RATE
        made = Example(seed, len(spoken), round(seconds, 2), speech, files)
        Path("data", FACTS).write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
        os.rename("data", data)  # fails if something has been put there meanwhile
    return made, True


def _known(data: Path, seed: int) -> Example:
    try:
        known = Example(**parse_json((data / FACTS).read_text(encoding="utf-8")))
        missing = [name for name in known.files if not (data / name).exists()]
    except (OSError, ValueError, TypeError):
        raise ExampleProblem(
            f"{data} holds files that uio example has not made, and it overwrites nothing: name another folder"
        ) from None
    if known.seed != seed:
        raise ExampleProblem(f"{data} was made with --seed {known.seed}, not {seed}: delete it, or name another folder")
    if missing:
        raise ExampleProblem(f"{data} lacks {missing[0]}, which uio example made: delete {data} and make it again")
    return known


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Change the working directory for a block: paths in lists are relative to it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
