"""Tones in place of speech."""

import numpy as np

from uio_pipes.tools.data.example_speech import toned

RATE = 16_000


def test_a_text_is_a_tone_for_each_character_and_the_same_one_for_the_same() -> None:
    first, other, again = np.split(toned("今天今", RATE), 3)
    assert (first == again).all()
    assert abs(np.fft.rfft(first)).argmax() != abs(np.fft.rfft(other)).argmax()
    assert first[0] == first[-1] == 0
    assert 0.9 < np.abs(first).max() <= 1


def test_nothing_is_silence_of_no_length() -> None:
    assert toned("", RATE).shape == (0,)
