"""Make the corpus of the benchmarks, once: ``python -m benchmarks.corpus [--data FOLDER]``.

3,000 utterances, about 4.2 h, 16 kHz, 16 bits, in 6 shards of 500, with WeNet's names, txt before the audio: as tar,
tar.gz and tar of FLAC, and as Lhotse Shar of wav and of FLAC if Lhotse is installed. The speech is that of
``recipes.aishell.mini``: sentences, joined to a mean of 5 s (up to 9 s). Without espeak-ng it is noise in bursts of
such lengths.
"""

from __future__ import annotations

import argparse
import gzip
import io
import itertools
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from benchmarks.common import default_folder, sized

__all__ = ["Corpus", "default_folder", "prepare", "tar_of", "wav_members", "wav_of"]

RATE = 16_000
UTTERANCES, SHARD = sized((3_000, 500), (90, 15))
SENTENCES = 2 * UTTERANCES  # spoken ones; if they are too few, they are used again
SEED = 1
MADE_BY = [2, UTTERANCES, SHARD, SEED]  # a corpus that was made in another way is replaced
MEAN, DEVIATION, SHORTEST, LONGEST = 4.9, 1.7, 1.5, 9.0  # seconds

Samples = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Corpus:
    """The corpus on the disk."""

    folder: Path
    utterances: int
    seconds: float
    speech: str

    def shards(self, kind: str) -> list[str]:
        """Return the paths of the shards; ``kind`` is "tar", "tar.gz" or "flac" (plain tars of it)."""
        suffix = "tar" if kind == "flac" else kind
        return sorted(str(path) for path in (self.folder / kind).glob(f"*.{suffix}"))

    def list(self, kind: str) -> str:
        """Return the path of the shard list."""
        return str(self.folder / f"{kind}.list")

    def wavs(self) -> Path:
        """Return a raw list (JSON with key, wav and txt) of the utterances as files, which are written once."""
        path = self.folder / "wav.list"
        if not path.exists():
            (self.folder / "wav").mkdir(exist_ok=True)
            lines = []
            for key, txt, wav in (one for shard in self.shards("tar") for one in _utterances(Path(shard))):
                file = self.folder.resolve() / "wav" / f"{key}.wav"
                file.write_bytes(wav)
                lines.append(json.dumps({"key": key, "wav": str(file), "txt": txt}, ensure_ascii=False) + "\n")
            path.write_text("".join(lines), encoding="utf-8")
        return path

    def shar(self, kind: str) -> Path:
        """Return the folder of Lhotse Shar: wav or FLAC in plain tars."""
        return self.folder / ("shar.flac" if kind == "flac" else "shar")


def prepare(folder: Path, tar_only: bool = False) -> Corpus:
    """Return the corpus in ``folder``; make it if it is not there, or was made by another version of this module.
    ``tar_only``: what else there is of it, compressed and as Shar, is not wanted."""
    facts = folder / "corpus.json"
    if not facts.exists() or json.loads(facts.read_text()).pop("made_by", None) != MADE_BY:
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        made = _make(partial, folder.resolve())
        (partial / "corpus.json").write_text(json.dumps(made))
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    if not (tar_only or (folder / "flac.list").exists()):
        _make_others(folder)
    known = json.loads(facts.read_text())
    return Corpus(folder, known["utterances"], known["seconds"], known["speech"])


def _make(folder: Path, final: Path) -> dict[str, Any]:
    print(f"making the benchmarks' corpus in {final}: about two minutes", file=sys.stderr)
    spoken = _speak(folder / "spoken")
    utterances = _joined(spoken) if spoken else _noise()
    jobs, block, seconds = [], [], 0.0
    with ProcessPoolExecutor(2) as pool:
        for number, (key, txt, samples) in enumerate(utterances):
            seconds += len(samples) / RATE
            block.append((key, txt, wav_of(samples)))
            if len(block) == SHARD:
                jobs.append(pool.submit(_pack, folder, number // SHARD, block))
                block = []
        for job in jobs:
            job.result()
    lines = [f"{final}/tar/shards_{number:09d}.tar\n" for number in range(len(jobs))]
    (folder / "tar.list").write_text("".join(lines))
    shutil.rmtree(folder / "spoken", ignore_errors=True)
    speech = "Mandarin by espeak-ng" if spoken else "noise in bursts"
    return {"utterances": UTTERANCES, "seconds": seconds, "speech": speech, "made_by": MADE_BY}


def _speak(folder: Path) -> list[tuple[str, str, Path]]:
    """Return name, text and file of each sentence of the mini AISHELL; none if it cannot be spoken here."""
    if find_spec("espeakng_loader") is None:
        return []
    command = [sys.executable, "-m", "recipes.aishell.mini", str(folder), "--utterances", str(SENTENCES), "--seed", "1"]
    if subprocess.run(command, check=False, cwd=Path(__file__).parent.parent).returncode:
        return []
    lines = next(folder.glob("data_aishell/transcript/*.txt")).read_text(encoding="utf-8").splitlines()
    texts = dict(line.split(maxsplit=1) for line in lines if line.strip())
    waves = sorted(folder.glob("data_aishell/wav/train/*/*.wav"))
    return [(wav.stem, texts[wav.stem].replace(" ", ""), wav) for wav in waves]


def _durations() -> npt.NDArray[np.float64]:
    drawn = np.random.default_rng(SEED).normal(MEAN, DEVIATION, UTTERANCES)
    return np.clip(drawn, SHORTEST, LONGEST)


def _joined(sentences: list[tuple[str, str, Path]]) -> Iterator[tuple[str, str, Samples]]:
    """Yield sentences joined to the drawn lengths, give or take half a sentence."""
    spare = itertools.cycle(sentences)
    for number, duration in enumerate(_durations()):
        _, txt, path = next(spare)
        samples, _ = soundfile.read(path, dtype="int16")
        while len(samples) / RATE < duration - 1.5:
            _, more, path = next(spare)
            added, _ = soundfile.read(path, dtype="int16")
            samples, txt = np.concatenate([samples, added]), txt + more
        yield f"BS{number:06d}", txt, samples[: int(LONGEST * RATE)]


def _noise() -> Iterator[tuple[str, str, Samples]]:
    """Yield noise in four bursts a second, each with its own loudness."""
    rng = np.random.default_rng(SEED + 1)
    for number, duration in enumerate(_durations()):
        size = int(duration * RATE)
        loudness = np.repeat(rng.uniform(20, 4000, -(-size // 4000)), 4000)[:size]
        yield f"BN{number:06d}", "杂音" * int(duration), (rng.standard_normal(size) * loudness).astype(np.int16)


def wav_of(samples: Samples) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _pack(folder: Path, number: int, block: list[tuple[str, str, bytes]]) -> None:
    packed = tar_of((name, data) for key, txt, wav in block for name, data in _members(key, txt, wav, "wav"))
    (folder / "tar").mkdir(exist_ok=True)
    (folder / "tar" / f"shards_{number:09d}.tar").write_bytes(packed)


def _members(key: str, txt: str, audio: bytes, suffix: str) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (f"{key}.txt", txt.encode()), (f"{key}.{suffix}", audio)


def tar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def wav_members(shard: str) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of the wav files in a tar shard."""
    with tarfile.open(shard) as tar:
        yield from (member for member in tar if member.name.endswith(".wav"))


def _utterances(shard: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield key, text and audio of the utterances of a shard."""
    with tarfile.open(shard) as tar:
        txt = ""
        for member in tar:
            data = tar.extractfile(member)
            assert data is not None
            key, _, suffix = member.name.rpartition(".")
            if suffix == "txt":
                txt = data.read().decode()
            else:
                yield key, txt, data.read()


def _make_others(folder: Path) -> None:
    """Write the same shards as tar.gz, as tar of FLAC at libsndfile's default level, and as Shar of both."""
    shards = sorted((folder / "tar").glob("*.tar"))
    for kind in ("tar.gz", "flac"):
        (folder / kind).mkdir(exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        paths = list(pool.map(_make_other, shards * 2, ["tar.gz"] * len(shards) + ["flac"] * len(shards)))
    _make_shar(folder, "tar", "shar", "wav")
    _make_shar(folder, "flac", "shar.flac", "flac")
    for kind in ("tar.gz", "flac"):
        lines = [f"{path.resolve()}\n" for path in paths if path.parent.name == kind]
        (folder / f"{kind}.list").write_text("".join(lines))


def _make_other(shard: Path, kind: str) -> Path:
    path = shard.parent.parent / kind / (f"{shard.name}.gz" if kind == "tar.gz" else shard.name)
    if kind == "tar.gz":
        path.write_bytes(gzip.compress(shard.read_bytes(), 6, mtime=0))
    else:
        utterances = ((key, txt, _flac(wav)) for key, txt, wav in _utterances(shard))
        path.write_bytes(tar_of(member for key, txt, flac in utterances for member in _members(key, txt, flac, "flac")))
    return path


def _flac(wav: bytes) -> bytes:
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="int16")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _make_shar(folder: Path, kind: str, name: str, form: str) -> None:
    try:
        from lhotse import MonoCut, Recording, SupervisionSegment
        from lhotse.shar import SharWriter
    except ImportError:
        return
    (folder / name).mkdir(exist_ok=True)
    with SharWriter(str(folder / name), fields={"recording": form}, shard_size=SHARD) as writer:
        for shard in sorted((folder / kind).glob("*.tar")):
            for key, txt, audio in _utterances(shard):
                recording = Recording.from_bytes(audio, key)
                cut = MonoCut(key, 0.0, recording.duration, 0, recording=recording)
                cut.supervisions = [SupervisionSegment(key, key, 0.0, recording.duration, 0, text=txt)]
                writer.write(cut)


def main() -> None:
    """Make it and say what it is."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, default=default_folder(), help="folder of the corpus")
    corpus = prepare(arguments.parse_args().data)
    print(f"{corpus.folder}: {corpus.utterances} utterances, {corpus.seconds / 3600:.2f} h, {corpus.speech}")


if __name__ == "__main__":
    main()
