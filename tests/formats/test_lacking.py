"""Fields that have another name in the data: found at the first utterances."""

import json
import logging
import wave
from pathlib import Path
from typing import Any

import parquet_corpus
import pytest

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.ledger import FIRST, LOGGED


def listed(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "data.list"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def sound(folder: Path) -> str:
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return str(folder / "a.wav")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"id": "a", "wav": "a.wav", "txt": "t"}, "missing_key"),
        ({"key": "a", "audio_filepath": "a", "txt": "t"}, "missing_audio"),
        ({"key": "a", "wav": "a", "Sentence": "t"}, "missing_text"),
        ({"id": "a", "audio_path": "a", "sentence": "t"}, "missing_key"),
    ],
    ids=str,
)
def test_the_first_utterances_stop_the_run(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    path = listed(tmp_path, *([line] * 40))
    loader = uio.Loader(uio.from_raw_list(path).batch(1))
    with pytest.raises(NothingRead, match=rf"first {FIRST} utterances of a lane all fail as {reason}, .*write fields="):
        list(loader)


def test_what_lacks_it_later_is_only_counted(tmp_path: Path) -> None:
    good, bad = {"key": "a", "wav": sound(tmp_path), "txt": "t"}, {"key": "b", "wav": "b.wav"}
    loader = uio.Loader(uio.from_raw_list(listed(tmp_path, good, *[bad] * 20)).shuffle(50).batch(1))
    assert [sample["key"] for batch in loader for sample in batch] == ["a"]
    assert loader.stats().skipped == {"missing_text": 20}


def test_other_failures_do_not_stop_it(tmp_path: Path) -> None:
    lines = [{"key": str(n), "wav": f"{tmp_path}/none.wav", "txt": "t"} for n in range(FIRST + 2)]
    loader = uio.Loader(uio.from_raw_list(listed(tmp_path, *lines)).decode_audio().batch(1).pad())
    with pytest.raises(NothingRead, match=rf"{FIRST + 2} failed \({FIRST + 2} as missing_file\)"):
        list(loader)


def test_failures_of_one_kind_are_logged_three_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = {"key": "a", "wav": sound(tmp_path), "txt": "t"}, {"key": "b", "wav": "b.wav"}
    lines = [good, *[bad] * 9, {"key": "c", "txt": "t"}, {"key": "d", "txt": "t"}]
    loader = uio.Loader(uio.from_raw_list(listed(tmp_path, *lines)).batch(1))
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "uio_pipes"):
            list(loader)
        texts = [record.getMessage() for record in caplog.records]
        assert sum("[missing_text]" in text for text in texts) == LOGGED
        assert sum("[missing_audio]" in text for text in texts) == 2
        hushed = [text for text in texts if "are counted from here on" in text]
        assert len(hushed) == 1
        assert "(missing_text in load_from_raw)" in hushed[0]
        told = "of 12 utterances (91.7%) were left out: 2 missing_audio, 9 missing_text"
        assert f"epoch {loader.epoch} on rank 0: 11 {told}" in texts
    assert loader.stats().skipped == {"missing_text": 9, "missing_audio": 2}


def test_what_the_columns_of_parquet_lack_is_told_when_described(tmp_path: Path) -> None:
    rows = [{"speech": {"bytes": b"", "path": "a.wav"}, "sentence": "a", "id": 1}]
    heard = uio.from_parquet(parquet_corpus.write(tmp_path / "a.parquet", rows), fields={"wav": "speech"})
    with pytest.raises(uio.PipelineError, match=r'tokenize works on txt.*write fields=\{"txt": "sentence"\}'):
        heard.decode_audio().shuffle(4).tokenize(str.split)
    said = uio.from_parquet(parquet_corpus.write(tmp_path / "b.parquet", rows), fields={"txt": "sentence"})
    with pytest.raises(uio.PipelineError, match=r'decode_audio works on wav.*write fields=\{"wav": "speech"\}'):
        said.decode_audio()
    said.map(lambda sample: sample).decode_audio()
    uio.from_parquet(tmp_path / "c.parquet").decode_audio()
