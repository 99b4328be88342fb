"""Cuts that the real Lhotse wrote, read by ``from_lhotse_cuts``; and cuts that we wrote, read by Lhotse."""

import base64
import io
import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import fsspec
import nemo_data
import numpy as np
import pytest
import soundfile
import touchdataset
from command import start
from helpers_bad import each_alone

lhotse = pytest.importorskip("lhotse")
from converting import convert  # noqa: E402
from cuts_corpus import RATE, cut_of, write_cuts  # noqa: E402
from lhotse import CutSet, MonoCut, MultiCut, Recording, SupervisionSegment  # noqa: E402
from lhotse.audio import AudioSource  # noqa: E402
from shar_data import cut_set, write_shar  # noqa: E402

import uio_pipes as uio  # noqa: E402
from uio_pipes.run.planning import plan_lanes  # noqa: E402
from uio_pipes.tools.data.recognize import recognize  # noqa: E402
from uio_pipes.tools.data.verify import verify  # noqa: E402
from uio_pipes.tools.reports.inspect import inspect  # noqa: E402


def written(path: Path, cuts: Any) -> Path:
    CutSet.from_cuts(cuts).to_file(path)
    return path


def reading(path: Path, **options: Any) -> list[Any]:
    samples, skipped = each_alone(uio.from_lhotse_cuts(path, **options).decode_audio())
    assert skipped == {}
    return samples


def a_cut(root: Path, number: int = 0, seconds: float = 2.0, channels: int = 1) -> Any:
    samples = np.random.default_rng(number).standard_normal((round(16_000 * seconds), channels)).astype(np.float32) / 8
    soundfile.write(root / f"r{number}.wav", samples, 16_000)
    cut = Recording.from_file(root / f"r{number}.wav").to_cut()
    first = SupervisionSegment(f"s{number}a", cut.recording_id, 0.1, 0.8, text="one", speaker="A", language="en")
    second = SupervisionSegment(f"s{number}b", cut.recording_id, 1.0, 0.5, text="two", speaker="B", language="en")
    second.custom = {"mood": "calm"}
    cut.supervisions = [second, first]
    return cut


def stored(cut: Any, root: Path) -> Any:
    """The cut with an alignment of 40 ms, an embedding, and a second recording."""
    with lhotse.NumpyFilesWriter(root / "arrays") as writer:
        cut.ali = writer.store_array("ali", np.arange(50), frame_shift=0.04, temporal_dim=0, start=0)
        cut.emb = writer.store_array("emb", np.arange(4) / 4)
    cut.target = cut.recording.perturb_volume(0.5)
    return cut


@pytest.mark.parametrize("name", ["cuts.jsonl", "cuts.jsonl.gz"])
def test_audio_text_and_custom_fields_are_lhotses_own(name: str, tmp_path: Path) -> None:
    cuts = cut_set(tmp_path, 7)
    samples = reading(written(tmp_path / name, cuts))
    assert [s["key"] for s in samples] == [cut.id for cut in cuts]
    for sample, cut in zip(samples, cuts, strict=True):
        said = cut.supervisions[0]
        assert (sample["txt"], sample["speaker"], sample["language"]) == (said.text, said.speaker, said.language)
        assert (sample["snr"], sample["start"], sample["end"]) == (cut.snr, cut.start, cut.end)
        np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_audio())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "speed": lambda cut: cut.perturb_speed(0.9),
    "resample": lambda cut: cut.resample(8000),
    "volume": lambda cut: cut.perturb_volume(0.3),
    "resample and speed": lambda cut: cut.resample(8000).perturb_speed(1.1),
    "truncate": lambda cut: cut.truncate(offset=0.30003, duration=0.71239),
}


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_the_manifest_are_made_as_lhotse_makes_them(change: str, part: bool, tmp_path: Path) -> None:
    cut = CHANGES[change](a_cut(tmp_path))
    cut = cut.truncate(offset=0.1, duration=0.5) if part else cut
    path = written(tmp_path / "cuts.jsonl", [cut])
    (sample,) = reading(path)
    assert sample["sample_rate"] == cut.sampling_rate
    np.testing.assert_allclose(sample["wav"].numpy(), cut.load_audio(), atol=1e-6)


@pytest.mark.parametrize("change", ["perturb_tempo", "normalize_loudness"])
def test_other_changes_are_counted_by_name(change: str, tmp_path: Path) -> None:
    cut = getattr(a_cut(tmp_path), change)(0.9)
    path = written(tmp_path / "cuts.jsonl", [cut, a_cut(tmp_path, 1)])
    samples, skipped = each_alone(uio.from_lhotse_cuts(path))
    assert (len(samples), skipped) == (1, {"unsupported_transform": 1})


def test_the_plan_is_the_length_of_the_audio(tmp_path: Path) -> None:
    cuts = [change(a_cut(tmp_path, number)) for number, change in enumerate(CHANGES.values())]
    path = written(tmp_path / "cuts.jsonl", cuts)
    (planned,) = plan_lanes(uio.from_lhotse_cuts(path).decode_audio().batch(1), 1, 0, 0)
    assert list(planned.lengths) == [-(-cut.num_samples * 100 // cut.sampling_rate) for cut in cuts]


def test_channels_and_several_files(tmp_path: Path) -> None:
    stereo = a_cut(tmp_path, 0, channels=2)
    assert isinstance(stereo, MultiCut)
    right = MonoCut("right", 0.5, 1.0, 1, recording=stereo.recording)
    parts = [a_cut(tmp_path, number).recording for number in (1, 2)]
    sources = [AudioSource("file", [at], part.sources[0].source) for at, part in enumerate(parts)]
    both = MultiCut("both", 0, 2.0, [0, 1], recording=Recording("two", sources, 16_000, 32_000, 2.0, [0, 1]))
    path = written(tmp_path / "cuts.jsonl", [stereo, right, both])
    samples, skipped = each_alone(uio.from_lhotse_cuts(path).decode_audio(channel=None))
    assert skipped == {}
    for sample, cut in zip(samples, [stereo, right, both], strict=True):
        np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_audio())
    one, *_ = reading(path)
    np.testing.assert_array_equal(one["wav"].numpy(), stereo.load_audio()[:1])


WRITERS = {"numpy_files": lhotse.NumpyFilesWriter, "lilcom_files": lhotse.LilcomFilesWriter}
WRITERS["lilcom_chunky"] = lhotse.LilcomChunkyWriter


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("part", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_features(form: str, part: bool, tmp_path: Path) -> None:
    cuts = CutSet.from_cuts([a_cut(tmp_path, number, seconds=12.3) for number in range(2)])
    cuts = cuts.compute_and_store_features(lhotse.Fbank(), tmp_path / "feats", storage_type=WRITERS[form])
    made = [cut.truncate(offset=6.3, duration=3.3) if part else cut for cut in cuts]
    path = written(tmp_path / "cuts.jsonl", made)
    samples, skipped = each_alone(uio.from_lhotse_cuts(path, fields={"wav": None}).sort(2))
    assert skipped == {}
    for cut in made:
        (found,) = (s["feat"] for s in samples if s["key"] == cut.id)
        np.testing.assert_array_equal(found, cut.load_features())


def test_kaldis_arks_and_forms_that_are_not_read(tmp_path: Path) -> None:
    import kaldiio

    matrix = np.random.default_rng(1).standard_normal((200, 8)).astype(np.float32)
    kaldiio.save_ark(str(tmp_path / "f.ark"), {"utt": matrix}, scp=str(tmp_path / "feats.scp"))
    features = {"type": "fbank", "num_frames": 200, "num_features": 8, "frame_shift": 0.01, "sampling_rate": 16_000}
    features |= {"start": 0, "duration": 2.0, "storage_type": "kaldiio", "storage_path": str(tmp_path / "feats.scp")}
    whole = {"id": "a", "start": 0, "duration": 2.0, "channel": 0, "type": "MonoCut"}
    cuts = [whole | {"features": features | {"storage_key": "utt"}}]
    cuts += [whole | {"id": "b", "start": 0.5, "duration": 1.0, "features": cuts[0]["features"]}]
    cuts += [whole | {"id": "c", "features": features | {"storage_key": "utt", "storage_type": "numpy_hdf5"}}]
    cuts += [whole | {"id": "d", "features": features | {"storage_key": "nobody"}}]
    samples, skipped = each_alone(uio.from_lhotse_cuts(write_cuts(tmp_path / "cuts.jsonl", cuts)).sort(1))
    assert skipped == {"unsupported_features": 1, "bad_features": 1}
    np.testing.assert_array_equal(samples[0]["feat"], matrix)
    np.testing.assert_array_equal(samples[1]["feat"], matrix[50:150])


def test_custom_arrays_and_recordings_are_cut_along(tmp_path: Path) -> None:
    cut = stored(a_cut(tmp_path), tmp_path).truncate(offset=0.4, duration=1.0)
    cut.apart, cut.apart_unaligned = cut.recording.perturb_volume(2.0), True
    (sample,) = reading(written(tmp_path / "cuts.jsonl", [cut]))
    np.testing.assert_array_equal(sample["ali"], cut.load_ali())
    np.testing.assert_array_equal(sample["emb"], cut.load_emb())
    for name in ("target", "apart"):
        found, rate = soundfile.read(io.BytesIO(sample[name]), dtype="float32")
        np.testing.assert_array_equal(found, cut.load_custom(name)[0])
        assert rate == 16_000


def test_custom_fields_do_not_change_what_our_names_mean(tmp_path: Path) -> None:
    cut = a_cut(tmp_path)
    cut.custom = {"duration": 0.1, "start": 1.5, "key": "other", "txt": "spoken", "mood": "loud"}
    (sample,) = reading(written(tmp_path / "cuts.jsonl", [cut]))
    assert (sample["key"], sample["txt"], sample["custom_txt"], sample["mood"]) == (cut.id, "one two", "spoken", "loud")
    np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_audio())


def test_a_custom_recording_may_be_the_audio(tmp_path: Path) -> None:
    cut = stored(a_cut(tmp_path), tmp_path).truncate(offset=0.4, duration=1.0)
    path = written(tmp_path / "cuts.jsonl", [cut])
    (sample,) = reading(path, fields={"wav": "target", "noisy": "recording", "ali": None})
    np.testing.assert_array_equal(sample["wav"].numpy(), cut.load_target())
    np.testing.assert_array_equal(soundfile.read(io.BytesIO(sample["noisy"]), dtype="float32")[0], cut.load_audio()[0])
    assert "ali" not in sample
    with pytest.raises(uio.PipelineError, match="fields must map our"):
        uio.from_lhotse_cuts(path, fields={"wav": 3})  # type: ignore[dict-item]


def test_a_name_in_fields_that_a_cut_lacks_is_named(tmp_path: Path) -> None:
    cut, other = stored(a_cut(tmp_path), tmp_path), a_cut(tmp_path, 1)
    none = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [cut]), fields={"wav": "targett"})
    with pytest.raises(uio.ListError, match=r"asks for 'targett', .*if target is meant"):
        list(uio.Loader(none))
    other.targett = other.recording
    graph = uio.from_lhotse_cuts(written(tmp_path / "two.jsonl", [cut, other]), fields={"wav": "targett"})
    with pytest.raises(uio.DataError, match=r"no targett, which `fields` names; it has .*target.*recording") as caught:
        list(uio.Loader(graph, failures="raise"))
    assert (caught.value.reason, caught.value.member) == ("missing_audio", "r0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shar", [False, True])
def test_supervisions_are_joined_or_become_utterances_of_their_own(shar: bool, tmp_path: Path) -> None:
    cut = stored(a_cut(tmp_path), tmp_path).truncate(offset=0.04)
    source = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [cut]))
    if shar:
        fields = {"recording": "wav", "ali": "numpy", "emb": "lilcom", "target": "wav"}
        source = uio.from_lhotse_shar(write_shar(tmp_path / "shar", CutSet.from_cuts([cut]), **fields))
        (cut,) = CutSet.from_shar(in_dir=tmp_path / "shar")
    ((joined,), _) = each_alone(source)
    assert (joined["txt"], joined.get("speaker"), joined["language"]) == ("one two", None, "en")
    samples, skipped = each_alone(source.segments(field="supervisions").decode_audio())
    assert skipped == {}
    assert [(s["key"], s["txt"], s["speaker"], s.get("mood")) for s in samples] == [
        ("s0a", "one", "A", None),
        ("s0b", "two", "B", "calm"),
    ]
    theirs = sorted(cut.trim_to_supervisions(keep_overlapping=False), key=lambda one: one.start)
    for sample, own in zip(samples, theirs, strict=True):
        np.testing.assert_array_equal(sample["wav"].numpy(), own.load_audio())
        np.testing.assert_array_equal(sample["ali"], own.load_ali())
        target, _ = soundfile.read(io.BytesIO(sample["target"]), dtype="float32")
        np.testing.assert_array_equal(target, own.load_target()[0])
        np.testing.assert_array_equal(sample["emb"], own.load_emb())


def telephone(root: Path) -> Any:
    """A cut of two channels: a supervision of each, and one of both."""
    cut = a_cut(root, channels=2)
    cut.supervisions[0].channel, cut.supervisions[1].channel = 1, 0
    cut.supervisions.append(SupervisionSegment("s0c", cut.recording_id, 1.6, 0.3, channel=[0, 1], text="three"))
    return cut


@pytest.mark.parametrize("shar", [False, True])
def test_a_supervision_has_the_audio_of_its_channel(shar: bool, tmp_path: Path) -> None:
    cut = telephone(tmp_path).truncate(offset=0.04)
    source = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [cut]))
    if shar:
        source = uio.from_lhotse_shar(write_shar(tmp_path / "shar", CutSet.from_cuts([cut]), recording="wav"))
        (cut,) = CutSet.from_shar(in_dir=tmp_path / "shar")
    graph = source.segments(field="supervisions")
    samples, skipped = each_alone(graph.decode_audio(channel=None))
    theirs = {own.id: own for own in cut.trim_to_supervisions(keep_overlapping=False)}
    assert skipped == {}
    assert [len(sample["wav"]) for sample in samples] == [1, 1, 2]
    for sample in samples:
        np.testing.assert_array_equal(sample["wav"].numpy(), theirs[sample["key"]].load_audio())
    joined, _ = each_alone(source.segments(field="supervisions", merge_seconds=5, cut_seconds=(0.3, 5)).decode_audio())
    assert [sample["txt"] for sample in joined] == ["one", "two", "three"], "only those of one channel are joined"
    np.testing.assert_array_equal(joined[1]["wav"].numpy(), theirs["s0b"].load_audio())


def test_a_supervision_of_a_channel_that_is_not_there_is_counted(tmp_path: Path) -> None:
    stereo, mono = telephone(tmp_path), a_cut(tmp_path, 1)
    stereo.supervisions[0].channel = mono.supervisions[0].channel = 3
    graph = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [stereo, mono])).segments(field="supervisions")
    samples, skipped = each_alone(graph)
    assert ([sample["txt"] for sample in samples], skipped) == (["one", "three", "one", "two"], {"no_such_channel": 1})


def test_a_shar_of_one_channel_is_the_channel_of_its_supervisions(tmp_path: Path) -> None:
    """Lhotse stores the one channel that a cut is of, whose number supervisions still name."""
    cut = a_cut(tmp_path)
    cut.supervisions[0].channel = 1
    folder = write_shar(tmp_path / "shar", CutSet.from_cuts([cut]), recording="wav")
    samples, skipped = each_alone(uio.from_lhotse_shar(folder).segments(field="supervisions").decode_audio())
    assert ([sample["txt"] for sample in samples], skipped) == (["one", "two"], {})


def test_of_supervisions_that_overlap_the_edge_what_lies_inside_is_cut_out(tmp_path: Path) -> None:
    windows = list(CutSet.from_cuts([a_cut(tmp_path)]).cut_into_windows(0.6))
    path = written(tmp_path / "cuts.jsonl", windows)
    samples, skipped = each_alone(uio.from_lhotse_cuts(path).segments(field="supervisions").decode_audio())
    assert skipped == {"missing_segments": 1}, "of the window without speech"
    assert [(s["key"], round(s["start"], 6), round(s["end"], 6)) for s in samples] == [
        ("s0a", 0.1, 0.6), ("s0a", 0.6, 0.9), ("s0b", 1.0, 1.2), ("s0b", 1.2, 1.5),
    ]  # fmt: skip
    whole, _ = soundfile.read(tmp_path / "r0.wav", dtype="float32")
    for sample in samples:
        first, last = round(sample["start"] * 16_000), round(sample["end"] * 16_000)
        np.testing.assert_array_equal(sample["wav"][0].numpy(), whole[first:last])


def test_supervisions_outside_of_the_cut_are_counted(tmp_path: Path) -> None:
    cut = a_cut(tmp_path)
    for name, begin, duration in (("before", -2.0, 1.5), ("after", 2.0, 0.5), ("rounded", -1e-9, 2.0 + 1e-7)):
        cut.supervisions.append(SupervisionSegment(name, cut.recording_id, begin, duration, text=name))
    graph = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [cut])).segments(field="supervisions")
    samples, skipped = each_alone(graph.decode_audio())
    assert ([sample["key"] for sample in samples], skipped) == (["rounded", "s0a", "s0b"], {"bad_segment": 2})
    assert samples[0]["wav"].shape == (1, 32_000)
    with pytest.raises(uio.DataError, match=r"-2.0 to -0.5 s, lies outside of the 2.000 s of the cut"):
        list(uio.Loader(graph, failures="raise"))


def test_what_is_left_out_of_a_shar_is_not_opened(tmp_path: Path) -> None:
    cuts = CutSet.from_cuts([stored(a_cut(tmp_path, n), tmp_path) for n in range(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = write_shar(tmp_path / "shar", cuts, recording="wav", target="wav", ali="numpy")
    (folder / "target.000000.tar").write_bytes(b"damaged")
    samples, skipped = each_alone(uio.from_lhotse_shar(folder, fields={"target": None, "alignment": "ali"}))
    assert (len(samples), skipped) == (3, {})
    assert "target" not in samples[0]
    np.testing.assert_array_equal(samples[0]["alignment"], np.arange(50))
    (folder / "recording.000000.tar").unlink()
    assert each_alone(uio.from_lhotse_shar(folder, fields={"wav": None, "target": None}))[1] == {"missing_audio": 3}


def test_what_cannot_be_read_is_counted_by_name(tmp_path: Path) -> None:
    plain = a_cut(tmp_path)
    mixed = plain.append(plain)
    piped = MonoCut("piped", 0, 2.0, 0, recording=Recording(
        "p", [AudioSource("command", [0], f"cat {tmp_path}/r0.wav")], 16_000, 32_000, 2.0))  # fmt: skip
    bare = MonoCut("bare", 0, 2.0, 0)
    path = written(tmp_path / "cuts.jsonl", [plain, plain.pad(3.0), mixed, piped, bare])
    samples, skipped = each_alone(uio.from_lhotse_cuts(path).decode_audio())
    assert [s["key"] for s in samples] == [plain.id]
    assert skipped == {"unsupported_cut": 2, "pipe_not_allowed": 1, "missing_audio": 1}
    samples, skipped = each_alone(uio.from_lhotse_cuts(path, allow_pipes=True).decode_audio())
    assert [s["key"] for s in samples] == [plain.id, "piped"]
    np.testing.assert_array_equal(samples[1]["wav"].numpy(), plain.load_audio())


def test_other_manifests_are_refused_with_the_remedy(tmp_path: Path) -> None:
    cut = a_cut(tmp_path)
    lhotse.RecordingSet.from_recordings([cut.recording]).to_file(tmp_path / "recordings.jsonl")
    lhotse.SupervisionSet.from_segments(cut.supervisions).to_file(tmp_path / "supervisions.jsonl.gz")
    (tmp_path / "raw.jsonl").write_text('{"key": "a", "wav": "a.wav", "txt": ""}\n')
    for name, words in (
        ("recordings.jsonl", "CutSet.from_manifests"),
        ("supervisions.jsonl.gz", "CutSet.from_manifests"),
        ("raw.jsonl", "no.* cut"),
    ):
        with pytest.raises(uio.ListError, match=words):
            each_alone(uio.from_lhotse_cuts(tmp_path / name))


def longer(cut: dict[str, Any], seconds: float, rate: int) -> dict[str, Any]:
    """The cut of a recording that is said to have this length and rate."""
    said = {"num_samples": round(seconds * rate), "sampling_rate": rate, "duration": seconds}
    return cut | {"start": 0, "duration": seconds, "recording": cut["recording"] | said}


def test_damaged_lines_cost_one_cut_each(tmp_path: Path) -> None:
    good = [cut_of(tmp_path, number) for number in range(8)]
    path = write_cuts(tmp_path / "cuts.jsonl", good)
    lines = path.read_text().splitlines()
    changed = [
        lines[0],
        lines[1][:-40],
        "x" + lines[2],
        json.dumps(good[3] | {"start": -1}),
        json.dumps(good[4] | {"recording": {"id": "r"}}),
        json.dumps(good[5] | {"channel": 7}),
        json.dumps(longer(good[6], 2.0, RATE)),
        json.dumps(longer(good[7], good[7]["duration"], 2 * RATE)),
    ]
    path.write_text("\n".join(changed) + "\n")
    samples, skipped = each_alone(uio.from_lhotse_cuts(path).decode_audio())
    assert [s["key"] for s in samples] == ["C000"]
    assert skipped == {
        "bad_line": 2,
        "bad_segment": 1,
        "bad_cut": 1,
        "no_such_channel": 1,
        "length_mismatch": 1,
        "wrong_rate": 1,
    }
    *_, report = verify([str(path)])
    assert sum(report.reasons.values()) == 7


def test_memory_and_urls(tmp_path: Path) -> None:

    cut = cut_of(tmp_path, 1)
    data = Path(cut["recording"]["sources"][0]["source"]).read_bytes()
    fsspec.filesystem("memory").pipe("/cuts/a.wav", data)
    kinds = {"memory": base64.b64encode(data).decode(), "url": "memory://cuts/a.wav"}
    made = []
    for kind, source in kinds.items():
        recording = cut["recording"] | {"sources": [{"type": kind, "channels": [0], "source": source}]}
        made.append(cut | {"id": kind, "recording": recording})
    samples = reading(write_cuts(tmp_path / "cuts.jsonl.gz", [cut, *made]))
    assert len(samples) == 3
    for sample in samples:
        np.testing.assert_array_equal(sample["wav"].numpy()[0], soundfile.read(io.BytesIO(data), dtype="float32")[0])


# Sharded manifests, and the commands


def test_globs_and_braces(tmp_path: Path) -> None:
    for shard in range(3):
        write_cuts(tmp_path / f"cuts.{shard}.jsonl.gz", [cut_of(tmp_path, 4 * shard + n) for n in range(4)])
    keys = [f"C{n:03d}" for n in range(12)]
    assert [s["key"] for s in reading(tmp_path / "cuts.*.jsonl.gz")] == keys
    assert [s["key"] for s in reading(tmp_path / "cuts.{0..1}.jsonl.gz")] == keys[:8]
    assert sorted(s["key"] for s in reading(tmp_path / "cuts.*.jsonl.gz", shuffle=True)) == keys
    assert len(uio.Loader(uio.from_lhotse_cuts(tmp_path / "cuts.*.jsonl.gz").batch(5), lanes=1)) == 3


def test_inspect_and_verify_know_cuts_and_shars(tmp_path: Path) -> None:
    cuts = [cut_of(tmp_path, number) for number in range(6)]
    path = write_cuts(tmp_path / "cuts.jsonl.gz", cuts)
    folder = write_shar(tmp_path / "shar", CutSet.from_file(path), recording="wav")
    with pytest.raises(uio.ListError, match=r"name that, .*cuts\.jsonl\.gz"):
        recognize(str(tmp_path))
    for given, kind in ((path, "Lhotse's cuts"), (folder, "Lhotse Shar")):
        known = recognize(str(given))
        assert known.kind == kind
        found = inspect(known.pipeline)
        assert (found.utterances, len(found.speakers), found.failures) == (6, 3, {})
        *_, report = verify([str(given)])
        assert (report.utterances, report.findings) == (6, [])
    Path(cuts[2]["recording"]["sources"][0]["source"]).write_bytes(corpus.wav_bytes(2, 8000, (2.0, 2.1)))
    *_, report = verify([str(path)])
    assert report.reasons == {"length_mismatch": 1}


# The other way: uio convert --to cuts


def same(path: str, source: uio.Pipeline) -> None:
    """Lhotse reads from these cuts what ``source`` delivers, and so do we."""
    ours = list(uio.Loader(source.decode_audio()))
    theirs = list(CutSet.from_file(path))
    again = reading(Path(path))
    assert len(ours) == len(theirs) == len(again) > 0
    for sample, cut, back in zip(ours, theirs, again, strict=True):
        assert sample["key"] == cut.id == back["key"]
        assert sample["txt"] == cut.supervisions[0].text == back["txt"]
        assert sample.get("speaker") == cut.supervisions[0].speaker == back.get("speaker")
        np.testing.assert_array_equal(cut.load_audio(), sample["wav"].numpy())
        np.testing.assert_array_equal(back["wav"].numpy(), sample["wav"].numpy())


def test_shards_raw_lists_and_touchdatasets_become_cuts(
    plain_corpus: corpus.Corpus, raw_corpus: corpus.Corpus, tmp_path: Path
) -> None:
    touch = touchdataset.write(tmp_path / "touch", touchdataset.speech(5))
    sources = {
        str(plain_corpus.list): uio.from_shard_list(plain_corpus.list),
        str(raw_corpus.list): uio.from_raw_list(raw_corpus.list),
        str(touch): uio.from_indexed(touch),
    }
    for number, (path, pipeline) in enumerate(sources.items()):
        done = convert(path, str(tmp_path / f"out{number}"), to="cuts", per_part=4)
        assert done.data_list.endswith("cuts.jsonl.gz")
        same(done.data_list, pipeline)
        wavs = list((tmp_path / f"out{number}").rglob("*.wav"))
        assert len(wavs) == (0 if number == 1 else done.utterances), "files are referred to, other audio is written"


def test_packed_supervisions_are_those_of_the_channel_that_is_kept(tmp_path: Path) -> None:
    cut = telephone(tmp_path)
    path = written(tmp_path / "cuts.jsonl", [MonoCut("right", 0, 2.0, 1, cut.supervisions, recording=cut.recording)])
    done = convert(str(path), str(tmp_path / "indexed"))
    samples, skipped = each_alone(uio.from_indexed(done.data_list).segments(field="supervisions").decode_audio())
    theirs = soundfile.read(tmp_path / "r0.wav", always_2d=True)[0][:, 1]
    assert ([sample["txt"] for sample in samples], skipped) == (["two", "three"], {}), "one is of the other channel"
    for sample in samples:
        first, last = round(sample["start"] * 16_000), round(sample["end"] * 16_000)
        np.testing.assert_allclose(sample["wav"][0].numpy(), theirs[first:last], atol=2**-15)


def test_cuts_become_cuts_again_with_all_that_lhotse_knows(tmp_path: Path) -> None:
    cut = a_cut(tmp_path).perturb_speed(0.9).truncate(offset=0.2)
    cut.custom = {"snr": 3.5}
    done = convert(str(written(tmp_path / "cuts.jsonl", [cut])), str(tmp_path / "out"), to="cuts")
    (again,) = CutSet.from_file(done.data_list)
    assert again.supervisions == cut.supervisions
    assert again.snr == 3.5
    np.testing.assert_array_equal(again.load_audio(), cut.load_audio())
    other = convert(done.data_list, str(tmp_path / "indexed"))
    (sample,) = uio.Loader(uio.from_indexed(other.data_list).decode_audio())
    np.testing.assert_allclose(sample["wav"].numpy(), cut.load_audio(), atol=2**-15)


def test_nemos_files_stay_where_they_are(tmp_path: Path) -> None:
    manifest = nemo_data.plain(tmp_path / "nemo")
    done = convert(str(manifest), str(tmp_path / "out"), to="cuts")
    same(done.data_list, uio.from_nemo(manifest))
    assert list((tmp_path / "out").rglob("*.wav")) == []


@pytest.mark.parametrize("resample", [None, 8000])
def test_utterances_without_text_become_cuts_without_supervisions(resample: int | None, tmp_path: Path) -> None:
    silent, named = a_cut(tmp_path).drop_supervisions(), a_cut(tmp_path, 1)
    named.supervisions = [SupervisionSegment("s", named.recording_id, 0, named.duration, speaker="A")]
    path = written(tmp_path / "cuts.jsonl", [silent, named])
    raw = tmp_path / "nemo" / "m.json"
    nemo_data.write(nemo_data.plain(tmp_path / "nemo").with_name(raw.name), [{"audio_filepath": "wavs/u1.wav"}])
    for source, said in ((path, [[], ["A"]]), (raw, [[]])):
        done = convert(str(source), str(tmp_path / f"out-{source.stem}"), to="cuts", resample=resample)
        made = list(CutSet.from_file(done.data_list))
        assert [[one.speaker for one in cut.supervisions] for cut in made] == said
        assert all(cut.load_audio().shape == (1, cut.num_samples) for cut in made)
    with pytest.raises(uio.ListError, match="2 missing_text"):
        convert(str(path), str(tmp_path / "raw"), to="raw")


@pytest.mark.parametrize("to", ["indexed", "shards", "raw", "cuts"])
def test_what_has_no_place_in_the_new_form_is_not_read(to: Any, tmp_path: Path) -> None:
    cut = stored(a_cut(tmp_path), tmp_path)
    cut.short = a_cut(tmp_path, 1, seconds=1.0).recording
    path = written(tmp_path / "cuts.jsonl", [cut])
    for file in (tmp_path / "arrays").rglob("*.npy"):
        file.unlink()
    done = convert(str(path), str(tmp_path / "out"), to=to, form="flac")
    assert (done.utterances, done.failed) == (1, {})
    assert {"ali", "emb", "short", "target"} <= set(done.dropped)


def test_a_custom_recording_shorter_than_its_cut_is_named(tmp_path: Path) -> None:
    cut = a_cut(tmp_path)
    cut.short = a_cut(tmp_path, 1, seconds=1.0).recording
    graph = uio.from_lhotse_cuts(written(tmp_path / "cuts.jsonl", [cut])).decode_audio()
    with pytest.raises(uio.DataError, match=r"the field short: the recording r1: .* 1\.000 s"):
        list(uio.Loader(graph, failures="raise"))


def test_a_killed_conversion_to_cuts_goes_on(tmp_path: Path) -> None:
    source = touchdataset.write(tmp_path / "touch", touchdataset.speech(40))
    out = tmp_path / "out"
    process = start("convert", source, out, "--to", "cuts", "--per-part", 1, "--jobs", 1)
    try:
        for _ in range(600):
            if len(list(out.glob("pack.journal/cuts-*.json"))) >= 3 or process.poll() is not None:
                break
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    there = {path: path.stat().st_mtime_ns for path in out.glob("pack.journal/cuts-*.json")}
    done = convert(str(source), str(out), to="cuts", per_part=1)
    assert {path: path.stat().st_mtime_ns for path in there} == there, "what was there is not made again"
    same(done.data_list, uio.from_indexed(source))
