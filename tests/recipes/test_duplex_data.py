"""Spoken dialogues: what the alignments say is where they say it, pauses and overlaps included."""

import itertools
import json
import random
from pathlib import Path

import duplex_data
import numpy as np
import pytest
import soundfile
import torch
import typer

import uio_pipes as uio
from recipes.common.corpus import OtherCorpus
from recipes.duplex import speak as speaking
from recipes.duplex.codec import Codec, encode_all
from recipes.duplex.config import settings_of
from recipes.duplex.data import EPAD, PAD, PADDING, RATE, TEXT, TOKENIZER, batches
from recipes.duplex.evaluate import turns
from recipes.duplex.picture import picture
from recipes.duplex.script import ANSWERS, CHANNELS, MODEL, USER, lines, placed
from recipes.duplex.speak import NoVoice, Settings, dialogue, speak
from uio_pipes.audio.timeline import Timeline

SETTINGS = settings_of(duplex_data.TINY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = duplex_data.prepare(tmp_path_factory.mktemp("duplex"))
    assert "train: 24 dialogues, 0 before; test: 4 dialogues, 0 before" in encode_all(data, SETTINGS)
    return data


def loud(samples: np.ndarray) -> bool:
    return bool(np.abs(samples.astype(int)).max() > 1_000)


def check_places(samples: np.ndarray, alignments: list[list[object]]) -> None:
    """A channel is loud within each word of its speaker, and quiet before, between and after them."""
    for speaker, channel in CHANNELS.items():
        at = 0
        for _, (start, end), _ in (word for word in alignments if word[2] == speaker):  # type: ignore[misc]
            first, last = round(start * 16_000), round(end * 16_000)
            assert last > first >= at, "nobody speaks over himself"
            assert not loud(samples[at:first, channel])
            assert loud(samples[first:last, channel])
            at = last
        assert not loud(samples[at:, channel])


def test_each_word_is_where_its_alignment_says() -> None:
    samples, alignments = dialogue("a", duplex_data.say)
    assert [start for _, (start, _), _ in alignments] == sorted(start for _, (start, _), _ in alignments)  # type: ignore[misc]
    assert samples.shape[1] == 2
    check_places(samples, alignments)


def test_the_key_decides_every_byte() -> None:
    one, again, other = (dialogue(key, duplex_data.say) for key in ("a", "a", "b"))
    assert np.array_equal(one[0], again[0])
    assert one[1] == again[1] != other[1]


def test_dialogues_have_pauses_overlaps_and_right_answers() -> None:
    known = {question: answer for kind in ANSWERS for question, answer in kind.items()}
    hesitant = overlaps = 0
    for seed in range(30):
        rng = random.Random(seed)
        said = list(lines(rng))
        asked = [line for line in said if line.speaker == USER and not line.aside]
        answers = [line for line in said if line.speaker == MODEL]
        assert [known[" ".join(line.words)] for line in asked] == [" ".join(line.words) for line in answers]
        words = placed(said, lambda text, _: 2_000 + 500 * len(text), 16_000, rng)
        hesitant += sum(line.pause > 0 for line in asked)
        overlaps += sum(a.end > b.start for a, b in itertools.pairwise(words))
        assert min(word.start for word in words) > 0
        for answer in answers:
            assert 0.2 <= answer.after <= 0.4
    assert hesitant > 10
    assert overlaps > 10


def test_without_a_voice_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "find_spec", lambda _: None)
    with pytest.raises(NoVoice, match="pip install espeakng-loader"):
        speak(tmp_path / "data", Settings(1, 2))
    with pytest.raises(typer.Exit):
        speaking.main(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_espeak_speaks_them_as_moshi_finetune_wants_them(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    assert speak(tmp_path / "data", Settings(1, 2), jobs=1)
    rows = [json.loads(line) for line in (tmp_path / "data" / "train.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == ["train/d0000.wav", "train/d0001.wav"]
    for row in rows:
        samples, rate = soundfile.read(tmp_path / "data" / row["path"], dtype="int16")
        assert len(samples) / rate == row["duration"]
        check_places(
            samples, json.loads((tmp_path / "data" / row["path"]).with_suffix(".json").read_text())["alignments"]
        )
    assert not speak(tmp_path / "data", Settings(1, 2)), "it is there already"
    with pytest.raises(OtherCorpus, match="Choose another folder"):
        speak(tmp_path / "data", Settings(2, 2))


def test_codes_are_those_of_the_waveform_whatever_it_is_padded_by() -> None:
    codec = Codec(2)
    codec.quantizer.entries.copy_(10 + torch.rand(codec.quantizer.entries.shape) * 8)
    pcm = torch.randn(2, 12_801, generator=torch.Generator().manual_seed(1)) * 0.1
    pcm[1, 5_000:] = 0
    codes, lengths = codec(pcm, torch.tensor([12_801, 5_000]))
    assert lengths.tolist() == [11, 4], "of 1,280 samples each, the last one begun"
    assert codes.shape == (2, 11, 2)
    alone, length = codec(pcm[1:, :5_000], torch.tensor([5_000]))
    assert length.tolist() == [4]
    assert torch.equal(alone[0, :4], codes[1, :4])


def test_streams_say_what_the_model_says_when_it_does(folder: Path) -> None:
    batch = next(iter(uio.Loader(batches(folder, "test", SETTINGS))))
    codes, loss = batch["codes"], batch["loss"]
    assert codes.shape[:2] == loss.shape[:2] == (4, 5)
    for row, timeline in enumerate(batch["timeline"]):
        text = codes[row, 0, : batch["codes_lengths"][row]]
        words = [TOKENIZER.detokenize([token]) for token in text.tolist() if token not in (PAD, EPAD)]
        assert " ".join(words) == " ".join(turn.answer.text for turn in turns(timeline))
        for turn in turns(timeline):
            at = int(turn.answer.start * RATE)
            assert TOKENIZER.detokenize([int(text[at])]) == turn.answer.text.split()[0]
            assert text[at - 1] == EPAD
    assert (codes[:, [2, 4], 0] == -1).all(), "the second codebook is a frame late"
    assert torch.equal(loss[:, 1:3] > 0, codes[:, 1:3] >= 0)
    assert not loss[:, 3:].any(), "what the user says is not predicted"
    assert loss[:, 0][(codes[:, 0] == PAD) | (codes[:, 0] == EPAD)].unique().tolist() == pytest.approx([TEXT * PADDING])


def test_training_gets_crops_with_their_words(folder: Path) -> None:
    crops = list(uio.Loader(batches(folder, "train", SETTINGS, shuffle=True), seed=1))
    assert sum(len(batch["keys"]) for batch in crops) == 24
    assert {int(length) for batch in crops for length in batch["codes_lengths"]} == {50}
    assert all(isinstance(one, Timeline) and one.offset > 0 for one in crops[0]["timeline"])


def test_a_dialogue_is_drawn_with_all_that_it_has(folder: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    picture(folder).plot(tmp_path / "a.png", count=1)
    rows = [{"key": f"test/d{number:04d}", "words": [[1.0, "four"], [1.2, "comes"]]} for number in range(4)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture(folder, tmp_path).plot(tmp_path / "b.png", count=1)
    before, with_answers = (image.imread(tmp_path / f"{name}.png") for name in "ab")
    assert with_answers.shape[0] > before.shape[0]
    (words,) = (
        [tuple(event[:3]) for event in sample["timeline"].events if event.speaker == "trained model"]
        for sample in itertools.islice(uio.Loader(picture(folder, tmp_path)), 1)
    )
    assert words == [(1.0, 1.2, "four"), (1.2, 1.6, "comes")]
