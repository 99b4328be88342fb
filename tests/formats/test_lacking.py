"""Fields that have another name in the data: found at the first utterances, with the line to write."""

import json
import logging
import re
import wave
from pathlib import Path
from typing import Any

import parquet_corpus
import pytest
from helpers_bad import shard
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.ledger import FIRST, LOGGED
from uio_pipes.formats.advice import USUAL, named_otherwise


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
    ("line", "reason", "told"),
    [
        ({"id": "a", "wav": "a.wav", "txt": "t"}, "missing_key", r'has id, wav, txt; .* write fields=\{"key": "id"\}'),
        ({"key": "a", "audio_filepath": "a", "txt": "t"}, "missing_audio", r'fields=\{"wav": "audio_filepath"\}'),
        ({"key": "a", "wav": "a", "Sentence": "t"}, "missing_text", r'fields=\{"txt": "Sentence"\}; text=None'),
        (
            {"key": "a", "wav": "a", "blob": "t"},
            "missing_text",
            r"it has key, wav, blob; say by fields which of them is txt",
        ),
        ({"key": "a", "wav": "a"}, "missing_text", r"the line has no txt: it has key, wav; text=None"),
        (
            {"id": "a", "audio_path": "a", "sentence": "t"},
            "missing_key",
            r"no key, no wav or feat, no txt: it has .*; if id, audio_path and sentence are meant, "
            r'write fields=\{"key": "id", "wav": "audio_path", "txt": "sentence"\}; text=None',
        ),
    ],
    ids=str,
)
def test_the_first_utterances_stop_the_run(tmp_path: Path, line: dict[str, Any], reason: str, told: str) -> None:
    path = listed(tmp_path, *([line] * 40))
    loader = uio.Loader(uio.from_raw_list(path).batch(1))
    with pytest.raises(NothingRead, match=rf"first {FIRST} utterances of a lane all fail as {reason}, .*{told}"):
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


SPOKEN = [
    (("wav", "transcript"), {}, 'if transcript is meant, write fields={"txt": "transcript"}'),
    (("wav", "json"), {"sentence": "good day"}, 'if json:sentence is meant, write fields={"txt": "json:sentence"}'),
    (("wav", "json", "text"), {"text": "t"}, 'if text is meant, write fields={"txt": "text"}'),
    (("txt", "speech"), {}, 'if speech is meant, write fields={"wav": "speech"}'),
    (
        ("wav", "json"),
        ["no object"],
        "only wav, json: pack its members one after the other, or name another by fields; text=None",
    ),
]


@pytest.mark.parametrize(("suffixes", "said", "told"), SPOKEN, ids=str)
def test_a_shard_that_names_its_text_otherwise_gets_the_line_that_reads_it(
    tmp_path: Path, suffixes: tuple[str, ...], said: Any, told: str
) -> None:
    wav = Path(sound(tmp_path)).read_bytes()
    data = {"wav": wav, "speech": wav, "json": json.dumps(said).encode()}
    members = [(f"{key}.{suffix}", data.get(suffix, b"good day")) for key in "abcd" for suffix in suffixes]
    path = shard(tmp_path / "a.tar", members)
    with pytest.raises(NothingRead, match=re.escape(told)):
        list(uio.Loader(uio.from_shard_list(path).batch(1)))
    for fields in re.findall(r"fields=({.*?})", told):
        (sample, *_) = uio.Loader(uio.from_shard_list(path, fields=json.loads(fields)).decode_audio())
        assert sample["txt"] == "good day" or said["text"] == "t"


def test_what_the_columns_of_parquet_lack_is_told_when_described(tmp_path: Path) -> None:
    rows = [{"speech": {"bytes": b"", "path": "a.wav"}, "sentence": "a", "id": 1}]
    heard = uio.from_parquet(parquet_corpus.write(tmp_path / "a.parquet", rows), fields={"wav": "speech"})
    with pytest.raises(
        uio.PipelineError, match=r'no such column: it has .*write fields=\{"wav": "speech", "txt": "sentence"\}'
    ):
        heard.decode_audio().shuffle(4).tokenize(str.split)
    said = uio.from_parquet(parquet_corpus.write(tmp_path / "b.parquet", rows), fields={"txt": "sentence"})
    with pytest.raises(
        uio.PipelineError, match=r'decode_audio works on wav.*write fields=\{"txt": "sentence", "wav": "speech"\}'
    ):
        said.decode_audio()
    said.map(lambda sample: sample).decode_audio()
    uio.from_parquet(tmp_path / "c.parquet").decode_audio()


@given(st.sampled_from(sorted(USUAL)), st.data())
def test_what_is_usual_elsewhere_is_found(ours: str, data: st.DataObject) -> None:
    usual = data.draw(st.sampled_from(USUAL[ours]))
    there = data.draw(st.permutations([usual.upper(), "key", "wav", "zzzz"]))
    assert named_otherwise(ours, there).endswith(f'write fields={{"{ours}": "{usual.upper()}"}}')
