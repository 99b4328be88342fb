"""Speak dialogues as moshi-finetune wants them: ``python -m recipes.duplex.speak OUT --dialogues 400``.

::

    OUT/train.jsonl        {"path": "train/d0001.wav", "duration": 12.5}, a dialogue a line; test.jsonl, too
       /train/d0001.wav    the model on the left channel, the user on the right one
             /d0001.json   {"alignments": [["what", [0.61, 0.92], "SPEAKER_USER"], …]}
       /mini.json          the settings, which decide every byte

Each word is spoken by itself and put in its place, so its times are exact. espeak-ng speaks: it comes with
``pip install "uio_pipes[recipes]"`` (``espeakng-loader``).
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import soundfile
import typer
from numpy.typing import NDArray

from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.example_speech import RATE, EspeakVoices, Voice, to_int16

from ..common.corpus import OtherCorpus, SpeakingFailed, check_settings, in_fresh_processes, write_settings
from ..common.problems import told
from .script import CHANNELS, MODEL, USER, lines, placed

__all__ = ["PROBLEMS", "Settings", "dialogue", "main", "speak"]


class NoVoice(Exception):
    """There is no espeak-ng; the message says how to install it."""


PROBLEMS = (OtherCorpus, SpeakingFailed, NoVoice)
BLOCK = 50  # dialogues spoken by one process; the bytes depend on it
SOFT = 200  # of 32768: the silence after a word is below
TAIL = 0.5  # seconds after the last word
NOISE = 3.0  # standard deviation of each channel's own noise, of 32768
VOICES = [Voice(variant, 240, 50, "en-us") for variant in ("f1", "m1", "steph", "m7")]  # the first is the model's
Samples = NDArray[np.int16]
Say = Callable[[str, Voice], Samples]


@dataclass(frozen=True)
class Settings:
    """What the dialogues depend on: the seed, and how many are there to train on. A tenth of that is for the test."""

    seed: int = 1
    dialogues: int = 400

    @property
    def parts(self) -> dict[str, int]:
        """The number of dialogues in each part."""
        return {"train": self.dialogues, "test": max(2, self.dialogues // 10)}


def dialogue(key: str, say: Say) -> tuple[Samples, list[Sequence[object]]]:
    """Return a dialogue, (samples, 2) at 16 kHz, and its alignments; ``key`` decides all draws."""
    rng = random.Random(key)  # seeded by sha512: alike on every machine
    voices = {MODEL: VOICES[0], USER: rng.choice(VOICES[1:])}
    spoken: dict[tuple[str, str], Samples] = {}

    def length(text: str, speaker: str) -> int:
        if (text, speaker) not in spoken:
            spoken[text, speaker] = without_silence(say(text, voices[speaker]))
        return len(spoken[text, speaker])

    words = placed(list(lines(rng)), length, RATE, rng)
    noise = np.random.default_rng(rng.getrandbits(64))
    samples = noise.normal(0, NOISE, (max(word.end for word in words) + round(TAIL * RATE), len(CHANNELS)))
    for word in words:
        samples[word.start : word.end, CHANNELS[word.speaker]] += spoken[word.text, word.speaker]
    seconds: list[Sequence[object]] = [
        [word.text, [word.start / RATE, word.end / RATE], word.speaker] for word in words
    ]
    return to_int16(samples), seconds


def without_silence(samples: Samples) -> Samples:
    """Return a word up to its last loud sample: espeak-ng says nothing for a while after each."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > SOFT)
    return samples[: int(loud[-1]) + 1] if len(loud) else samples


def speak(folder: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the folder; return False if it was there already. It appears when it is complete.

    Raises: OtherCorpus, SpeakingFailed, NoVoice.
    """
    if folder.exists():
        check_settings(folder, settings, "corpus")
        return False
    if find_spec("espeakng_loader") is None:
        raise NoVoice("there is no espeak-ng to speak the dialogues: pip install espeakng-loader")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    keys = [(part, f"d{number:04d}") for part, count in settings.parts.items() for number in range(count)]
    for part in settings.parts:
        (partial / part).mkdir(parents=True)
    blocks = ((partial, settings.seed, keys[start : start + BLOCK]) for start in range(0, len(keys), BLOCK))
    rows: dict[str, list[str]] = {part: [] for part in settings.parts}
    for block in follow(in_fresh_processes(_speak_block, blocks, jobs), "speaking", len(keys)):
        for part, row in block:
            rows[part].append(row)
    for part, lists in rows.items():
        write_lines(partial / f"{part}.jsonl", lists)
    write_settings(partial, settings)
    partial.rename(folder)
    return True


def _speak_block(folder: Path, seed: int, block: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], int]:
    """Speak some dialogues; return the part and the row of each, and their number."""
    room, speaker = np.random.default_rng(seed), EspeakVoices()
    rows = [
        (
            part,
            write(
                folder / part / f"{key}.wav",
                f"{seed} {part} {key}",
                lambda text, voice: speaker.speak(text, voice, room),
            ),
        )
        for part, key in block
    ]
    return rows, len(rows)


def write(path: Path, key: str, say: Say) -> str:
    """Write a dialogue and its alignments; return its row in the list."""
    samples, alignments = dialogue(key, say)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    write_lines(path.with_suffix(".json"), [json.dumps({"alignments": alignments})])
    return json.dumps({"path": f"{path.parent.name}/{path.name}", "duration": len(samples) / RATE})


def main(
    out: Annotated[Path, typer.Argument(help="Folder for the dialogues.")],
    dialogues: Annotated[int, typer.Option(min=1, help="How many to train on; a tenth more for the test.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other dialogues.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Speak dialogues of a user and a model, with the times of all words."""
    with told(*PROBLEMS):
        if not speak(out, Settings(seed, dialogues), jobs):
            typer.echo(f"{out}: there already, with the same settings")


if __name__ == "__main__":
    typer.run(main)
