"""What a source says of names that the data lack; a line that it tells, pasted as it is, is understood."""

import json
import logging
import re
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import parquet_corpus
import pytest
from corpus import wav_bytes
from helpers_bad import shard

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.ledger import FIRST, LOGGED

COUNT = 3
AUDIO = "a.wav"


def lines(**row: Any) -> str:
    Path("data.json").write_text("".join(json.dumps(row) + "\n" for _ in range(COUNT)))
    return "data.json"


def tar(**said: Any) -> str:
    members = {"wav": wav_bytes(0), "json": json.dumps(said).encode()}
    return str(shard(Path("a.tar"), [(f"{key}.{name}", members[name]) for key in "abc" for name in members]))


def parquet(**row: Any) -> str:
    return str(
        parquet_corpus.write(Path("a.parquet"), [{"clip": {"bytes": wav_bytes(0), "path": AUDIO}} | row] * COUNT)
    )


def clips(**row: str) -> str:
    """A table with its audio in a folder beside it, as Common Voice's."""
    Path("clips").mkdir()
    Path(AUDIO).rename("clips/a.wav")
    Path("a.tsv").write_text("\n".join(map("\t".join, [row.keys(), *[row.values()] * COUNT])) + "\n")
    return "a.tsv"


raw, jsonl, shards, table = uio.from_raw_list, uio.from_jsonl, uio.from_shard_list, uio.from_table
KNOWN = {"key": "a", "wav": AUDIO}
Case = tuple[Callable[..., uio.Pipeline], Callable[[], str], dict[str, Any], str]
TOLD: dict[str, Case] = {  # the source, what is there, what is given, what the error says
    "misspelt": (
        raw, lambda: lines(**KNOWN, sentence="said", text="no"), {"fields": {"txt": "sentnce"}},
        'it has key, wav, sentence, text; if sentence is meant, write fields={"txt": "sentence"}',
    ),
    "usual": (
        raw, lambda: lines(id="a", audio_filepath=AUDIO, Sentence="said"), {},
        'no key, no wav or feat, no txt: it has id, audio_filepath, Sentence; if id is meant, write '
        'fields={"key": "id"}; name wav and txt likewise',
    ),
    "several": (
        raw, lambda: lines(**KNOWN, text="said", sentence="said"), {},
        "no txt: it has key, wav, text, sentence; say by fields which of text, sentence is txt",
    ),
    "ours": (
        raw, lambda: lines(**KNOWN, txt="said"), {"fields": {"txt": "transcript"}},
        'asks for \'transcript\', which none of the first 3 records has: it has key, wav, txt; if txt is meant, write '
        'fields={"txt": "txt"}',
    ),
    "the wrong way round": (
        raw, lambda: lines(id="a", wav=AUDIO, txt="said"), {"fields": {"id": "key"}},
        'our name comes first, write fields={"key": "id"}',
    ),
    "no key": (raw, lambda: lines(audio=AUDIO, text="said"), {}, 'fields={"key": "audio | stem"}; name wav and txt'),
    "text": (
        jsonl, lambda: lines(sentence="said"), {"text": "content"},
        "text='content' asks for 'content', which none of the first 3 records has: it has sentence; if sentence is "
        'meant, write text="sentence"',
    ),
    "JSON": (shards, lambda: tar(spk="s", text="said"), {}, 'if json:text is meant, write fields={"txt": "json:text"}'),
    "nested": (
        raw, lambda: lines(**KNOWN, info={"said": "said", "id": 1}), {"fields": {"txt": "info.sayd"}},
        'info has said, id; if info.said is meant, write fields={"txt": "info.said"}',
    ),
    "below": (
        table, lambda: clips(path=AUDIO, sentence="said"), {},
        'no row has wav or txt: it has path, clips/{path}, sentence; if clips/{path} is meant, write '
        'fields={"wav": "clips/{path}"}; name txt likewise',
    ),
    "audio": (
        uio.from_parquet, lambda: parquet(words="said"), {},
        'has no column of audio or text: it has clip, words; if clip is meant, write fields={"wav": "clip"}; name txt',
    ),
    "expression": (
        raw, lambda: lines(**KNOWN, txt="said", spk="s"), {"fields": {"speaker": "spkr | upper"}},
        "asks for 'spkr' in 'spkr | upper', which none of the first 3 records has: it has key, wav, txt, spk; did you "
        "mean 'spk'?",
    ),
}  # fmt: skip


def read(start: Callable[..., uio.Pipeline], data: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    return list(uio.Loader(start(data, **given).normalize_text(), failures="raise"))


@pytest.mark.parametrize("case", TOLD)
def test_the_names_that_are_there_and_the_line_to_paste(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(AUDIO).write_bytes(wav_bytes(0))
    start, write, given, told = TOLD[case]
    data = write()
    with pytest.raises((uio.ListError, uio.DataError, uio.PipelineError)) as caught:
        read(start, data, given)
    message = str(caught.value)
    assert told in message
    for _ in range(3):  # a line names one field, each time
        line = re.search(r"write (fields|text)=(\{.*?\"\}|\"\S+\")", message)
        if line is None:
            return
        value = json.loads(line[2])
        if line[1] == "fields":
            known = {ours: theirs for ours, theirs in given.get("fields", {}).items() if ours not in value.values()}
            value = known | value
        given = {**given, line[1]: value}
        try:
            assert [sample["txt"] for sample in read(start, data, given)] == ["said"] * COUNT
            return
        except uio.UioError as error:
            message = str(error)
    pytest.fail(f"it goes on asking: {message}")


# At the first utterances


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
        hushed = [text for text in texts if "are counted but not logged" in text]
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
