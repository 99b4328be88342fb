"""Speech from espeak-ng's library, through ctypes: text in, 16 kHz 16-bit samples out, nothing on disk.

espeak-ng carries state from one utterance to the next (the phase of its flutter and noise) which no call resets. The
same bytes therefore need the same utterances in the same order since the library was loaded: ``uio example`` speaks in
its own process, and the recipes speak each block of utterances in a fresh one. It needs ``espeakng-loader``
(``pip install 'uio_pipes[demo]'``).
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
NOISE = 1.0  # standard deviation, of 32768
_ESPEAK_RATE = 22_050
_VARIANTS = ("f1", "steph", "m1", "m7")  # without the breathy ones (f2, f3, f5, …): their noise differs from run to run
# From espeak-ng's speak_lib.h.
_SYNCHRONOUS, _NO_EXIT, _UTF8 = 2, 0x8000, 1
_SPEED, _PITCH = 1, 3
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True)
class Voice:
    """One speaker: a variant of espeak-ng's voice of a language, words a minute, and pitch (0 to 100)."""

    variant: str
    speed: int
    pitch: int
    language: str = "cmn"  # Mandarin


def draw_voice(rng: random.Random, language: str = "cmn") -> Voice:
    """Draw a voice of a language, by espeak-ng's name of it, whose speech is the same in every run."""
    return Voice(rng.choice(_VARIANTS), rng.randint(160, 190), rng.randint(40, 60), language)


class SpeechError(RuntimeError):
    """espeak-ng returned an error."""


class EspeakVoices:
    """espeak-ng, loaded once in this process.

    Raises: ImportError without ``espeakng-loader``; OSError or SpeechError where its library does not work.
    """

    def __init__(self) -> None:
        import espeakng_loader

        self._chunks: list[bytes] = []
        self._callback = _Callback(self._receive)  # kept: ctypes does not
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        path = espeakng_loader.get_data_path().encode()
        rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, path, _NO_EXIT)
        if rate != _ESPEAK_RATE:
            raise SpeechError(f"espeak_Initialize({path!r}) returned {rate}; expected a rate of {_ESPEAK_RATE}")
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _events: int) -> int:
        if samples and count > 0:
            self._chunks.append(ctypes.string_at(samples, 2 * count))
        return 0

    def speak(self, text: str, voice: Voice, room: np.random.Generator) -> NDArray[np.int16]:
        """Speak one utterance at 16 kHz, with the faint noise of a room: no recording has pauses of zeros."""
        self._chunks.clear()
        name = f"{voice.language}+{voice.variant}"
        self._check(self._library.espeak_SetVoiceByName(name.encode()), f"voice {name}")
        self._library.espeak_SetParameter(_SPEED, voice.speed, 0)
        self._library.espeak_SetParameter(_PITCH, voice.pitch, 0)
        data = text.encode() + b"\0"
        self._check(self._library.espeak_Synth(data, len(data), 0, 0, 0, _UTF8, None, None), f"text {text!r}")
        clean = to_16khz(np.frombuffer(b"".join(self._chunks), dtype=np.int16))
        return to_int16(clean + room.normal(0, NOISE, len(clean)))

    def _check(self, status: int, what: str) -> None:
        if status:
            raise SpeechError(f"espeak-ng returned {status} for {what}")


def to_16khz(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    """Resample by cutting the spectrum; exact, because 22050 : 16000 is 441 : 320 and the length is made a multiple."""
    blocks = -(-len(samples) // 441)
    padded = np.pad(samples.astype(np.float64), (0, blocks * 441 - len(samples)))
    spectrum = np.fft.rfft(padded)[: blocks * 160 + 1]
    return np.fft.irfft(spectrum, blocks * 320) * (320 / 441)


def to_int16(samples: NDArray[np.float64]) -> NDArray[np.int16]:
    """Convert to 16-bit samples, rounded and clipped."""
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
