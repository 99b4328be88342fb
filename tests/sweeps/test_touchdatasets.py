"""Random damage to the files of a TouchDataset: what differs is refused or counted, never delivered in silence."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import touchdataset
from sweeps.sweep import Outcome, rows, trials
from sweeps.table import assert_documented

import uio_pipes as uio
from uio_pipes.tools.data.index import index_lists

TABLE, USUAL, SEED = True, 25, 0
COUNT = 12
WORD = "audio+metainfo+video+texttoken"
FILES = tuple(f"{name}.{suffix}" for name in WORD.split("+") for suffix in ("idx", "bin"))
DAMAGES = ("a bit flipped", "cut off", "zeros written over it")


def sweep(count: int, seed: int) -> Iterator[Outcome]:
    """``count`` trials of each damage to each file, with and without checksums."""
    with tempfile.TemporaryDirectory() as place:
        sound = touchdataset.write(Path(place) / "sound", touchdataset.speech(COUNT, seconds=(0.05, 0.1)))
        records = np.random.default_rng(0)
        for name, dtype in (("video", np.uint8), ("texttoken", np.uint16)):
            items = [records.integers(0, 256, records.integers(20, 200)).astype(dtype) for _ in range(COUNT)]
            touchdataset.write_pair(sound / name, items)
        index_lists([str(sound)])
        expected = delivered(sound, None)[0]
        for checksums in (False, True):
            for name in FILES:
                for damage in DAMAGES:
                    for trial in range(count):
                        mark = f"{seed}/{name}/{damage}/{trial}"
                        folder = Path(place) / "damaged"
                        shutil.copytree(sound, folder)
                        hurt(folder / name, damage, random.Random(mark))
                        thing = f"TouchDataset, {name}, {'checksums' if checksums else 'no checksums'}"
                        yield outcome(thing, damage, expected, folder, checksums, mark)
                        shutil.rmtree(folder)


def alike(thing: str, damage: str) -> tuple[str, str]:
    """Indexes are checked, and with checksums all files are alike; without, only metadata tell something."""
    if ".idx" in thing:
        return "TouchDataset, any `.idx`", "any of these"
    if thing.endswith(", checksums"):
        return "TouchDataset, any `.bin`, checksums", "any of these"
    which = "`metainfo.bin`" if "metainfo" in thing else "any other `.bin`"
    return f"TouchDataset, {which}, no checksums", damage if damage == "cut off" else "any of the others"


def hurt(path: Path, damage: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    if damage == "a bit flipped":
        data[at] ^= 1 << rng.randrange(8)
    elif damage == "cut off":
        del data[at:]
    else:
        end = min(len(data), at + rng.randint(1, 512))
        data[at:end] = bytes(end - at)
    path.write_bytes(bytes(data))


def delivered(folder: Path, verify: str | None) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """A hash of what each utterance is, by key; and the reasons for what did not come."""
    loader = uio.Loader(uio.from_indexed(f"{folder} {WORD}", verify=verify).decode_audio())  # type: ignore[arg-type]
    try:
        made = {sample["key"]: _hash(sample) for sample in loader}
    except uio.ListError:
        return {}, ("refused",)
    except uio.TooManyFailures:
        return {}, tuple(loader.stats().skipped)
    return made, tuple(loader.stats().skipped)


def _hash(sample: uio.Sample) -> bytes:
    texts = repr([(name, sample[name]) for name in sorted(sample) if name != "wav"]).encode()
    return blake2b(texts + sample["wav"].numpy().tobytes()).digest()


def outcome(thing: str, damage: str, expected: dict[str, bytes], folder: Path, checksums: bool, mark: str) -> Outcome:
    made, reasons = delivered(folder, "crc" if checksums else None)
    if made == expected and not reasons:
        return Outcome(thing, damage, "unchanged", (), mark)
    wrong = any(expected.get(key) != value for key, value in made.items()) or not reasons
    return Outcome(thing, damage, "silent" if wrong else "reported", reasons, mark)


def test_damage_is_never_silent_with_checksums_nor_in_an_index_without() -> None:
    table = rows(sweep(trials(USUAL), SEED))
    assert len(table) == 2 * len(FILES) * len(DAMAGES)
    for (thing, damage), row in table.items():
        if "no checksums" not in thing or "idx" in thing or damage == "cut off":
            assert row.silent == [], (thing, damage)
    assert sum(row.results["reported"] for row in table.values()) > sum(
        row.results["unchanged"] for row in table.values()
    )
    unseen = table["TouchDataset, audio.bin, no checksums", "a bit flipped"]
    assert unseen.results["silent"] == sum(unseen.results.values()), "samples as such tell nothing"
    assert_documented(table, alike)
