"""Audio without transcripts, ``text=None``: every source takes it, and what works on texts says so beforehand."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import touchdataset
from command import uio as command
from contract import Case, check_cuts, record
from corpus import wav_bytes

import uio_pipes as uio
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.inspect import inspect

COUNT, SPOKEN = 9, (5, 7)  # utterances, and those of them that have a transcript nevertheless


def shard(root: Path) -> Path:
    with tarfile.open(root / "a.tar", "w") as tar:
        for i in range(COUNT):
            said = {"txt": b" t%d\n" % i} if i in SPOKEN else {}
            for suffix, data in {"wav": wav_bytes(i), **said}.items():
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return root / "a.tar"


def packed(root: Path) -> Path:
    (root / "a.tar.gz").write_bytes(gzip.compress(shard(root).read_bytes()))
    return root / "a.tar.gz"


def indexed(root: Path) -> Path:
    path = shard(root)
    index_lists([str(path)], text="")
    return path


def lines(root: Path, name: str = "txt") -> Path:
    out = []
    for i in range(COUNT):
        (root / f"{i}.wav").write_bytes(wav_bytes(i))
        said = {name: f"t{i}"} if i in SPOKEN else {} if i % 2 else {name: None}
        out.append(json.dumps({"key": str(i), "wav": str(root / f"{i}.wav"), **said}))
    (root / "raw.list").write_text("\n".join(out) + "\n")
    return root / "raw.list"


def touch(root: Path) -> Path:
    pairs = []
    for i in range(COUNT):
        said = {"txt": f"t{i}"} if i in SPOKEN else {}
        pairs.append((np.frombuffer(wav_bytes(i)[44:], "<i2"), {"key": str(i), "sample_rate": 8000, **said}))
    return touchdataset.write(root / "touch", pairs)


SOURCES: dict[str, Callable[[Path], uio.Pipeline]] = {
    "shards": lambda root: uio.from_shard_list(shard(root), text=None),
    "tar.gz": lambda root: uio.from_shard_list(packed(root), text=None),
    "index": lambda root: uio.from_tar_index(indexed(root)),
    "raw": lambda root: uio.from_raw_list(lines(root), text=None),
    "raw, named": lambda root: uio.from_raw_list(lines(root, "said"), text=None, fields={"txt": "said"}),
    "TouchDataset": lambda root: uio.from_indexed(touch(root), texts=None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_utterances_need_no_transcript(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path)
    loader = uio.Loader(source)
    assert [(s["key"], s.get("txt")) for s in loader] == [
        (str(i), f"t{i}" if i in SPOKEN else None) for i in range(COUNT)
    ]
    assert loader.stats().failures == 0
    batches = source.decode_audio().resample(16_000).fbank().shuffle(4).sort(3).batch(2).pad()
    recorded = record(Case(batches, {"lanes": 1}))
    assert set(next(iter(uio.Loader(batches)))) == {"keys", "feats", "feats_lengths"}
    check_cuts(recorded, range(len(recorded.digests) + 1))


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "index"])
def test_what_needs_the_transcript_is_refused_unless_a_stage_makes_or_chooses_it(name: str, tmp_path: Path) -> None:
    audio = SOURCES[name](tmp_path).decode_audio()
    uses: list[Callable[[uio.Pipeline], Any]] = [
        lambda graph: graph.tokenize(len),
        lambda graph: graph.language(),
        lambda graph: graph.normalize_text(),
    ]
    for use in uses:
        with pytest.raises(uio.PipelineError, match=r"works on the transcript, but .* there need be none"):
            use(audio)
        with pytest.raises(uio.PipelineError, match=r"works on the transcript"):
            use(audio.shuffle(4).sort(2))
        assert use(audio.map(lambda sample: sample))
        assert use(audio.choose_text(["txt", "said"]))
    spoken = audio.filter(lambda sample: "txt" in sample).tokenize(lambda text: [int(text[1:])])
    assert [s["label"] for s in uio.Loader(spoken)] == [[i] for i in SPOKEN]


def test_a_state_of_other_transcripts_does_not_fit() -> None:
    assert uio.from_raw_list("a", text="said").fingerprint() != uio.from_raw_list("a", text=None).fingerprint()


def test_the_transcript_of_a_line_may_have_another_name(tmp_path: Path) -> None:
    loader = uio.Loader(uio.from_raw_list(lines(tmp_path, "said"), text="said"))
    assert [s["txt"] for s in loader] == [f"t{i}" for i in SPOKEN]
    assert loader.stats().skipped == {"missing_text": COUNT - len(SPOKEN)}
    for source in (uio.from_raw_list(lines(tmp_path)), uio.from_shard_list(shard(tmp_path))):
        with pytest.raises(uio.DataError, match="text=None, in commands --text '', takes audio without transcripts"):
            list(uio.Loader(source, failures="raise"))


@pytest.mark.parametrize("text", ["", 7])
def test_other_values_are_refused(text: Any) -> None:
    for start in (uio.from_raw_list, uio.from_shard_list):
        with pytest.raises(uio.PipelineError, match="text must be"):
            start("a.tar", text=text)
    with pytest.raises(uio.PipelineError, match="name the field itself, 'said'"):
        uio.from_raw_list("a.list", text="json:said")


def test_a_mix_needs_what_one_of_its_sources_needs() -> None:
    silent, spoken = uio.from_raw_list("a", text=None), uio.from_raw_list("b")
    with pytest.raises(uio.PipelineError, match="mix says that there need be none"):
        uio.mix({"a": silent, "b": silent.decode_audio()}).tokenize(len)
    assert uio.mix({"a": silent, "b": spoken}).tokenize(len)
    assert uio.mix({"a": silent, "b": silent.map(len)}).tokenize(len)


def test_wenets_datasets_without_a_tokenizer_need_no_transcript(tmp_path: Path) -> None:
    conf = {"resample_conf": {"resample_rate": 8000}, "batch_conf": {"batch_size": 4}, "filter_conf": {"min_length": 1}}
    for data_type, path in (("raw", lines(tmp_path)), ("shard", shard(tmp_path)), ("shard", packed(tmp_path))):
        batches = list(uio.wenet_dataset(data_type, str(path), None, conf))
        assert sorted(key for batch in batches for key in batch["keys"]) == [str(i) for i in range(COUNT)]
        assert set(batches[0]) - {"langs", "tasks"} == {"keys", "feats", "feats_lengths", "pcm", "pcm_length"}


@pytest.mark.parametrize("make", [shard, lines, touch])
def test_verify_finds_nothing_wrong_if_no_text_is_looked_for(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    done = command("verify", path, "--text", "", "--jobs", 1)
    assert (done.returncode, "nothing is wrong" in done.stdout) == (0, True), done.stdout + done.stderr
    assert f"{COUNT - len(SPOKEN)} missing_text" in command("verify", path, "--jobs", 1).stdout


def test_inspect_says_that_there_are_no_transcripts(tmp_path: Path) -> None:
    path = shard(tmp_path)
    (tmp_path / "shards.list").write_text(f"{path}\n")
    kinds = {path: "tar shard", tmp_path / "shards.list": "shard list", lines(tmp_path, "said"): "raw list"}
    for data, kind in kinds.items():
        found = recognize(str(data))
        seen = inspect(found.pipeline)
        assert (found.kind, seen.utterances, seen.failures) == (f"{kind} without transcripts", COUNT, {})
    assert recognize(str(lines(tmp_path))).kind == "raw list"


def kaldi(root: Path) -> Path:
    lines(root)
    (root / "kaldi").mkdir()
    (root / "kaldi" / "wav.scp").write_text("".join(f"{i} {root}/{i}.wav\n" for i in range(COUNT)))
    return root / "kaldi"


@pytest.mark.parametrize(("name", "make"), [("pack", lines), ("pack", kaldi), ("convert", lines), ("convert", shard)])
@pytest.mark.parametrize("to", ["shards", "indexed"])
def test_what_has_no_transcripts_is_packed_and_converted(
    name: str, make: Callable[[Path], Path], to: str, tmp_path: Path
) -> None:
    source, out = make(tmp_path), tmp_path / "out"
    done = command(name, source, out, "--to", to, "--text", "", "--jobs", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    again = out / ("shards.list" if name == "pack" else "data.list")
    start = uio.from_indexed(again, texts=None) if to == "indexed" else uio.from_shard_list(again, text=None)
    said = {} if make is kaldi else {i: f"t{i}" for i in SPOKEN}
    assert [(s["key"], s.get("txt")) for s in uio.Loader(start)] == [(str(i), said.get(i)) for i in range(COUNT)]
    refused = command(name, source, tmp_path / "other", "--to", to)
    assert refused.returncode, refused.stdout


def test_statistics_of_features_need_no_transcripts(tmp_path: Path) -> None:
    done = command("cmvn", lines(tmp_path), tmp_path / "global_cmvn")
    assert f"of {COUNT} utterances" in done.stdout, done.stderr


def test_segments_need_no_transcript_if_none_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "0.wav").write_bytes(wav_bytes(9))
    segments = [{"start": 0, "end": 0.1}, {"start": 0.1, "end": 0.2, "txt": "said"}, {"start": 0.2, "end": 0.3}]
    line = {"key": "0", "wav": str(tmp_path / "0.wav"), "segments": segments}
    source = uio.from_raw_list([line], text=None)
    cut = source.segments(field="segments", texts=None)
    assert [s.get("txt") for s in uio.Loader(cut)] == [None, "said", None]
    assert [s.get("txt") for s in uio.Loader(source.segments(field="segments", texts=None, merge_seconds=1))] == [
        None,
        "said",
        None,
    ]
    with pytest.raises(uio.PipelineError, match="works on the transcript, but segments says"):
        cut.tokenize(len)
    counted = uio.Loader(source.segments(field="segments"))
    assert [s["txt"] for s in counted] == ["said"]
    assert counted.stats().skipped == {"missing_text": 2}
    with pytest.raises(uio.DataError, match="texts=None takes segments without transcripts"):
        list(uio.Loader(source.segments(field="segments"), failures="raise"))
    cuts = source.segments(of="recording", cut_seconds=(0.1, 0.2), texts=None)
    assert all("txt" not in s for s in uio.Loader(cuts))
