"""Archives as they are published, and tables that describe their members: each member a tone of its own."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import zstandard

RATE = 16_000
Members = Sequence[tuple[str, bytes]]


def tone(number: int, seconds: float = 0.4) -> bytes:
    """The wav file of a tone of ``200 + 25 × number`` Hz."""
    samples = np.sin(2 * np.pi * (200 + 25 * number) * np.arange(int(RATE * seconds)) / RATE)
    out = io.BytesIO()
    soundfile.write(out, 0.5 * samples, RATE, format="WAV", subtype="PCM_16")
    return out.getvalue()


def heard(wav: Any) -> int:
    """The number of the tone in samples, whatever their length."""
    samples = np.asarray(wav).reshape(-1)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 16))
    return round((int(spectrum.argmax()) * RATE / (1 << 16) - 200) / 25)


def tar_bytes(members: Members, form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_bytes(members: Members, methods: Sequence[int] = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)) -> bytes:
    """A zip whose members are stored and deflated in turn."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for number, (name, data) in enumerate(members):
            packed.writestr(name, data, methods[number % len(methods)])
    return out.getvalue()


COMPRESS = {
    "gz": gzip.compress,
    "tgz": gzip.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def write_archive(path: Path, members: Members) -> Path:
    """Write an archive of the kind that its name says; a folder gets the members as files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix[1:]
    if not suffix:
        for name, data in members:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    elif suffix == "zip":
        path.write_bytes(zip_bytes(members))
    else:
        data = tar_bytes(members)
        path.write_bytes(COMPRESS[suffix](data) if suffix in COMPRESS else data)
    return path


def write_table(path: Path, rows: Iterable[Sequence[object]]) -> Path:
    """Write a TSV: the first one of ``rows`` is the header."""
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path
