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


def tar(**members: Any) -> str:
    data = {**members, "wav": Path(AUDIO).read_bytes()}
    texts = {name: json.dumps(d).encode() if isinstance(d, dict) else d for name, d in data.items()}
    return str(shard(Path("a.tar"), [(f"{key}.{name}", texts[name]) for key in "abc" for name in texts]))


def parquet(**row: Any) -> str:
    row["clip"] = {"bytes": Path(AUDIO).read_bytes(), "path": AUDIO}
    return str(parquet_corpus.write(Path("a.parquet"), [row] * COUNT))


def tsv(**row: str) -> str:
    Path("a.tsv").write_text("\n".join(map("\t".join, [row.keys(), *[row.values()] * COUNT])) + "\n")
    return "a.tsv"


def given(items: list[dict[str, str]], fields: dict[str, str] | None) -> uio.Pipeline:
    return uio.from_iterable(items, fields=fields).decode_audio()


raw, nemo, jsonl = uio.from_raw_list, uio.from_nemo, uio.from_jsonl
shards, table, rows = uio.from_shard_list, uio.from_table, uio.from_parquet
SAID = {"text": "said", "spk": "s"}
ADVICE: list[tuple[Callable[..., uio.Pipeline], Callable[[], Any], dict[str, str], str]] = [
    (raw, lambda: lines(key="a", wav=AUDIO, txt="said"), {"txt": "transcript"}, "leave fields out"),
    (raw, lambda: lines(id="a", audio_filepath=AUDIO, sentence="said"), {}, "audio_filepath"),
    (raw, lambda: lines(id="a", wav=AUDIO, text=" ", sentence="said"), {}, '"txt": "sentence"'),
    (raw, lambda: lines(utt="a", snd=AUDIO, words="said"), {}, '"wav": "snd"'),
    (raw, lambda: lines(utt="a", snd=AUDIO, words="said"), {"txt": "word"}, '"txt": "words"'),
    (raw, lambda: lines(id="a", wav=AUDIO, txt="said"), {"id": "key"}, 'our name comes first, write fields={"key":'),
    (raw, lambda: lines(key="a", wav=AUDIO, txt="said"), {"speaker": "who"}, "\"speaker\": \"who or ''\""),
    (partial(raw, text="transcript"), lambda: lines(key="a", wav=AUDIO, txt="said"), {}, "leave text='transcript' out"),
    (given, lambda: [{"snd": AUDIO, "sentence": "said"}] * COUNT, {}, '"wav": "snd", "txt": "sentence"}, beside what'),
    (nemo, lambda: lines(audio=AUDIO, duration=0.1, sentence="said"), {}, '"wav": "audio", "txt": "sentence"'),
    (nemo, lambda: lines(audio_filepath=AUDIO, duration=0.1, sentence="said"), {"txt": "trans"}, "sentence"),
    (partial(jsonl, text="content"), lambda: lines(sentence="said"), {}, "in place of text='content'"),
    (shards, lambda: tar(json=SAID), {"txt": "json:transcript"}, "json:text"),
    (shards, lambda: tar(json={"info": SAID}), {}, "json:info.text"),
    (shards, lambda: tar(txt=b"said"), {"txt": "json:transcript"}, "leave fields out"),
    (partial(shards, text="json:txt"), lambda: tar(json=SAID), {}, "json:text"),
    (table, lambda: tsv(path=AUDIO, sentence="said"), {}, '"wav": "path", "txt": "sentence"'),
    (table, lambda: tsv(path=AUDIO, sentence="said"), {"wav": "pth"}, '"wav": "path", "txt": "sentence"'),
    (table, lambda: tsv(wav=AUDIO, txt="said"), {"txt": "transcript"}, "leave fields out"),
    (table, lambda: tsv(wav=AUDIO, sentence="said"), {"txt": "transcrip"}, '"wav": "wav"'),
    (rows, lambda: parquet(sentence="said", uid="a"), {"txt": "trans"}, '"wav": "clip"'),
    (rows, lambda: parquet(words="said"), {}, '"wav": "clip", "txt": "words"'),
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
    line = re.search(r"fields=(\{.*?\})", message)
    samples = read(start(data, fields=eval(line[1]) if line else None))
    assert [sample["txt"] for sample in samples] == ["said"] * COUNT
    assert start in (jsonl,) or all("wav" in sample for sample in samples)
    assert "key" not in fields.values() or samples[0]["key"] == "a"
