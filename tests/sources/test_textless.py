"""Audio without transcripts, ``text=None``: every source takes it, and what works on texts says so beforehand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import uio as command
from contract import Case, check_cuts, record
from corpus import wav_bytes
from every_source import SOURCES, at, speech

import uio_pipes as uio
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.inspect import inspect

COUNT, SPOKEN = 9, (5, 7)  # utterances, and those of them that have a transcript nevertheless
SILENT = [name for name, source in SOURCES.items() if source.silent]
SAID = [{n: v for n, v in one.items() if n != "txt" or i in SPOKEN} for i, one in enumerate(speech(COUNT))]
NAMES = {"keys", "feats", "feats_lengths", "pcm", "pcm_length", "speaker"}
HEARD = [(one["key"], one.get("txt")) for one in SAID]


def silent(name: str, root: Path) -> uio.Pipeline:
    return SOURCES[name].pipeline(root, SAID, **SOURCES[name].silent or {})


def made(name: str, root: Path, path: str, names: dict[str, str] | None = None) -> Path:
    """The data of a source in a folder of their own."""
    (root / name).mkdir(exist_ok=True)
    SOURCES[name].write(root / name, SAID, at(root / name), names or {})
    return root / name / path


def lines(root: Path, name: str = "txt") -> Path:
    return made("raw", root, "data.list", {"txt": name})


def shard(root: Path) -> Path:
    return made("shards", root, "data.list")


def touch(root: Path) -> Path:
    return made("touch", root, "touch")


def kaldi(root: Path) -> Path:
    folder = made("kaldi", root, "kaldi")
    (folder / "text").unlink()
    return folder


@pytest.mark.parametrize("name", SILENT)
def test_utterances_need_no_transcript(name: str, tmp_path: Path) -> None:
    source = silent(name, tmp_path)
    loader = uio.Loader(source)
    assert [(s["key"], s.get("txt")) for s in loader] == HEARD
    assert loader.stats().failures == 0
    batches = source.decode_audio().resample(16_000).fbank().shuffle(4).sort(3).batch(2).pad()
    recorded = record(Case(batches, {"lanes": 1}))
    assert not {"txt", "target"} & set(next(iter(uio.Loader(batches))))
    check_cuts(recorded, range(len(recorded.digests) + 1))


def test_an_index_has_utterances_without_a_transcript(tmp_path: Path) -> None:
    path = shard(tmp_path)
    index_lists([str(path)], text="")
    assert [(s["key"], s.get("txt")) for s in uio.Loader(uio.from_tar_index(path))] == HEARD


@pytest.mark.parametrize("name", SILENT)
def test_what_needs_the_transcript_is_refused_unless_a_stage_makes_or_chooses_it(name: str, tmp_path: Path) -> None:
    audio = silent(name, tmp_path).decode_audio()
    uses: list[Callable[[uio.Pipeline], Any]] = [
        lambda graph: graph.tokenize(len),
        lambda graph: graph.language(),
        lambda graph: graph.normalize_text(),
    ]
    for use in uses:
        with pytest.raises(uio.PipelineError, match=r"needs the transcript, but .* makes it optional"):
            use(audio.shuffle(4).sort(2))
        assert use(audio.map(lambda sample: sample))
        assert use(audio.choose_text(["txt", "said"]))
    spoken = audio.filter(lambda sample: "txt" in sample).tokenize(lambda text: [int(text[1:])])
    assert [s["label"] for s in uio.Loader(spoken)] == [[i] for i in SPOKEN]


def test_a_state_of_other_transcripts_does_not_fit() -> None:
    assert uio.from_raw_list("a", text="said").fingerprint() != uio.from_raw_list("a", text=None).fingerprint()


def test_the_transcript_of_a_line_may_have_another_name(tmp_path: Path) -> None:
    loader = uio.Loader(uio.from_raw_list(lines(tmp_path, "said"), text="said"))
    assert [s["txt"] for s in loader] == [f"文{i}" for i in SPOKEN]
    assert loader.stats().skipped == {"missing_text": COUNT - len(SPOKEN)}
    with pytest.raises(uio.DataError, match=r"text=None \(in commands --text ''\) accepts audio without transcripts"):
        list(uio.Loader(uio.from_shard_list(shard(tmp_path)), failures="raise"))


def test_a_mix_needs_what_one_of_its_sources_needs() -> None:
    silent, spoken = uio.from_raw_list("a", text=None), uio.from_raw_list("b")
    with pytest.raises(uio.PipelineError, match="mix makes it optional"):
        uio.mix({"a": silent, "b": silent.decode_audio()}).tokenize(len)
    assert uio.mix({"a": silent, "b": spoken}).tokenize(len)
    assert uio.mix({"a": silent, "b": silent.map(len)}).tokenize(len)


def test_wenets_datasets_without_a_tokenizer_need_no_transcript(tmp_path: Path) -> None:
    conf = {"resample_conf": {"resample_rate": 8000}, "batch_conf": {"batch_size": 4}, "filter_conf": {"min_length": 1}}
    for data_type, make in (("raw", lines), ("shard", shard)):
        path = make(tmp_path)
        batches = list(uio.wenet_dataset(data_type, str(path), None, conf))
        assert sorted(key for batch in batches for key in batch["keys"]) == [key for key, _ in HEARD]
        assert set(batches[0]) - {"langs", "tasks"} == NAMES


@pytest.mark.parametrize("make", [shard, lines, touch])
def test_verify_finds_nothing_wrong_if_no_text_is_looked_for(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    done = command("verify", path, "--text", "", "--jobs", 1)
    assert (done.returncode, "nothing is wrong" in done.stdout) == (0, True), done.stdout + done.stderr
    assert f"{COUNT - len(SPOKEN)} missing_text" in command("verify", path, "--jobs", 1).stdout


def test_inspect_says_that_there_are_no_transcripts(tmp_path: Path) -> None:
    listed = shard(tmp_path)
    kinds = {listed: "shard list", lines(tmp_path, "said"): "raw list"}
    for data, kind in kinds.items():
        found = recognize(str(data))
        seen = inspect(found.pipeline)
        assert (found.kind, seen.utterances, seen.failures) == (f"{kind} without transcripts", COUNT, {})
    assert recognize(str(lines(tmp_path))).kind == "raw list"


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
    heard = [(key, None if make is kaldi else txt) for key, txt in HEARD]
    assert [(s["key"], s.get("txt")) for s in uio.Loader(start)] == heard
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
    for one in (cut, source.segments(field="segments", texts=None, merge_seconds=1)):
        assert [s.get("txt") for s in uio.Loader(one)] == [None, "said", None]
    with pytest.raises(uio.PipelineError, match="needs the transcript, but segments makes"):
        cut.tokenize(len)
    counted = uio.Loader(source.segments(field="segments"))
    assert [s["txt"] for s in counted] == ["said"]
    assert counted.stats().skipped == {"missing_text": 2}
    with pytest.raises(uio.DataError, match="texts=None takes segments without transcripts"):
        list(uio.Loader(source.segments(field="segments"), failures="raise"))
    cuts = source.segments(of="recording", cut_seconds=(0.1, 0.2), texts=None)
    assert all("txt" not in s for s in uio.Loader(cuts))
