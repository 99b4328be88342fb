"""The sounds of the example folder: short Mandarin sentences of a few speakers, noises and rooms, made from a seed.

espeak-ng speaks if ``espeakng-loader`` is installed; otherwise each character is a tone of its own, which is enough to
try everything, and to train a little. Both last about two seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uio_pipes.dsp.tones import toned
from uio_pipes.prep.examples.speech import NOISE, RATE, EspeakVoices, SpeechError, Voice, draw_voice, to_int16

__all__ = ["RATE", "SENTENCES", "SpokenSentence", "noises", "rooms", "talk"]

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

    The same in every process that has not spoken before, see ``speech``.
    """
    room = np.random.default_rng(seed)
    how, say = _voices(room)
    planned = enumerate(_plan(seed))
    return how, [SpokenSentence(f"U{i:03d}", speaker, txt, say(txt, voice)) for i, (speaker, voice, txt) in planned]


def _plan(seed: int) -> Iterator[tuple[str, Voice, str]]:
    rng = random.Random(f"example {seed}")  # a string: seeded through sha512, the same on every machine
    for number in range(SPEAKERS):
        voice = draw_voice(rng)
        yield from ((f"S{number}", voice, txt) for txt in rng.sample(SENTENCES, EACH))


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
