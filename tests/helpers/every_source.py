"""A row for each source: how its data are written in small, under which names, and what it says of what they lack."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import archive_files
import corpus
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import touchdataset

import uio_pipes as uio
from uio_pipes.tools.data.index import index_lists

COUNT = 7
RATE = 8000
Said = dict[
    str, Any
]  # key, wav (a whole file), txt, speaker; a text of bytes is not UTF-8; what is not there is lacking
At = Callable[[str], str]  # where a file of the data lies: a path or a URL
Names = dict[str, str]  # of the fields, in the data
OTHERS = {"key": "id", "wav": "clip", "txt": "said", "speaker": "who"}  # names that nobody knows


class Source(NamedTuple):
    """``write``: the data of some utterances into a folder; ``begin``: the pipeline that reads them there.

    ``lacks``: the reason for an utterance without a field ("": it comes without); ``bad``: for a text that is not UTF-8
    and for audio that is none. ``named``: the fields that may have other names; ``listing``: the file that names the
    others; ``payload``: the files that hold the audio; ``fields``: what it knows of an utterance.
    """

    write: Callable[[Path, list[Said], At, Names], None]
    begin: Callable[..., uio.Pipeline]
    lacks: dict[str, str] = {"txt": "missing_text", "wav": "missing_audio"}  # noqa: RUF012
    bad: dict[str, str] = {"txt": "bad_text", "wav": "bad_audio"}  # noqa: RUF012
    named: Sequence[str] = ()
    listing: str = "data.list"
    payload: str = "*.wav"
    fields: Sequence[str] = ("key", "txt", "speaker", "wav")
    counted: bool = True  # without reading, the number of utterances is known
    alone: bool = False  # each recording is a file of its own
    planned: bool = False  # lengths are known without the audio
    silent: dict[str, Any] | None = None  # the options that take audio without transcripts

    def pipeline(self, root: Path, said: list[Said], names: Names | None = None, **options: Any) -> uio.Pipeline:
        """Write the data and begin with them, from a folder."""
        self.write(root, said, at(root), names or {})
        return self.begin(at(root), **options)


def at(root: Path) -> At:
    return lambda name: str(root / name)


def wav_of(number: int) -> bytes:
    return corpus.wav_bytes(number, RATE, (0.3, 0.6))


def pcm(wav: bytes) -> np.ndarray:
    return np.frombuffer(wav[44:], "<i2")


def seconds(one: Said) -> float:
    """The length of the recording (of one that is damaged, any)."""
    return len(pcm(one.get("wav", wav_of(0)))) / RATE if one.get("wav", b"RIFF")[:4] == b"RIFF" else 1.0


def speech(count: int = COUNT, first: int = 0) -> list[Said]:
    """Utterances with all that the sources know of them."""
    numbers = range(first, first + count)
    return [{"key": f"u{i}", "wav": wav_of(i), "txt": f"文{i}", "speaker": f"s{i % 3}"} for i in numbers]


def seen(sample: Any, fields: Sequence[str]) -> Said:
    """Those fields of a sample whose audio is decoded, with the bytes of its 16-bit samples."""
    if "messages" in sample:
        sample = {**sample, "wav": sample["audio"][0], "txt": sample["messages"][0]["content"][0]["text"]}
    found = {name: sample[name] for name in fields if name in sample}
    return found | ({"wav": (np.asarray(found["wav"][0]) * 32768).astype("<i2").tobytes()} if "wav" in found else {})


def wanted(said: list[Said], fields: Sequence[str]) -> list[Said]:
    """What is seen of these utterances."""
    return [{n: v[44:] if n == "wav" else v for n, v in one.items() if n in fields} for one in said]


def decoded(source: Source, pipeline: uio.Pipeline) -> uio.Pipeline:
    if "wav" not in source.fields:
        return pipeline
    return (
        pipeline.decode_audio(of="audio")
        if pipeline.stages[0].name == "list_conversations"
        else pipeline.decode_audio()
    )


# Lines of JSON


def as_json(fields: dict[str, Any]) -> bytes:
    """One line; a text of bytes stands in it as it is."""
    text = json.dumps(fields, ensure_ascii=False, default=lambda value: value.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape") + b"\n"


def audio_files(root: Path, said: list[Said], where: At, folder: str = "") -> list[Said]:
    """Write a file for each recording; the utterances with its place instead."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    out = []
    for one in said:
        name = f"{folder}{one['key']}.wav"
        if "wav" in one:
            (root / name).write_bytes(one["wav"])
        out.append({**one, "wav": where(name)} if "wav" in one else one)
    return out


def lines(root: Path, said: list[Said], names: Names, path: str = "data.list") -> None:
    rows = [{names.get(name, name): value for name, value in one.items()} for one in said]
    data = b"".join(map(as_json, rows))
    (root / path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)


def json_lines(own: Names, path: str = "data.list") -> Callable[[Path, list[Said], At, Names], None]:
    """Lines that name files, by names of the format's own."""

    def write(root: Path, said: list[Said], where: At, names: Names) -> None:
        lines(root, audio_files(root, said, where), own | names, path)

    return write


def texts(root: Path, said: list[Said], where: At, names: Names) -> None:
    plain = (one.get("txt", "") for one in said)
    (root / "data.list").write_bytes(b"".join((t if isinstance(t, bytes) else t.encode()) + b"\n" for t in plain))


def json_texts(root: Path, said: list[Said], where: At, names: Names) -> None:
    rows = [{name: value for name, value in one.items() if name != "wav"} for one in said]
    lines(root, rows, {"txt": "text"} | names)


def conversations(root: Path, said: list[Said], where: At, names: Names) -> None:
    rows = []
    for one in audio_files(root, said, where):
        parts = [{"type": "text", "text": one["txt"]}, {"type": "audio", "path": one["wav"]}]
        messages = [{"role": "user", "content": parts}]
        rows.append({"key": one["key"], "messages": messages, "speaker": one["speaker"]})
    lines(root, rows, names)


def cuts(root: Path, said: list[Said], where: At, names: Names) -> None:
    found = zip(audio_files(root, said, where), map(seconds, said), strict=True)
    lines(root, [_cut(one, length, names) for one, length in found], {}, "cuts.jsonl.gz")


def _cut(one: Said, length: float, names: Names) -> dict[str, Any]:
    """A cut of a recording that is a file, or lies in a Shar; other names are those of custom fields."""
    known = {"txt": "text", "speaker": "speaker"}
    told = {known[name]: one[name] for name in known if name in one and name not in names}
    supervision = {"id": one["key"], "start": 0.0, "duration": length, "channel": 0, **told}
    cut = {"id": one["key"], "start": 0, "duration": length, "channel": 0, "type": "MonoCut"}
    cut |= {"supervisions": [supervision], "custom": {names[name]: one[name] for name in names if name in one}}
    if isinstance(one.get("wav"), str):
        cut["recording"] = {
            "id": one["key"], "sources": [{"type": "url", "channels": [0], "source": one["wav"]}],
            "sampling_rate": RATE, "num_samples": round(length * RATE), "duration": length, "channel_ids": [0],
        }  # fmt: skip
    return cut


def shar(root: Path, said: list[Said], where: At, names: Names) -> None:
    for number, part in enumerate((said[:4], said[4:])):
        members = []
        for one in part:
            length = {"num_samples": round(seconds(one) * RATE), "duration": seconds(one)}
            recording = {"id": one["key"], "sampling_rate": RATE, **length}
            members += [(f"{one['key']}.wav", one["wav"]), (f"{one['key']}.json", as_json(recording))]
        lines(root, [_cut(one, seconds(one), {}) for one in part], {}, f"cuts.{number:06d}.jsonl.gz")
        (root / f"recording.{number:06d}.tar").write_bytes(corpus._tar(members))


def begin_shar(where: At, **options: Any) -> uio.Pipeline:
    files = {"cuts": "cuts.{:06d}.jsonl.gz", "recording": "recording.{:06d}.tar"}
    places = {name: [where(file.format(number)) for number in range(2)] for name, file in files.items()}
    return uio.from_lhotse_shar(places, **options)


# Tars


def shards(suffix: str = "") -> Callable[[Path, list[Said], At, Names], None]:
    """Two shards and their list."""

    def write(root: Path, said: list[Said], where: At, names: Names) -> None:
        for name, part in (("a", said[:4]), ("b", said[4:])):
            members = []
            for one in part:
                values = {field: one[field] for field in ("txt", "wav", "speaker") if field in one}
                data = {field: v if isinstance(v, bytes) else v.encode() for field, v in values.items()}
                members += [(f"{one['key']}.{names.get(field, field)}", value) for field, value in data.items()]
            archive_files.write_archive(root / f"{name}.tar{suffix}", members)
        (root / "data.list").write_text("".join(f"{where(f'{name}.tar{suffix}')}\n" for name in "ab"))

    return write


def indexed(root: Path, said: list[Said], where: At, names: Names) -> None:
    shards()(root, said, where, names)
    index_lists([str(root / f"{name}.tar") for name in "ab"], manifests=False)


def begin_shards(where: At, fields: Names | None = None, **options: Any) -> uio.Pipeline:
    grouping = {"grouping": "webdataset"} if fields else {}
    return uio.from_shard_list(where("data.list"), fields=fields, **grouping, **options)  # type: ignore[arg-type]


def nemo_tar(root: Path, said: list[Said], where: At, names: Names) -> None:
    archive_files.write_archive(root / "audio_0.tar", [(f"{o['key']}.wav", o["wav"]) for o in said if "wav" in o])
    rows = [{"duration": 9.0, **one, "wav": f"{one['key']}.wav", "shard_id": 0} for one in said]
    lines(root, rows, {"wav": "audio_filepath", "txt": "text"} | names)


def table_in(archive: str) -> tuple[Callable[[Path, list[Said], At, Names], None], Callable[..., uio.Pipeline]]:
    """A table whose audio lies in an archive."""

    def write(root: Path, said: list[Said], where: At, names: Names) -> None:
        archive_files.write_archive(root / archive, [(f"x/{o['key']}.wav", o["wav"]) for o in said if "wav" in o])
        lines(root, [{**one, "wav": f"x/{one['key']}.wav"} for one in said], names, "data.jsonl")

    def begin(where: At, fields: Names | None = None, **options: Any) -> uio.Pipeline:
        names = fields or {name: name for name in OTHERS}
        return uio.from_table(where("data.jsonl"), fields=names, archives=where(archive), **options)

    return write, begin


# Others


def touch(root: Path, said: list[Said], where: At, names: Names) -> None:
    rows = [{n: v for n, v in {**one, "sample_rate": RATE}.items() if n != "wav"} for one in said]
    texts = [as_json({names.get(name, name): value for name, value in row.items()}) for row in rows]
    (root / "touch").mkdir(exist_ok=True)
    touchdataset.write_pair(root / "touch/audio", [pcm(one.get("wav", bytes(44))) for one in said])
    touchdataset.write_pair(root / "touch/metainfo", [np.frombuffer(text, np.uint8) for text in texts])


def kaldi(ark: bool) -> Callable[[Path, list[Said], At, Names], None]:
    def write(root: Path, said: list[Said], where: At, names: Names) -> None:
        (root / "kaldi").mkdir(exist_ok=True)
        found, data = said if ark else audio_files(root, said, where, "kaldi/"), b""
        scp = {one["key"]: one["wav"] for one in found if "wav" in one}
        for key, wav in scp.items() if ark else ():
            data += f"{key} ".encode()
            scp[key], data = f"{where('kaldi/wavs.ark')}:{len(data)}", data + wav
        if ark:
            (root / "kaldi/wavs.ark").write_bytes(data)
        _kaldi_table(root / "kaldi/wav.scp", scp)
        _kaldi_table(root / "kaldi/text", {one["key"]: one["txt"] for one in said if "txt" in one})
        _kaldi_table(root / "kaldi/utt2spk", {one["key"]: one["speaker"] for one in said if "speaker" in one})

    return write


def _kaldi_table(path: Path, rows: dict[str, Any]) -> None:
    texts = ((key, value if isinstance(value, bytes) else value.encode()) for key, value in rows.items())
    path.write_bytes(b"".join(b"%s %s\n" % (key.encode(), value) for key, value in texts))


def parquet(root: Path, said: list[Said], where: At, names: Names) -> None:
    """Two files, of two row groups each."""
    own = {"key": "id", "wav": "audio", "txt": "text"} | names
    for number, part in enumerate((said[:4], said[4:])):
        columns: dict[str, Any] = {}
        for name in ("key", "txt", "speaker"):
            values = [one.get(name) for one in part]
            data = [v.encode() if isinstance(v, str) else v for v in values]
            columns[own.get(name, name)] = pa.array(data, pa.binary()).view(pa.string())
        audio = [{"bytes": one.get("wav"), "path": f"{one['key']}.wav"} if "wav" in one else None for one in part]
        pq.write_table(pa.table({**columns, own["wav"]: audio}), root / f"{number}.parquet", row_group_size=2)


def begin_parquet(where: At, **options: Any) -> uio.Pipeline:
    return uio.from_parquet([where(f"{number}.parquet") for number in range(2)], **options)


def given(root: Path, said: list[Said], where: At, names: Names) -> None:
    lines(root, audio_files(root, said, where), names)  # so that it can be read again below


def begin_given(where: At, **options: Any) -> uio.Pipeline:
    items = [json.loads(line) for line in Path(where("data.list")).read_text().splitlines()]
    return uio.from_iterable(items, **options).sharding_filter()


def begins(function: Callable[..., uio.Pipeline], name: str, *more: str, **fixed: Any) -> Callable[..., uio.Pipeline]:
    """The pipeline of this function on files of these names."""
    return lambda where, **options: function(where(name), *map(where, more), **{**fixed, **options})


NAMED = tuple(OTHERS)
JSON = {"txt": "bad_line", "wav": "bad_audio"}
MAY_LACK = {"txt": "", "wav": "missing_audio"}
SILENT: dict[str, Any] = {"silent": {"text": None}}
BESIDE: dict[str, Any] = {"named": NAMED, "alone": True, "planned": True}
SHARDS: dict[str, Any] = {"named": ("wav", "txt", "speaker"), "payload": "*.tar*", "counted": False, **SILENT}
TABLE: dict[str, Any] = {"listing": "data.jsonl", "named": NAMED}
IN_ARCHIVE: dict[str, Any] = {**TABLE, "lacks": {"txt": "missing_text", "wav": "no_audio"}}
SOURCES = {
    "raw": Source(json_lines({}), begins(uio.from_raw_list, "data.list"), bad=JSON, **BESIDE, **SILENT),
    "shards": Source(shards(), begin_shards, **SHARDS),
    "tar.gz": Source(shards(".gz"), begin_shards, **SHARDS),
    "index": Source(
        indexed, begins(uio.from_tar_index, "data.list"), named=("speaker",), payload="*.tar", planned=True,
    ),
    "touch": Source(
        touch, begins(uio.from_indexed, "touch"), {"txt": "missing_text", "wav": "empty_audio", "key": "missing_key"},
        {"txt": "bad_line"}, ("key", "txt", "speaker"), "touch/metainfo.idx", "touch/audio.bin", planned=True,
        silent={"texts": None},
    ),
    "kaldi": Source(
        kaldi(False), begins(uio.from_kaldi, "kaldi"),
        {"txt": "missing_text", "wav": "missing_recording", "speaker": "missing_speaker"},
        listing="kaldi/wav.scp", payload="kaldi/*.wav", alone=True,
    ),
    "kaldi's arks": Source(
        kaldi(True), begins(uio.from_kaldi, "kaldi"), {}, {"txt": "bad_text"}, listing="kaldi/wav.scp",
        payload="kaldi/wavs.ark",
    ),
    "nemo": Source(
        json_lines({"wav": "audio_filepath", "txt": "text"}), begins(uio.from_nemo, "data.list"), MAY_LACK, JSON,
        **BESIDE,
    ),
    "nemo's tars": Source(
        nemo_tar, begins(uio.from_nemo, "data.list", "audio_0.tar"), {"txt": "", "wav": "missing_member"}, JSON, NAMED,
        payload="*.tar", planned=True,
    ),
    "conversations": Source(conversations, begins(uio.from_conversations, "data.list"), {}, {}, alone=True),
    "text": Source(
        texts, begins(uio.from_text, "data.list"), {"txt": "blank_line"}, {"txt": "bad_text"}, payload="data.list",
        fields=("txt",),
    ),
    "jsonl": Source(
        json_texts, begins(uio.from_jsonl, "data.list"), {"txt": "missing_text"}, {"txt": "bad_line"},
        ("key", "txt", "speaker"), payload="data.list", fields=("key", "txt", "speaker"),
    ),
    "parquet": Source(
        parquet, begin_parquet, MAY_LACK, {"txt": "bad_value", "wav": "bad_audio"}, NAMED, "0.parquet", "*.parquet",
    ),
    "table": Source(
        json_lines({}, "data.jsonl"), begins(uio.from_table, "data.jsonl"), MAY_LACK, alone=True, planned=True, **TABLE,
    ),
    "table of a tar": Source(*table_in("a.tar"), payload="a.tar", **IN_ARCHIVE),
    "table of a tar.gz": Source(*table_in("a.tar.gz"), payload="", counted=False, **IN_ARCHIVE),
    "cuts": Source(
        cuts, begins(uio.from_lhotse_cuts, "cuts.jsonl.gz"), MAY_LACK, JSON, ("txt", "speaker"), "cuts.jsonl.gz",
        alone=True, planned=True,
    ),
    "shar": Source(
        shar, begin_shar, {"txt": ""}, {"wav": "bad_audio"}, listing="", payload="recording.*", counted=False,
    ),
    "iterable": Source(given, begin_given, MAY_LACK, {"wav": "bad_audio"}, NAMED, listing="", payload="", alone=True),
}  # fmt: skip
