"""What small corpora are made with. Each utterance is a tone of its own: a wrong join or a wrong cut is heard."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

SECONDS = 0.4
PAUSE = 0.1  # seconds between the utterances of a recording
_SUBTYPES = {"WAV": "PCM_16", "FLAC": "PCM_16", "MP3": "MPEG_LAYER_III", "OGG": "VORBIS", "OPUS": "OPUS"}


class Said(NamedTuple):
    """An utterance as it must be delivered.

    ``tone``: its frequency in Hz; ``seconds``: its length; ``start``: where it begins in its recording.
    """

    part: str
    key: str
    txt: str | None
    speaker: str | None
    lang: str | None
    tone: float
    seconds: float
    start: float | None = None

    @property
    def end(self) -> float:
        return (self.start or 0.0) + self.seconds

    def wave(self, rate: int) -> npt.NDArray[np.float32]:
        """Its samples: (S,) float32."""
        times = np.arange(round(self.seconds * rate)) / rate
        return (0.5 * np.sin(2 * np.pi * self.tone * times)).astype(np.float32)


class Making:
    """A corpus that is being made in a folder, and what reading it must give.

    Attributes:
        downloaded: whether archives are left as they are downloaded; otherwise what would be in them is extracted.
        said: its utterances.
        lost: how many of a part are left out, by reason.
    """

    def __init__(self, folder: Path, downloaded: bool) -> None:
        self.folder, self.downloaded = folder, downloaded
        self.said: list[Said] = []
        self.lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._archives: dict[str, dict[str, bytes]] = {}
        self._tones = 0

    def say(
        self,
        part: str,
        key: str,
        txt: str | None,
        speaker: str | None = None,
        lang: str | None = None,
        *,
        seconds: float = SECONDS,
        start: float | None = None,
    ) -> Said:
        """Note an utterance that is to be delivered."""
        self.said.append(Said(part, key, txt, speaker, lang, 250.0 + 50 * self._tones, seconds, start))
        self._tones += 1
        return self.said[-1]

    def lose(self, part: str, reason: str, count: int = 1) -> None:
        self.lost[part][reason] += count

    def write(self, path: str, content: str | bytes | Sequence[str], encoding: str = "utf-8") -> None:
        """Write a file; a list is its lines."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_bytes(content, encoding))

    def put(
        self, archive: str, member: str, content: str | bytes | Sequence[str], encoding: str = "utf-8", at: str = ""
    ) -> None:
        """Add a member to an archive; where archives are extracted, write it into the folder ``at``."""
        if self.downloaded:
            self._archives.setdefault(archive, {})[member] = _bytes(content, encoding)
        else:
            self.write(f"{at}/{member}" if at else member, content, encoding)

    def finish(self) -> Making:
        """Write the archives."""
        for name, members in self._archives.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zipped(members) if name.endswith(".zip") else tarred(members, mode_of(name)))
        return self


Build = Callable[[Making], None]


def mode_of(name: str) -> str:
    """Return how ``tarfile`` is to write an archive of that name."""
    return {"gz": "w:gz", "tgz": "w:gz", "bz2": "w:bz2"}.get(name.rpartition(".")[2], "w")


def tarred(members: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar with these members, in their order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for folder in dict.fromkeys(name.rpartition("/")[0] for name in members if "/" in name):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    """A zip with these members: texts deflated, audio stored."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members.items():
            plain = name.endswith((".flac", ".wav"))
            file.writestr(name, data, zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED)
    return out.getvalue()


def encoded(samples: npt.NDArray[np.float32], rate: int, form: str = "WAV", subtype: str | None = None) -> bytes:
    """Samples, (S,) or (S, C), as a file; ``form``: WAV, FLAC, MP3, OGG or OPUS."""
    out = io.BytesIO()
    container = "OGG" if form == "OPUS" else form
    soundfile.write(out, samples, rate, format=container, subtype=subtype or _SUBTYPES[form])
    return out.getvalue()


def spoken(said: Said, rate: int = 16_000, form: str = "WAV") -> bytes:
    """An utterance as a file of its own."""
    return encoded(said.wave(rate), rate, form)


def recorded(
    said: Sequence[Said],
    rate: int,
    form: str = "WAV",
    channels: Sequence[int] = (),
    seconds: float = 0.0,
    pause: float = PAUSE,
) -> bytes:
    """A recording with its utterances where they start; ``channels``: that of each utterance; ``pause``: after the last
    one, of which so much is missing if it is below 0. At least ``seconds``."""
    length = round(max([seconds, *(one.end + pause for one in said)]) * rate)
    count = max(channels, default=0) + 1
    samples = np.zeros((length, count), np.float32)
    for number, one in enumerate(said):
        begin, wave = round((one.start or 0.0) * rate), one.wave(rate)
        there = samples[begin : begin + len(wave), channels[number] if channels else 0]
        there += wave[: len(there)]
    return encoded(samples if count > 1 else samples[:, 0], rate, form)


def pcm(said: Said, rate: int = 16_000) -> bytes:
    """An utterance as headerless samples of 16 bits, little-endian."""
    return (said.wave(rate) * 32767).astype("<i2").tobytes()


def sphere(samples: npt.NDArray[np.float32], rate: int = 16_000) -> bytes:
    """Samples as an uncompressed NIST sphere file of 16 bits, little-endian."""
    lines = [
        "NIST_1A",
        "   1024",
        "channel_count -i 1",
        f"sample_count -i {len(samples)}",
        f"sample_rate -i {rate}",
        "sample_n_bytes -i 2",
        "sample_byte_format -s2 01",
        "sample_sig_bits -i 16",
        "end_head",
        "",
    ]
    return "\n".join(lines).encode().ljust(1024) + (samples * 32767).astype("<i2").tobytes()


def line(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def _bytes(content: str | bytes | Sequence[str], encoding: str) -> bytes:
    if isinstance(content, bytes):
        return content
    text = content if isinstance(content, str) else "".join(f"{one}\n" for one in content)
    return text.encode(encoding)
