"""From LibriSpeech's layout to lists, statistics, pieces and shards."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

import uio_pipes as uio
from recipes.common.lists import read_lines
from recipes.librispeech.layout import DEV_PARTS, TEST_PARTS, TRAIN_PARTS, flac_path, transcript_path, utterance_key
from recipes.librispeech.prepare import prepare, write_texts
from uio_pipes.io.files import write_lines

PARTS = (*TRAIN_PARTS[:2], *DEV_PARTS, *TEST_PARTS)
TEXTS = ("THE CAT SAT ON THE MAT", "A DOG RAN TO THE CAT", "THE DOG SAT", "CAT AND DOG RAN ON")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Five tones for each part, in two chapters; the last has no text."""
    for number, part in enumerate(PARTS):
        folder = tmp_path / "LibriSpeech" / part
        keys = [utterance_key(10 + number, 100 + index // 3, index % 3) for index in range(5)]
        lines: dict[Path, list[str]] = {}
        for key, text in zip(keys, [*TEXTS, ""], strict=True):
            path = flac_path(folder, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, np.full(1600, number, dtype=np.int16), 16_000)
            lines.setdefault(transcript_path(folder, key), []).extend([f"{key} {text}"] if text else [])
        for path, texts in lines.items():
            write_lines(path, texts)
    return tmp_path


def keys_of(*numbers: int) -> list[str]:
    return [utterance_key(10 + n, 100 + index // 3, index % 3) for n in numbers for index in range(4)]


def test_parts_are_joined_as_in_wenet(corpus: Path, tmp_path: Path) -> None:
    said = write_texts(corpus, tmp_path / "out", TRAIN_PARTS[:2])
    assert "train 8 (2 without a text left out), dev 8 (2" in said
    expected = {"train": keys_of(0, 1), "dev": keys_of(2, 3), "test_clean": keys_of(4), "test_other": keys_of(5)}
    for name, keys in expected.items():
        texts = [line.split(maxsplit=1) for line in read_lines(tmp_path / "out" / name / "text")]
        assert [key for key, _ in texts] == keys
        assert [text for _, text in texts] == list(TEXTS) * (len(keys) // 4)
        recordings = dict(line.split() for line in read_lines(tmp_path / "out" / name / "wav.scp"))
        assert all(Path(path).is_file() and Path(path).stem == key for key, path in recordings.items())


def test_shards_hold_the_flac_files_themselves(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path / "out", TRAIN_PARTS[:1], 20, shard_size=4)
    with tarfile.open(tmp_path / "out/train/shards/shards_000000000.tar") as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert list(members) == [f"{key}.{suffix}" for key in keys_of(0) for suffix in ("txt", "flac")]
    for key in keys_of(0):
        assert members[f"{key}.flac"] == flac_path(corpus / "LibriSpeech" / PARTS[0], key).read_bytes()
    raw = [json.loads(line) for line in read_lines(tmp_path / "out/train/data.list")]
    assert [(line["key"], line["txt"]) for line in raw] == list(zip(keys_of(0), TEXTS, strict=True))


def test_a_word_has_the_same_pieces_at_the_beginning_and_within(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path / "out", TRAIN_PARTS[:1], 20)
    lines = [line.split() for line in read_lines(tmp_path / "out/dict/lang_char.txt")]
    assert [token for token, _ in lines[:3]] == ["<blank>", "<unk>", "<sos/eos>"]
    tokenizer = uio.SentencePieceTokenizer(tmp_path / "out/dict/spm.model")
    assert tokenizer.vocab_size == len(lines) == 20
    cat = tokenizer.tokenize("CAT")[0]
    assert cat[0].startswith("▁")
    assert tokenizer.tokenize("DOG CAT")[0][-len(cat) :] == cat
    for text in TEXTS:
        assert tokenizer.detokenize(tokenizer.tokenize(text)[1]) == text
