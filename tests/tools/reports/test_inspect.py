"""``uio inspect``: counts, hours, characters, failures of every kind of data; what it is not for."""

import json
import re
import shutil
import wave
from pathlib import Path

import corpus
import numpy as np
import pytest
import torch
import touchdataset
from corpora_small import made
from corpus import Corpus
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.inspect import inspect


def seconds_of(folder: Path) -> float:
    total = 0.0
    for path in folder.glob("*.wav"):
        with wave.open(str(path)) as file:
            total += file.getnframes() / file.getframerate()
    return total


def test_shards_are_counted_whole_and_by_parts(plain_corpus: Corpus) -> None:
    found = recognize(str(plain_corpus.list))
    assert found.kind == "shard list"
    alone, shared = inspect(found.pipeline), inspect(found.pipeline, jobs=3)
    assert alone.utterances == len(plain_corpus.keys)
    for name in ("utterances", "durations", "characters", "rates", "channels", "codecs", "longest", "shortest"):
        assert getattr(alone, name) == getattr(shared, name), name
    assert shared.hours == pytest.approx(alone.hours)
    assert alone.rates == {8000: 25}
    assert alone.codecs == {"wav": 25}
    assert alone.characters["文"] == 25


def test_hours_are_those_of_the_files(tmp_path: Path) -> None:
    lines = [json.dumps({"key": f"k{i}", "wav": str(tmp_path / f"{i}.wav"), "txt": "a b\u200b"}) for i in range(7)]
    for i in range(7):
        (tmp_path / f"{i}.wav").write_bytes(corpus.wav_bytes(i, seconds=(0.5, 9.0)))
    (tmp_path / "raw.list").write_text("\n".join(lines))
    found = recognize(str(tmp_path / "raw.list"))
    assert found.kind == "raw list"
    seen = inspect(found.pipeline)
    assert seen.seconds == pytest.approx(seconds_of(tmp_path))
    assert sum(seen.durations.values()) == 7
    assert seen.odd == {"\u200b": 7}


def test_damage_is_counted_by_reason(bad_corpus: Corpus) -> None:
    seen = inspect(recognize(str(bad_corpus.list)).pipeline)
    loader = uio.Loader(uio.from_shard_list(bad_corpus.list).decode_audio().fbank().batch(4).pad())
    for _ in loader:
        pass
    assert seen.failures == loader.stats().skipped
    assert seen.utterances == len(bad_corpus.keys)
    assert len(seen.reports) == seen.failures.total()


def test_limit_is_a_quick_look(plain_corpus: Corpus) -> None:
    seen = inspect(recognize(str(plain_corpus.list)).pipeline, limit=7)
    assert (seen.utterances, seen.whole) == (7, False)
    assert inspect(recognize(str(plain_corpus.list)).pipeline, limit=99).whole


def test_one_shard_and_features(plain_corpus: Corpus, feature_corpus: Corpus) -> None:
    shard = sorted(plain_corpus.list.parent.glob("*.tar"))[0]
    assert inspect(recognize(str(shard)).pipeline).utterances == 5
    seen = inspect(recognize(str(feature_corpus.list)).pipeline)
    assert seen.codecs == {"features": 20}
    assert seen.hours > 0
    assert not seen.rates


def test_samples_without_a_header_are_never_taken_for_a_codec(tmp_path: Path) -> None:
    starts = (b"ID3\x04", b"fLaC", b"OggS", b"\xff\xfb\x90\x00")
    utterances = touchdataset.speech(len(starts))
    for (samples, _), start in zip(utterances, starts, strict=True):
        samples[:2] = np.frombuffer(start, np.int16)
    touchdataset.write(tmp_path / "a", utterances)
    assert inspect(recognize(str(tmp_path / "a")).pipeline).codecs == {"samples": len(starts)}


def test_kaldi_folders(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(corpus.wav_bytes(1, seconds=(2.0, 2.1)))
    (tmp_path / "wav.scp").write_text(f"u1 {tmp_path / 'a.wav'}\n")
    (tmp_path / "text").write_text("u1 好\n")
    found = recognize(str(tmp_path))
    assert found.kind == "Kaldi data folder"
    assert inspect(found.pipeline).seconds == pytest.approx(seconds_of(tmp_path))
    assert inspect(recognize(str(tmp_path / "wav.scp")).pipeline).utterances == 1
    with pytest.raises(uio.ListError, match="name its folder"):
        recognize(str(tmp_path / "text"))


def test_what_holds_no_utterances_is_named_with_the_command_for_it(tmp_path: Path, plain_corpus: Corpus) -> None:
    (tmp_path / "a.wav").write_bytes(corpus.wav_bytes(1))
    torch.save({"x": torch.zeros(1)}, tmp_path / "c.pt")
    (tmp_path / "train.yaml").write_text("dataset_conf: {}\n")
    (tmp_path / "empty.list").write_text("# nothing\n")
    (tmp_path / "bad.jsonl").write_text('{"url": "x.tar", "member": "k", "reason": "bad_audio"}\n')
    (tmp_path / "wavs.list").write_text("noise/1.wav\nnoise/2.wav\n")
    (tmp_path / "other.jsonl").write_text('{"doc": 1, "body": "一"}\n')
    (tmp_path / "mixed.list").write_text('[1]\n{"key": "a", "wav": "a.wav", "txt": "a"}\n')
    (tmp_path / "noise").write_bytes(b"abc\0\1\2")
    (tmp_path / "state.json").write_text(
        json.dumps(uio.Loader(uio.from_shard_list(plain_corpus.list).batch(2)).state_dict())
    )
    for name, words in {
        "a.wav": "audio file",
        "c.pt": "uio state",
        "train.yaml": "uio.wenet_dataset takes",
        "empty.list": "is empty",
        "bad.jsonl": "is a quarantine file",
        "wavs.list": r"no shards \(noise/1.wav\)",
        "other.jsonl": r"other names than ours \(body, doc\).*--fields txt=content",
        "mixed.list": "lines of several kinds",
        "noise": "neither text nor",
        "state.json": "uio state",
        "missing.list": "missing.list",
        ".": "neither a TouchDataset",
    }.items():
        with pytest.raises(uio.ListError, match=words) as caught:
            recognize(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(uio.ListError, match=f"name that, {re.escape(str(plain_corpus.list))}"):
        recognize(str(plain_corpus.list.parent))
    shutil.copy(next(plain_corpus.list.parent.glob("*.tar")), tmp_path / "only.tar")
    with pytest.raises(uio.ListError):
        recognize(str(tmp_path))


def test_durations_of_a_table_are_those_that_it_declares(tmp_path: Path) -> None:
    making = made("fleurs", tmp_path, downloaded=False)
    seen = inspect(uio.from_corpus("fleurs", tmp_path, part="dev", lang="en_us"))
    wanted = [said.seconds for said in making.said if (said.part, said.lang) == ("dev", "en_us")]
    assert seen.seconds == pytest.approx(sum(wanted))
    assert [sample["seconds"] for sample in seen.samples] == wanted


def test_audio_is_looked_for_in_the_folders_beside_a_table(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.wav").write_bytes(wav_bytes(tone(800, 0)))
    table = tmp_path / "train.tsv"
    table.write_text("path\tsentence\na.wav\thello\n")
    assert inspect(recognize(str(table)).pipeline).utterances == 1
    shutil.copytree(tmp_path / "clips", tmp_path / "older")  # now it may be in either
    seen = inspect(recognize(str(table)).pipeline)
    assert seen.failures == {"no_audio": 1}
    assert "say where it is by fields ('wav=FOLDER/{…}'), or root=… where paths start" in seen.reports[0]
