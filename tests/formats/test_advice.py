"""What a source says of names that the data lack: the line that it writes, pasted as it is, reads the data."""

import json
import re
import wave
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import parquet_corpus
import pytest
from helpers_bad import shard

import uio_pipes as uio

COUNT = 3
AUDIO = "a.wav"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with wave.open(AUDIO, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return tmp_path


def lines(**row: Any) -> str:
    Path("data.json").write_text("".join(json.dumps(row) + "\n" for _ in range(COUNT)))
    return "data.json"


def tar(audio: str = "wav", **members: Any) -> str:
    data = {**members, audio: Path(AUDIO).read_bytes()}
    texts = {name: json.dumps(d).encode() if isinstance(d, dict) else d for name, d in data.items()}
    return str(shard(Path("a.tar"), [(f"{key}.{name}", texts[name]) for key in "abc" for name in texts]))


def mixed(*rows: dict[str, Any]) -> str:
    Path("data.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "data.json"


def parquet(*audio: str, **row: Any) -> str:
    row |= {name: {"bytes": Path(AUDIO).read_bytes(), "path": AUDIO} for name in audio or ("clip",)}
    return str(parquet_corpus.write(Path("a.parquet"), [row] * COUNT))


def samples() -> str:
    row = {"samples": [0.1] * 1600, "sampling_rate": 16_000, "sentence": "said"}
    return str(parquet_corpus.write(Path("a.parquet"), [row] * COUNT))


def clips(**row: str) -> str:
    """A table with its audio in a folder beside it, as Common Voice's and LJSpeech's."""
    Path("clips").mkdir()
    Path(AUDIO).rename("clips/a.wav")
    return tsv(**row)


def tsv(**row: str) -> str:
    Path("a.tsv").write_text("\n".join(map("\t".join, [row.keys(), *[row.values()] * COUNT])) + "\n")
    return "a.tsv"


def given(items: list[dict[str, str]], fields: dict[str, str] | None) -> uio.Pipeline:
    return uio.from_iterable(items, fields=fields).decode_audio()


raw, nemo, jsonl = uio.from_raw_list, uio.from_nemo, uio.from_jsonl
shards, table, rows = uio.from_shard_list, uio.from_table, uio.from_parquet
SAID = {"text": "said", "spk": "s"}
KNOWN = {"key": "a", "wav": AUDIO}
ADVICE: list[tuple[Callable[..., uio.Pipeline], Callable[[], Any], dict[str, str], str]] = [
    (raw, lambda: lines(key="a", wav=AUDIO, txt="said"), {"txt": "transcript"}, "leave fields out"),
    (raw, lambda: lines(id="a", audio_filepath=AUDIO, sentence="said"), {}, "audio_filepath"),
    (raw, lambda: lines(id="a", audio={"path": AUDIO}, texts=["said", "no"]), {}, '"audio.path", "txt": "texts.0"'),
    (raw, lambda: lines(id="a", meta={"rec": {"file": AUDIO}}, info=[{"text": "said"}]), {}, '"meta.rec.file"'),
    (raw, lambda: lines(audio=AUDIO, text="said"), {}, '"key": "audio | stem"'),
    (raw, lambda: lines(name=f"./{AUDIO}", wav=AUDIO, text="said"), {}, '"key": "name | stem"'),
    (raw, lambda: mixed(KNOWN | {"text": "said"}, *[KNOWN | {"txt": "said"}] * 2), {"txt": "text"}, '"text or txt"'),
    (raw, lambda: mixed(KNOWN | {"trn": "said"}, *[KNOWN | {"text": "said"}] * 2), {"txt": "words"}, '"trn or text"'),
    (raw, lambda: lines(id="a", wav=AUDIO, text=" ", sentence="said"), {}, '"txt": "sentence"'),
    (raw, lambda: lines(utt="a", snd=AUDIO, words="said"), {}, '"wav": "snd"'),
    (raw, lambda: lines(utt="a", snd=AUDIO, words="said"), {"txt": "word"}, '"txt": "words"'),
    (raw, lambda: lines(id="a", wav=AUDIO, txt="said"), {"id": "key"}, 'our name comes first, write fields={"key":'),
    (raw, lambda: lines(key="a", wav=AUDIO, txt="said"), {"speaker": "who"}, "\"speaker\": \"who or ''\""),
    (partial(raw, text="transcript"), lambda: lines(key="a", wav=AUDIO, txt="said"), {}, "leave text='transcript' out"),
    (given, lambda: [{"snd": AUDIO, "sentence": "said"}] * COUNT, {}, '"wav": "snd", "txt": "sentence"}, beside what'),
    (nemo, lambda: lines(audio=AUDIO, duration=0.1, sentence="said"), {}, '"wav": "audio", "txt": "sentence"'),
    (given, lambda: [{"rec": {"path": AUDIO}, "sentence": "said"}] * COUNT, {"wav": "sound"}, '"wav": "rec.path"'),
    (given, lambda: [{"wav": AUDIO, "sentence": "said"}] * COUNT, {"txt": "text"}, '{"txt": "sentence"}'),
    (nemo, lambda: lines(audio={"path": AUDIO}, sentence="said"), {}, '"wav": "audio.path"'),
    (nemo, lambda: lines(audio=AUDIO, sentence="said"), {"txt": "words"}, '{"txt": "sentence", "wav": "audio"}'),
    (nemo, lambda: lines(audio_filepath=AUDIO, duration=0.1, sentence="said"), {"txt": "trans"}, "sentence"),
    (partial(jsonl, text="content"), lambda: lines(sentence="said"), {}, "in place of text='content'"),
    (shards, lambda: tar(json=SAID), {"txt": "json:transcript"}, "json:text"),
    (shards, lambda: tar(json={"info": SAID}), {}, "json:info.text"),
    (shards, lambda: tar(txt=b"said"), {"txt": "json:transcript"}, "leave fields out"),
    (partial(shards, text="json:txt"), lambda: tar(json=SAID), {}, "in place of text='json:txt'"),
    (shards, lambda: tar(json={"texts": ["said"]}), {}, "json:texts.0"),
    (shards, lambda: tar("snd", lab=b"said"), {}, '"wav": "snd", "txt": "lab"'),
    (table, lambda: tsv(path=AUDIO, sentence="said"), {}, '"wav": "path", "txt": "sentence"'),
    (table, lambda: tsv(path=AUDIO, sentence="said"), {"wav": "pth"}, '"wav": "path", "txt": "sentence"'),
    (table, lambda: tsv(wav=AUDIO, txt="said"), {"txt": "transcript"}, "leave fields out"),
    (table, lambda: tsv(wav=AUDIO, sentence="said"), {"txt": "transcrip"}, '"wav": "wav"'),
    (rows, lambda: parquet(sentence="said", uid="a"), {"txt": "trans"}, '"wav": "clip"'),
    (rows, lambda: parquet(words="said"), {}, '"wav": "clip", "txt": "words"'),
    (rows, lambda: parquet("clean", "noisy", words="said"), {}, "if clean (or noisy) and words are meant"),
    (rows, samples, {}, '"sample_rate": "sampling_rate"'),
    (rows, lambda: parquet(words="said"), {"wav": "speech", "txt": "said"}, '"wav": "clip", "txt": "words"'),
    (rows, lambda: parquet(words="said"), {"speaker": "spk", "txt": "said"}, "\"speaker\": \"spk or ''\""),
    (rows, lambda: parquet(info={"texts": ["said"]}), {}, '"txt": "info.texts.0"'),
    (table, lambda: clips(path=AUDIO, sentence="said"), {}, '"wav": "clips/{path}"'),
    (table, lambda: clips(no="a", sentence="said"), {"txt": "text"}, '"wav": "clips/{no}.wav"'),
    (table, lambda: clips(no="a", txt="said"), {"wav": "clips/{noo}.wav", "txt": "txt"}, '"wav": "clips/{no}.wav"}'),
    (table, lambda: tsv(file=AUDIO, start="0", end="0.05", text="said"), {}, '"start": "start", "end": "end"}'),
    (table, lambda: tsv(file=AUDIO, start="0", end="0.05", text="said"), {"txt": "txet"}, '"start": "start", "end":'),
    (table, lambda: tsv(file=AUDIO, end="0.05", text="said"), {}, '"wav": "file", "txt": "text"}'),
]  # fmt: skip


def read(pipeline: uio.Pipeline) -> list[dict[str, Any]]:
    needs_text = "list_table" not in str(pipeline)  # which asks for it by itself
    return list(uio.Loader(pipeline.normalize_text() if needs_text else pipeline, on_error="raise"))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("start", "write", "fields", "told"), ADVICE, ids=map(str, range(len(ADVICE))))
def test_the_line_that_is_written_reads_the_data_as_it_is(
    start: Callable[..., uio.Pipeline], write: Callable[[], Any], fields: dict[str, str], told: str
) -> None:
    data = write()
    with pytest.raises((uio.ListError, uio.DataError, uio.PipelineError)) as caught:
        read(start(data, fields=fields or None))
    message = str(caught.value)
    assert told in message
    if isinstance(start, partial):
        start = start.func
    line = re.search(r'fields=(\{(?:"[^"]*"|[^{}"])*\})', message)
    samples = read(start(data, fields=eval(line[1]) if line else None))
    assert [sample["txt"] for sample in samples] == ["said"] * COUNT
    assert start in (jsonl,) or all("wav" in sample for sample in samples)
    assert "key" not in fields.values() or samples[0]["key"] == "a"
