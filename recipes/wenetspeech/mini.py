"""Speak a mini WenetSpeech in its own layout: ``python -m recipes.wenetspeech.mini OUT --hours 0.5 --seed 1``.

Sentences are joined to recordings of some minutes, written as 16 kHz opus. ``WenetSpeech.json`` has the form of the
real one, with a few bad entries. The same settings give the same plan, texts, times and samples, however many processes
speak. The bytes of the files differ, because libsndfile gives each Ogg stream a random serial number.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.example_speech import RATE, EspeakVoices, to_int16

from ..common.corpus import OtherCorpus, SpeakingFailed, check_settings, in_fresh_processes, write_settings
from ..common.problems import told
from .layout import metadata_path
from .plan import NO_FILE, PAST_THE_END, Recording, Settings, make_plan

FAR_GAIN, FAR_NOISE = 0.4, 12.0  # of a meeting: the voice, and the standard deviation of the noise, of 32768
COMPRESSION = 0.75  # libsndfile makes 68 kbit/s of it: encoded in half the time that 30 kbit/s takes
LATE = 3.0  # seconds that a bad segment ends after its recording


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; return False if it was there already. Raises: OtherCorpus, SpeakingFailed."""
    if metadata_path(root).exists() or (root / "audio").exists():
        check_settings(root, settings, "WenetSpeech")
        if not metadata_path(root).exists():
            raise OtherCorpus(f"{root}/audio is there without WenetSpeech.json: making it was interrupted. Delete it.")
        return False
    partial = root / ".audio.partial"
    shutil.rmtree(partial, ignore_errors=True)
    plan = make_plan(settings)
    for recording in plan:
        (partial / recording.path).parent.mkdir(parents=True, exist_ok=True)
    work = ((partial, settings.seed, number, recording) for number, recording in enumerate(plan))
    spoken = ((entry, 1) for entry in in_fresh_processes(_speak, work, jobs))
    entries = list(follow(spoken, "speaking recordings", len(plan)))
    write_settings(root, settings)
    (partial / "audio").rename(root / "audio")
    write_lines(metadata_path(root), [json.dumps({"audios": entries}, ensure_ascii=False, indent=4)])
    shutil.rmtree(partial)
    segments = sum(len(entry["segments"]) for entry in entries)
    hours = sum(entry["duration"] for entry in entries) / 3600
    typer.echo(f"{root}: {len(entries)} recordings, {segments} segments, {hours:.2f} h")
    return True


def _speak(root: Path, seed: int, number: int, recording: Recording) -> dict[str, Any]:
    """Write one recording; return its entry of the JSON."""
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
    """Return the samples at 16 kHz and the segments of the JSON, with times in hundredths of a second as in the real
    one."""
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
    hours: Annotated[float, typer.Option(min=0.001, help="About this many hours of training speech.")] = 0.5,
    minutes: Annotated[float, typer.Option(min=0.05, help="Length of a recording.")] = 3.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another corpus.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Speak a mini WenetSpeech (Mandarin, by espeak-ng) in WenetSpeech's own layout."""
    with told(OtherCorpus, SpeakingFailed):
        if not make_mini(out, Settings(seed, hours, minutes), jobs):
            typer.echo(f"{out}: there already, with the same settings")


if __name__ == "__main__":
    typer.run(main)
