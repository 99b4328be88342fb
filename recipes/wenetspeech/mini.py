"""Speak a mini WenetSpeech, in its own layout: ``python -m recipes.wenetspeech.mini OUT --hours 0.5 --seed 1``.

Sentences are joined to recordings of some minutes, written as 16 kHz opus; ``WenetSpeech.json`` has the real one's
form, a few bad entries included. The same settings give the same decisions, texts, times and samples, however many
processes speak; libsndfile gives each Ogg stream a random serial number, so the files' bytes differ.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from uio_pipes.base.processes import pool_context
from uio_pipes.prep.common.progress_bar import follow
from uio_pipes.prep.examples.speech import RATE, EspeakVoices, to_int16
from uio_pipes.prep.writing.files import write_lines

from .layout import metadata_path
from .plan import NO_FILE, PAST_THE_END, Recording, Settings, make_plan

FAR_GAIN, FAR_NOISE = 0.4, 12.0  # of a meeting: the voice, and the standard deviation of the noise, of 32768
COMPRESSION = 0.75  # libsndfile makes 68 kbit/s of it: encoded in half the time that 30 kbit/s takes
LATE = 3.0  # seconds that a bad segment ends after its recording


class OtherCorpus(Exception):
    """The target folder holds something that must not be overwritten."""


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; returns False if it was there already."""
    if metadata_path(root).exists() or (root / "audio").exists():
        _check_same(root, settings)
        return False
    partial = root / ".audio.partial"
    shutil.rmtree(partial, ignore_errors=True)
    plan = make_plan(settings)
    for recording in plan:
        (partial / recording.path).parent.mkdir(parents=True, exist_ok=True)
    entries = list(follow(_speak_all(plan, partial, settings.seed, jobs), "speaking recordings", len(plan)))
    write_lines(_settings_path(root), [json.dumps(asdict(settings))])
    (partial / "audio").rename(root / "audio")
    write_lines(metadata_path(root), [json.dumps({"audios": entries}, ensure_ascii=False, indent=4)])
    shutil.rmtree(partial)
    segments = sum(len(entry["segments"]) for entry in entries)
    hours = sum(entry["duration"] for entry in entries) / 3600
    typer.echo(f"{root}: {len(entries)} recordings, {segments} segments, {hours:.2f} h")
    return True


def _settings_path(root: Path) -> Path:
    return root / "mini.json"


def _check_same(root: Path, settings: Settings) -> None:
    path = _settings_path(root)
    found = path.read_text().strip() if path.exists() else "no mini.json: the real WenetSpeech, or another corpus"
    if found != json.dumps(asdict(settings)):
        raise OtherCorpus(
            f"{root} is no empty folder, and has not these settings ({asdict(settings)}); it has {found}. "
            "Choose another folder, or delete it yourself."
        )
    if not metadata_path(root).exists():
        raise OtherCorpus(f"{root}/audio is there without WenetSpeech.json: making it was interrupted. Delete it.")


def _speak_all(plan: list[Recording], root: Path, seed: int, jobs: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The JSON's entries in the plan's order. A process a recording: see ``speech``."""
    work = [(root, seed, number, recording) for number, recording in enumerate(plan)]
    context = pool_context(preload=["recipes.wenetspeech.mini", "soundfile"])
    with context.Pool(jobs or multiprocessing.cpu_count(), maxtasksperchild=1) as pool:
        for entry in pool.imap(_speak, work):
            yield entry, 1


def _speak(job: tuple[Path, int, int, Recording]) -> dict[str, Any]:
    root, seed, number, recording = job
    samples, segments = speak_recording(recording, np.random.default_rng([seed, number]))
    path = root / recording.path
    md5 = hashlib.md5(samples.tobytes()).hexdigest()  # of the samples: the file's bytes differ from run to run
    if recording.fault != NO_FILE:
        _write_opus(path, samples)
    return {
        "aid": recording.aid,
        "duration": round(len(samples) / RATE, 2),
        "md5": md5,
        "path": recording.path,
        "source": recording.source,
        "tags": list(recording.tags),
        "url": f"https://example.org/{recording.aid}",
        "segments": segments if recording.labelled else [],
    }


def speak_recording(recording: Recording, room: np.random.Generator) -> tuple[NDArray[np.int16], list[dict[str, Any]]]:
    """The samples at 16 kHz, and the segments of the JSON, times in hundredths of a second as in the real one."""
    speaker, pieces, segments, at = EspeakVoices(), [np.zeros(RATE // 2, np.int16)], [], RATE // 2
    for number, line in enumerate(recording.lines):
        speech = speaker.speak("".join(line.text.split()) or "今天", line.voice, room)
        segments.append(
            {
                "sid": f"{recording.aid}_S{number:05d}",
                "confidence": line.confidence,
                "begin_time": round(at / RATE, 2),
                "end_time": round((at + len(speech)) / RATE, 2),
                "subsets": list(line.subsets),
                "text": line.text,
            }
        )
        pause = round(line.pause * RATE)
        pieces += [speech, np.zeros(pause, np.int16)]
        at += len(speech) + pause
    for segment, line in zip(segments, recording.lines, strict=True):
        if line.fault == PAST_THE_END:
            segment["end_time"] = round(at / RATE + LATE, 2)
    clean = np.concatenate(pieces).astype(np.float64) * (FAR_GAIN if recording.far else 1)
    return to_int16(clean + room.normal(0, FAR_NOISE if recording.far else 1, len(clean))), segments


def _write_opus(path: Path, samples: NDArray[np.int16]) -> None:
    import soundfile

    soundfile.write(path, samples, RATE, format="OGG", subtype="OPUS", compression_level=COMPRESSION)


def main(
    out: Annotated[Path, typer.Argument(help="Folder that gets `WenetSpeech.json` and `audio`.")],
    hours: Annotated[float, typer.Option(min=0.001, help="About so many hours of training speech.")] = 0.5,
    minutes: Annotated[float, typer.Option(min=0.05, help="Length of a recording.")] = 3.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another corpus.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Speak a mini WenetSpeech (Mandarin, by espeak-ng) in WenetSpeech's own layout."""
    try:
        if not make_mini(out, Settings(seed, hours, minutes), jobs):
            typer.echo(f"{out}: there already, with the same settings")
    except OtherCorpus as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
