"""Audio files and features that are cut off or damaged, through a loader as training reads them."""

import importlib.util
import io
import random
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import soundfile
import torch
from encoded import CODECS, chirp, encode
from ogg_files import ogg
from sweeps.sweep import Outcome, Result, Row, rows, trials
from sweeps.table import assert_documented

import uio_pipes as uio

RATE = 16_000
TABLE, USUAL, SEED = True, 20, 1
CUT, FLIPPED = "cut off at a random byte", "a bit flipped"
Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


DAMAGES: dict[str, Damage] = {CUT: cut, FLIPPED: flipped}


def written(form: str, subtype: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, chirp(RATE * 2, RATE)[0], RATE, format=form, subtype=subtype)
    return buffer.getvalue()


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.random.default_rng(0).standard_normal((200, 20)).astype(np.float32))
    return buffer.getvalue()


@cache
def things() -> dict[str, bytes]:
    """Sound files by what they are."""
    found = {
        "Ogg Vorbis": ogg(2),
        "Ogg Opus": ogg(2, "OPUS"),
        "FLAC": written("FLAC", "PCM_16"),
        "MP3": written("MP3", "MPEG_LAYER_III"),
        "wav": written("WAV", "PCM_16"),
        "µ-law wav": written("WAV", "ULAW"),
        "AIFF": written("AIFF", "PCM_16"),
        "NIST SPHERE": written("NIST", "PCM_16"),
        "features (.npy)": npy(),
    }
    if importlib.util.find_spec("av"):
        found |= {suffix: encode(chirp(RATE * 2, RATE), RATE, suffix) for suffix in CODECS}
    return found


def delivered(thing: str, data: bytes) -> tuple[torch.Tensor | None, tuple[str, ...]]:
    """Return the data as training gets it, and the reasons under which it was counted."""
    name = "feat" if "npy" in thing else "wav"
    graph = uio.from_iterable([{"key": "a", name: data, "txt": ""}])
    loader = uio.Loader(graph if name == "feat" else graph.decode_audio(), rank=0, world_size=1)
    try:
        samples = list(loader)
    except uio.TooManyFailures:  # there was nothing else to read
        samples = []
    return (samples[0][name] if samples else None), tuple(loader.stats().skipped)


def sweep(count: int, seed: int) -> Iterator[Outcome]:
    """Each kind of file, damaged ``count`` times in each way."""
    for thing, data in things().items():
        sound, _ = delivered(thing, data)
        assert sound is not None, thing
        for damage, make in DAMAGES.items():
            for number in range(count):
                name = f"{thing}/{damage}/{seed}/{number}"
                got, reasons = delivered(thing, make(data, random.Random(name)))
                same = got is not None and got.shape == sound.shape and torch.equal(got, sound)
                result: Result = "reported" if reasons else "unchanged" if same else "silent"
                yield Outcome(thing, damage, result, reasons, name)


Table = dict[tuple[str, str], Row]
FRAMED = ("Ogg Vorbis", "Ogg Opus", "FLAC")  # their pages or frames have checksums


def alike(thing: str, damage: str) -> tuple[str, str]:
    """A row for all that is cut off, and for flipped bits one for each kind of file."""
    if damage == CUT and "npy" not in thing:
        return "audio in any of these formats", damage
    groups = (FRAMED, ("wav", "µ-law wav", "AIFF", "NIST SPHERE"), ("m4a", "alac", "aac"))
    return next((", ".join(group) for group in groups if thing in group), thing), damage


@pytest.fixture(scope="module")
def table() -> Table:
    return rows(sweep(trials(USUAL), SEED))


def test_what_is_promised_is_never_silent(table: Table) -> None:
    promised = [key for key in table if key[1] == CUT or key[0] in FRAMED]
    assert len(promised) >= 12
    assert {key: table[key].silent for key in promised if table[key].silent} == {}


@pytest.mark.skipif(not importlib.util.find_spec("av"), reason="could not import av: the docs have rows of its formats")
def test_the_docs_say_so(table: Table) -> None:
    assert_documented(table, alike)


def test_no_damage_is_reported_as_a_fault_of_the_program(table: Table) -> None:
    known = {"truncated_audio", "bad_audio", "empty_audio", "bad_features", "bomb", "nan_audio", "length_mismatch"}
    assert {reason for row in table.values() for reason in row.reasons} <= known


def test_cuts_are_called_cuts_where_the_format_tells(table: Table) -> None:
    for thing in ("Ogg Vorbis", "Ogg Opus", "wav", "AIFF"):
        found = table[thing, CUT].reasons
        assert found["truncated_audio"] >= 0.9 * found.total(), (thing, found)
