"""Plays an utterance by a program of the machine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import soundfile

from uio_pipes.base.errors import PipelineError

PLAYERS = (
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "error"),
    ("play", "-q"),
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
)


def play(fields: Mapping[str, Any]) -> None:
    """Play the audio of a finished utterance, and wait for its end.

    Raises: PipelineError if it has no audio, or there is no program to play it.
    """
    wav, rate = fields.get("wav"), int(fields.get("sample_rate", 0))
    if wav is None or isinstance(wav, (bytes, str)) or not rate:
        raise PipelineError(f"{fields['key']} has no audio to play: its pipeline decodes none")
    player = next((one for one in PLAYERS if shutil.which(one[0])), None)
    if player is None:
        names = ", ".join(one[0] for one in PLAYERS)
        raise PipelineError(f"there is no program to play audio ({names}): install one, or use --save")
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, np.atleast_2d(np.asarray(wav)).T, rate, subtype="PCM_16")
        done = subprocess.run([*player, file.name], check=False)
    if done.returncode:
        raise PipelineError(f"{player[0]} could not play {fields['key']} (exit code {done.returncode})")
