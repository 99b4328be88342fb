"""The sounds of the example folder: short Mandarin sentences by espeak-ng, or tones, noises and rooms, made from a
seed.

espeak-ng carries state from one utterance to the next (the phase of its flutter and noise) which no call resets. The
same bytes therefore need the same utterances in the same order since the library was loaded: ``uio example`` speaks in
its own process, and the recipes speak each block of utterances in a fresh one. It needs ``espeakng-loader``
(``pip install 'uio_pipes[demo]'``); without it each character is a tone of its own, which is enough to try everything,
and to train a little. Both last about two seconds.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SECONDS = 0.25  # for each character
FADE = 0.02  # seconds in which a tone rises, and falls
LOWEST, STEPS, STEP = 180.0, 97, 1.03  # Hz of the lowest tone; number of tones; ratio of neighbours


def toned(text: str, rate: int, pitch: float = 1.0) -> NDArray[np.float32]:
    """Make tones of a text, one for each character, always the same for the same one; ``pitch`` raises them all."""
    samples, fade = round(SECONDS * rate), round(FADE * rate)
    times = np.arange(samples, dtype=np.float32)
    envelope = np.clip(np.minimum(np.arange(samples), np.arange(samples)[::-1]) / fade, 0, 1).astype(np.float32)
    steps = (2 * np.pi * pitch * LOWEST * STEP ** (ord(character) % STEPS) / rate for character in text)
    return np.concatenate([np.zeros(0, np.float32), *(np.sin(times * step) * envelope for step in steps)])


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
        samples = np.frombuffer(b"".join(self._chunks), dtype=np.int16)
        blocks = -(-len(samples) // 441)
        padded = np.pad(samples.astype(np.float64), (0, blocks * 441 - len(samples)))
        spectrum = np.fft.rfft(padded)[: blocks * 160 + 1]
        clean = np.fft.irfft(spectrum, blocks * 320) * (320 / 441)
        return to_int16(clean + room.normal(0, NOISE, len(clean)))

    def _check(self, status: int, what: str) -> None:
        if status:
            raise SpeechError(f"espeak-ng returned {status} for {what}")


def to_int16(samples: NDArray[np.float64]) -> NDArray[np.int16]:
    """Convert to 16-bit samples, rounded and clipped."""
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)


SENTENCES = (
    "今天天气很好", "我们去公园散步", "请把灯打开", "明天早上八点见", "他们在车站等你", "老师要买三本书",
    "北京昨天下雪了", "你想不想一起来", "我们下午去上海", "电话号码是五六七", "苹果要十块钱", "请关上门和窗",
    "广州今天很热", "晚上我们看电视", "她说明天会下雨", "我的书在桌子上",
)  # fmt: skip
SPEAKERS, EACH = 4, 12  # utterances of each
NOISES, ROOMS = 4, 3

Samples = NDArray[np.int16]
Say = Callable[[str, Voice], Samples]


@dataclass(frozen=True)
class SpokenSentence:
    """One utterance at 16 kHz."""

    key: str
    speaker: str
    txt: str
    samples: Samples


def talk(seed: int) -> tuple[str, list[SpokenSentence]]:
    """Return the way the speech was made, in words, and all utterances, speaker by speaker.

    The same in every process that has not spoken before.
    """
    room = np.random.default_rng(seed)
    how, say = _voices(room)
    rng, spoken = random.Random(f"example {seed}"), list[SpokenSentence]()  # seeded by sha512: alike on every machine
    for speaker in range(SPEAKERS):
        voice = draw_voice(rng)
        for txt in rng.sample(SENTENCES, EACH):
            spoken.append(SpokenSentence(f"U{len(spoken):03d}", f"S{speaker}", txt, say(txt, voice)))
    return how, spoken


def _voices(room: np.random.Generator) -> tuple[str, Say]:
    try:
        speaker = EspeakVoices()
    except ImportError:
        how = "tones, a character each: pip install espeakng-loader to have it spoken"
    except (OSError, SpeechError) as error:
        how = f"tones, a character each: espeak-ng cannot speak here ({error})"
    else:
        return "Mandarin, spoken by espeak-ng", lambda txt, voice: speaker.speak(txt, voice, room)

    def sound(txt: str, voice: Voice) -> Samples:
        clean = 8_000 * toned(txt, RATE, voice.pitch / 50).astype(np.float64)
        return to_int16(clean + room.normal(0, NOISE, len(clean)))

    return how, sound


def noises(seed: int) -> list[Samples]:
    """Return noises of two to five seconds, from a hiss to a rumble."""
    rng, made = np.random.default_rng([seed, 1]), []
    for number in range(NOISES):
        white = rng.standard_normal(RATE * (2 + number))
        spectrum = np.fft.rfft(white) / np.maximum(np.arange(len(white) // 2 + 1), 1) ** (number / 3)
        noise = np.fft.irfft(spectrum, len(white))
        made.append(to_int16(3_000 * noise / noise.std()))
    return made


def rooms(seed: int) -> list[Samples]:
    """Return impulse responses: the direct sound, then an echo that fades within 0.25 to 0.75 seconds."""
    rng, made = np.random.default_rng([seed, 2]), []
    for number in range(1, ROOMS + 1):
        samples = RATE * number // 4
        decay = np.exp(-6.9 * np.arange(samples) / samples)  # to -60 dB
        response = 0.1 * rng.standard_normal(samples) * decay
        response[0] = 1
        made.append(to_int16(16_000 * response))
    return made
