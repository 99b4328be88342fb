"""``timeline``: every form as its tool writes it, moved with the audio to the sample, and damaged byte by byte."""

import json
import math
from pathlib import Path
from typing import Any

import corpora_small
import corpus
import numpy as np
import pytest
import soundfile
import torch
from command import uio as uio_command
from contract import Case, check_cuts, record
from helpers_bad import counted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.formats.tables.events import event_of, rows_in
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.io.access import PLAIN
from uio_pipes.run.lane_runner import items_of
from uio_pipes.stages.utterances import timeline as module

RATE = 8000
HI, THERE = Event(0.5, 0.8, "hi", "x", 0), Event(0.75, 1.25, "you there", "y", 1)


def plain(*names: str) -> list[Event]:
    """Both events without these attributes, which a form does not have."""
    none = {"text": "", "speaker": "", "channel": None}
    return [event._replace(**{name: none[name] for name in names}) for event in (HI, THERE)]


WHISPERX = {
    "segments": [
        {
            "start": 0.5, "end": 1.25, "text": " hi you there", "speaker": "x", "words": [
                {"word": "hi", "start": 0.5, "end": 0.8, "score": 0.98, "speaker": "x"},
                {"word": "you there", "start": 0.75, "end": 1.25, "score": 0.5, "speaker": "y"},
            ],
        }
    ],
    "word_segments": [], "language": "en",
}  # fmt: skip
STABLE = {
    "text": "hi you there", "language": "en", "segments": [
        {"id": 0, "seek": 0, "start": 0.5, "end": 1.25, "text": " hi you there", "tokens": [1, 2], "words": [
            {"word": " hi", "start": 0.5, "end": 0.8, "probability": 0.9, "tokens": [1]},
            {"word": " you there", "start": 0.75, "end": 1.25, "probability": 0.9, "tokens": [2]},
        ]}
    ],
}  # fmt: skip
LHOTSE = [
    {
        "id": "s0", "recording_id": "a", "start": 0.5, "duration": 0.3, "channel": 0, "text": "hi", "speaker": "x",
        "alignment": {"word": [["hi", 0.5, 0.3, 0.9]]},
    },
    {"id": "s1", "recording_id": "a", "start": 0.75, "duration": 0.5, "channel": 1, "text": "you there",
     "speaker": "y"},
]  # fmt: skip
DUPLEX = {
    "nTrack": 2, "timeLenInSec": 2, "asr": [
        [{"startInMs": 500, "endInMs": 800, "labels": {"txt": "hi"}, "speaker": "x"}],
        [{"startInMs": 750, "endInMs": 1250, "labels": {"txt": "you there"}, "speaker": "y"}],
    ],
}  # fmt: skip
CHIME = [
    {"end_time": "0:00:00.80", "start_time": "0:00:00.50", "words": "hi", "speaker": "x", "session_id": "a"},
    {"end_time": "0:00:01.25", "start_time": "0:00:00.75", "words": "you there", "speaker": "y", "session_id": "a"},
]
RTTM = """SPKR-INFO a 1 <NA> <NA> <NA> unknown x <NA> <NA>
SPEAKER a 1 0.500 0.300 <NA> <NA> x <NA> <NA>
NON-SPEECH a 1 0.1 0.2 <NA> noise <NA> <NA>
SPEAKER a 2 0.750 0.500 <NA> <NA> y <NA>
"""
TEXTGRID = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 2
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "x"
        xmin = 0
        xmax = 2
        intervals: size = 2
        intervals [1]:
            xmin = 0
            xmax = 0.5
            text = ""
        intervals [2]:
            xmin = 0.5
            xmax = 0.8
            text = "hi"
    item [2]:
        class = "IntervalTier"
        name = "y"
        xmin = 0
        xmax = 2
        intervals: size = 1
        intervals [1]:
            xmin = 0.75
            xmax = 1.25
            text = "you there"
"""
MFA = TEXTGRID.replace('"x"', '"x - words"').replace('"y"', '"y - words"')
MFA = (
    MFA.replace("size = 2\nitem", "size = 3\nitem")
    + """    item [3]:
        class = "IntervalTier"
        name = "x - phones"
        xmin = 0
        xmax = 2
        intervals: size = 1
        intervals [1]:
            xmin = 0.5
            xmax = 0.8
            text = "HH"
"""
)
MFA_JSON = {
    "start": 0, "end": 2, "tiers": {
        "x - words": {"type": "interval", "entries": [[0.5, 0.8, "hi"]]},
        "x - phones": {"type": "interval", "entries": [[0.5, 0.6, "HH"], [0.6, 0.8, "AY"]]},
        "y - words": {"type": "interval", "entries": [[0.75, 1.25, "you there"]]},
    },
}  # fmt: skip
SRT = "1\n00:00:00,500 --> 00:00:00,800\nhi\n\n2\n00:00:00,750 --> 00:00:01,250\n<i>you</i>\nthere\n"
VTT = """WEBVTT - a title

NOTE made by hand

00:00.500 --> 00:00.800 align:start
<v x>hi

second
00:00:00.750 --> 00:00:01.250
<v.loud y>you &lrm;there</v>
"""
MOSHI: dict[str, Any] = {
    "alignments": [["hi", [0.5, 0.8], "SPEAKER_MAIN"], ["you there", [0.75, 1.25], "SPEAKER_OTHER"]],
    "text_conditions": {"style": "calm"},
}
NAMED = [HI._replace(speaker="SPEAKER_MAIN"), THERE._replace(speaker="SPEAKER_OTHER")]
FORMS: dict[str, tuple[str, list[Event]]] = {
    "a.rttm": (RTTM, plain("text")),
    "a.ctm": (";; by hand\na 1 0.50 0.30 hi 0.99\na B 0.75 0.50 you\n",
              [HI._replace(speaker=""), Event(0.75, 1.25, "you", "", 1)]),
    "a.stm": ("a 1 x 0.50 0.80 <o,f0,male> hi\na 2 y 0.75 1.25 you there\n", [HI, THERE]),
    "a.TextGrid": (TEXTGRID, plain("channel")),
    "mfa.TextGrid": (MFA, plain("channel")),
    "mfa.json": (json.dumps(MFA_JSON), plain("channel")),
    "a.srt": (SRT, plain("speaker", "channel")),
    "a.vtt": (VTT.replace("&lrm;", ""), plain("channel")),
    "moshi.json": (json.dumps(MOSHI), NAMED),
    "whisperx.json": (json.dumps(WHISPERX), plain("channel")),
    "stable.json": (json.dumps(STABLE), plain("speaker", "channel")),
    "lhotse.json": (json.dumps({"supervisions": LHOTSE}), [HI, THERE]),
    "duplex.json": (json.dumps(DUPLEX), [HI, THERE]),
    "chime.json": (json.dumps(CHIME), plain("channel")),
    "a.jsonl": ("".join(json.dumps(one) + "\n" for one in CHIME), plain("channel")),
    "a.csv": ("recording,start,end,text,speaker,channel\na,0.5,0.8,hi,x,0\na,0.75,1.25,you there,y,1\n", [HI, THERE]),
}  # fmt: skip


def clicks(path: Path, starts: list[float], seconds: float = 2.0, channels: int = 2) -> None:
    """Silence with a click where each event starts."""
    wav = np.zeros((round(seconds * RATE), channels), np.float32)
    for start in starts:
        wav[round(start * RATE)] = 0.9
    soundfile.write(path, wav, RATE, subtype="FLOAT")


def listed(folder: Path, key: str = "a", **fields: Any) -> uio.Pipeline:
    """One recording of two seconds, in two channels."""
    if not (folder / f"{key}.wav").exists():
        clicks(folder / f"{key}.wav", [0.5, 0.75])
    return uio.from_raw_list([{"key": key, "wav": str(folder / f"{key}.wav"), "txt": "", **fields}])


def only(pipeline: uio.Pipeline) -> tuple[Timeline, dict[str, int]]:
    samples, stats = counted(pipeline)
    (sample,) = samples
    return sample["timeline"], dict(stats.skipped)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, tmp_path: Path) -> None:
    """A file beside the recording, and a table of several; the order of the events is that of their starts."""
    text, events = FORMS[name]
    suffix = name.partition(".")[2]
    (tmp_path / f"a.{suffix}").write_text(text)
    timeline, skipped = only(listed(tmp_path).timeline(f"{{stem}}.{suffix}"))
    assert (list(timeline.events), skipped) == (events, {})
    assert timeline.conditions == (MOSHI["text_conditions"] if name == "moshi.json" else None)
    timeline, skipped = only(listed(tmp_path).timeline(tmp_path / f"*.{suffix}"))
    assert (list(timeline.events), skipped) == (events, {})


@pytest.mark.parametrize("name", [name for name in FORMS if name.endswith(".json")])
def test_of_a_field(name: str, tmp_path: Path) -> None:
    """What the row has, its text, or the path of a file; relative to the beginning of the utterance, unless a file."""
    text, events = FORMS[name]
    (tmp_path / "b.json").write_text(text)
    for value in (json.loads(text), text, str(tmp_path / "b.json")):
        assert list(only(listed(tmp_path, said=value).timeline(field="said"))[0].events) == events
    part = only(listed(tmp_path, said=json.loads(text), start=0.25, end=1.0).timeline(field="said"))[0]
    assert ([e.start for e in part.events], part.offset) == ([0.5], 0.25)  # the other one begins after its end


def test_segments_instead_of_words(tmp_path: Path) -> None:
    value = WHISPERX | {"segments": [*WHISPERX["segments"], {"start": 1.5, "end": 1.75, "text": "yes", "speaker": "y"}]}
    words = only(listed(tmp_path, said=value).timeline(field="said"))[0].events
    whole = only(listed(tmp_path, said=value).timeline(field="said", words=False))[0].events
    assert [event.text for event in words] == ["hi", "you there", "yes"]
    assert [event.text for event in whole] == ["hi you there", "yes"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in value["segments"]))
    for told, events in (({}, words), ({"words": False}, whole)):  # segments as the rows of a table
        assert only(listed(tmp_path).timeline(tmp_path / "a.jsonl", **told))[0].events == events


def test_members_of_shards(tmp_path: Path) -> None:
    clicks(tmp_path / "a.wav", [0.5, 0.75])
    members = [("a.txt", b""), ("a.wav", (tmp_path / "a.wav").read_bytes()), ("a.rttm", RTTM.encode())]
    (tmp_path / "s.tar").write_bytes(corpus._tar(members))
    pipeline = uio.from_shard_list(str(tmp_path / "s.tar"))
    assert list(only(pipeline.timeline(field="rttm"))[0].events) == plain("text")
    assert list(only(listed(tmp_path, rttm=RTTM).timeline(field="rttm"))[0].events) == plain("text")  # its content


# Tables of many recordings


def test_recordings_that_nobody_annotated(tmp_path: Path) -> None:
    """Without a line in the RTTM nobody speaks; it is noted, unless the UEM says that it was annotated."""
    (tmp_path / "all.rttm").write_text(RTTM)
    (tmp_path / "all.uem").write_text("a 1 0 1.5\na 2 1.0 1.75\nb 1 0.25 2\n")
    rows = [listed(tmp_path, key).stages[0].paths[0] for key in "abc"]
    samples, stats = counted(uio.from_raw_list([json.loads(row) for row in rows]).timeline(tmp_path / "all.rttm"))
    assert [len(sample["timeline"].events) for sample in samples] == [2, 0, 0]
    assert (stats.skipped, stats.failures) == ({"not_annotated": 2}, 0)
    given = {"source": tmp_path / "all.rttm", "uem": tmp_path / "all.uem"}
    samples, stats = counted(uio.from_raw_list([json.loads(row) for row in rows]).timeline(**given))
    assert [sample["timeline"].known for sample in samples] == [((0.0, 1.75),), ((0.25, 2.0),), ()]
    assert stats.skipped == {"not_annotated": 1}


def test_nemo_names_rttm(tmp_path: Path) -> None:
    clicks(tmp_path / "a.wav", [])
    (tmp_path / "other.rttm").write_text(RTTM + "SPEAKER b 1 0 1 <NA> <NA> z <NA> <NA>\n")
    row = {"audio_filepath": "a.wav", "offset": 0.5, "duration": 1.0, "rttm_filepath": "other.rttm"}
    lines = [json.dumps({**row, "key": key}) + "\n" for key in "ab"]
    (tmp_path / "m.json").write_text("".join(lines))
    samples, _ = counted(uio.from_nemo(tmp_path / "m.json").timeline(field="rttm_filepath"))
    found = [[(event.start, event.speaker) for event in sample["timeline"].events] for sample in samples]
    assert found == [[(0.0, "x"), (0.25, "y")], [(-0.5, "z")]]


def test_a_file_that_many_rows_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all lanes of a process; what it does not hold has no events, and is counted."""
    names = [f"r{n}" for n in range(40)]
    lines = [f"SPEAKER {name} 1 {n / 100} 0.5 <NA> <NA> who{n} <NA> <NA>\n" for n, name in enumerate(names)]
    (tmp_path / "all.rttm").write_text(";; by hand\n" + "".join(lines))
    read = list[Any]()
    monkeypatch.setattr(module, "files_of", lambda paths, access: [read.append(paths), *files_of(paths, access)][1:])
    clicks(tmp_path / "a.wav", [])
    rows = [{"wav": str(tmp_path / "a.wav"), "txt": "", "said": str(tmp_path / "all.rttm")}] * 2
    keyed = [{**row, "key": key} for key in [*names, "x", "y"] for row in rows]
    samples, stats = counted(uio.from_raw_list(keyed).timeline(field="said"), lanes=4)
    found = {(s["key"], *(f"{e.start} {e.speaker}" for e in s["timeline"].events)) for s in samples}
    assert found == {*((name, f"{n / 100} who{n}") for n, name in enumerate(names)), ("x",), ("y",)}
    assert (len(read), dict(stats.skipped)) == (1, {"not_annotated": 4})


@pytest.mark.parametrize("suffix", ["rttm", "ctm", "stm", "uem"])
def test_comments_of_nist_are_no_rows(suffix: str, tmp_path: Path) -> None:
    """Beside the recording, in a table of several, and in one that begins a pipeline."""
    lines = {"rttm": RTTM, "ctm": FORMS["a.ctm"][0], "stm": FORMS["a.stm"][0], "uem": "a 1 0 1\n"}[suffix].splitlines()
    text = "".join(f";; {n} comment 1 2 3 x\n{line}\n;;\n" for n, line in enumerate(lines))
    (tmp_path / f"a.{suffix}").write_text(text)
    rows = list(open_rows([uio.Table(tmp_path / f"a.{suffix}")], PLAIN).scan())
    kept = [line for line in lines if not line.startswith(";;")]
    assert [row["recording"] for row in rows] == ["a"] * len(kept)
    given_: list[Any] = [tmp_path / f"a.{suffix}", f"{{stem}}.{suffix}"]
    for source in given_ if suffix != "uem" else []:
        timeline, skipped = only(listed(tmp_path).timeline(source))
        assert ([event.start for event in timeline.events], skipped) == ([0.5, 0.75], {})


@pytest.mark.parametrize(
    ("cue", "said"),
    [
        ("<v Ann>hi</v> <v Bob>you</v>", [("Ann", "hi"), ("Bob", "you")]),
        ("<v Ann>hi\n<v.loud Bob &amp; Co>you <i>there</i>", [("Ann", "hi"), ("Bob & Co", "you there")]),
        ("who? <v Ann>me</v> and?", [("", "who?"), ("Ann", "me"), ("", "and?")]),
        ("<v Ann></v>", [("", "")]),
        ("- hi\n- you", [("", "- hi - you")]),
    ],
)
@pytest.mark.parametrize("suffix", ["vtt", "srt"])
def test_several_voices_of_a_cue(cue: str, said: list[Any], suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_text(f"00:00:00.500 --> 00:00:00.800\n{cue}\n")
    for source in (f"{{stem}}.{suffix}", tmp_path / f"a.{suffix}"):
        timeline, skipped = only(listed(tmp_path).timeline(source))
        assert [(event.speaker, event.text) for event in timeline.events] == said
        assert ({event[:2] for event in timeline.events}, skipped) == ({(0.5, 0.8)}, {})


def test_supervisions_reach_over_the_edges_of_a_cut(tmp_path: Path) -> None:
    said = [LHOTSE[0] | {"start": -0.5, "duration": 1.0, "alignment": None}, LHOTSE[1] | {"duration": 5.0}]
    timeline, skipped = only(listed(tmp_path, supervisions=said).timeline(field="supervisions"))
    assert ([(e.start, e.end) for e in timeline.events], skipped) == ([(-0.5, 0.5), (0.75, 5.75)], {})
    _, skipped = only(listed(tmp_path, said=said).timeline(field="said"))
    assert skipped == {"negative_event": 1, "late_event": 1}
    outside = {"start": -1.0, "duration": 2.0, "alignment": {"word": [["gone", -1.0, 0.5], ["hi", 0.25, 0.5]]}}
    timeline, skipped = only(listed(tmp_path, supervisions=[outside]).timeline(field="supervisions"))
    assert ([e.text for e in timeline.events], skipped) == (["hi"], {})


@pytest.mark.parametrize("channel", [0, 1])
def test_channels_are_those_of_the_recording(channel: int, tmp_path: Path) -> None:
    """Of audio that is one channel of a recording, too: a cut of Lhotse's, a row of a table."""
    clicks(tmp_path / "a.wav", [0.5, 0.75])
    source = {"type": "file", "channels": [0, 1], "source": str(tmp_path / "a.wav")}
    recording = {"id": "a", "sources": [source], "sampling_rate": RATE, "num_samples": 2 * RATE, "duration": 2.0}
    cut = {"id": "c", "start": 0, "duration": 2.0, "channel": channel, "supervisions": [LHOTSE[channel]],
           "recording": recording, "type": "MonoCut"}  # fmt: skip
    (tmp_path / "cuts.jsonl").write_text(json.dumps(cut))
    cuts = uio.from_lhotse_cuts(tmp_path / "cuts.jsonl").timeline(field="supervisions")
    assert only(cuts) == (Timeline(((HI, THERE)[channel],), offset=0.0), {})
    (tmp_path / "rows.tsv").write_text(f"key\twav\tchannel\na\ta.wav\t{channel}\n")
    (tmp_path / "a.rttm").write_text(RTTM)
    table = uio.from_table(tmp_path / "rows.tsv").timeline("{stem}.rttm")
    for pipeline in (table, uio.from_lhotse_cuts(tmp_path / "cuts.jsonl").timeline(tmp_path / "a.rttm")):
        timeline, skipped = only(pipeline)
        assert (list(timeline.events), skipped) == (plain("text"), {})


def test_tables_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    """A state refuses another table; a folder that has moved is the same."""
    found = []
    for folder, text in (("x", RTTM), ("y", RTTM), ("z", RTTM.replace("0.750", "0.751"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "all.rttm").write_text(text)
        pipeline = listed(tmp_path).timeline(tmp_path / folder / "all.rttm")
        found.append((pipeline.stages[-1].content(), pipeline.stages[-1].describe(stable=True)))
    assert found[0] == found[1] != found[2]


# Moved with the audio

GRID = [0.3 + n * 0.17 for n in range(20)]  # s, rounded to samples below


def heard(wav: np.ndarray) -> list[int]:
    """Where the clicks are: local maxima, since what is resampled rings around them."""
    loud = np.abs(wav)
    peaks = [n for n in np.flatnonzero(loud > 0.3) if loud[n] >= loud[max(0, n - 20) : n + 21].max()]
    return [n for n, after in zip(peaks, [*peaks[1:], 1 << 40], strict=True) if after - n > 20]


def check_clicks(sample: Any) -> int:
    """Each click is where an event starts, within a sample, and the other way round, but for those at an edge."""
    rate, wav = sample["sample_rate"], sample["wav"][0].numpy()
    starts = [event.start * rate for event in sample["timeline"].events]
    found = heard(wav)
    for at in starts:
        assert not 20 < at < len(wav) - 20 or min(abs(at - n) for n in found) <= 1, (at, found)
    for n in found:
        assert not 20 < n < len(wav) - 20 or min(abs(at - n) for at in starts) <= 1, (n, starts)
    return len(found)


MOVES = st.one_of(
    st.tuples(st.just("random_crop"), st.fixed_dictionaries({"max_seconds": st.floats(0.8, 3.0)})),
    st.tuples(st.just("speed_perturb"), st.fixed_dictionaries({"speeds": st.just([0.9, 1.037, 1.1])})),
    st.tuples(st.just("resample"), st.fixed_dictionaries({"resample_rate": st.sampled_from([6000, 11025, 16000])})),
    st.tuples(st.just("concat"), st.fixed_dictionaries({"max_seconds": st.floats(2.0, 9.0)})),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.sampled_from([None, ("all", (0.7, 1.9)), ("random", (1.0, 3.0))]),
    moves=st.lists(MOVES, max_size=4),
    seed=st.integers(0, 99),
)
def test_moves_are_exact(tmp_path: Path, cut: Any, moves: list[Any], seed: int) -> None:
    """After any chain of what cuts, joins, resamples or speeds audio, the clicks are where the timeline says."""
    rows = []
    for key in "abc":
        starts = [round(at * RATE) / RATE for at in GRID]
        if not (tmp_path / f"{key}.wav").exists():
            clicks(tmp_path / f"{key}.wav", starts, 4.0, 1)
        events = [{"start": at, "end": at + 0.5 / RATE} for at in starts]  # too short to be cut in two
        rows.append({"key": key, "wav": str(tmp_path / f"{key}.wav"), "txt": "", "said": events})
    pipeline = uio.from_raw_list(rows).timeline(field="said")
    if cut is not None:
        pipeline = pipeline.segments(of="recording", pick=cut[0], cut_seconds=cut[1])
    pipeline = pipeline.decode_audio()
    for name, given_ in moves:
        pipeline = getattr(pipeline, name)(**given_)
    loader = uio.Loader(pipeline.batch(1), seed=seed)
    samples = [sample for batch in loader for sample in batch]
    assert sum(map(check_clicks, samples)) > 0
    assert loader.stats().failures == 0


def test_crops_of_features(tmp_path: Path) -> None:
    """The same crop of the audio and of its features, at frame n, moves by n times their shift."""
    noise = np.random.default_rng(0).standard_normal(4 * RATE).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", noise / 10, RATE, subtype="FLOAT")
    said = [{"start": at, "end": at + 0.1, "text": str(n)} for n, at in enumerate(GRID)]
    begun = listed(tmp_path, said=said).timeline(field="said").decode_audio()
    for pipeline, frame in ((begun.fbank(8), 0.01), (begun.fbank(8, frame_shift=20.0).stack(3, 2), 0.04)):
        whole, _ = counted(pipeline)
        (cropped,), _ = counted(pipeline.random_crop(max_frames=60))
        first = next(n for n in range(400) if np.array_equal(whole[0]["feat"][n : n + 60], cropped["feat"]))
        at = {event.text: event.start for event in whole[0]["timeline"].events}
        assert cropped["timeline"].events
        for event in cropped["timeline"].events:
            assert math.isclose(event.start, at[event.text] - first * frame, abs_tol=1e-9)
        (trimmed,), _ = counted(pipeline.spec_trim(9))
        assert max(e.start for e in trimmed["timeline"].events) < len(trimmed["feat"]) * frame


def test_precomputed_features_do_not_tell_their_shift(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((300, 4), np.float32))
    row = {"key": "a", "feat": str(tmp_path / "a.npy"), "txt": "", "said": [{"start": 0.5, "end": 1.0}]}
    samples, stats = counted(uio.from_raw_list([row]).timeline(field="said").random_crop(max_frames=9))
    assert (samples, dict(stats.skipped)) == ([], {"no_frame_shift": 1})


def test_joined_features_know_where_their_frames_are(tmp_path: Path) -> None:
    """So do those of parts of which only one has a timeline."""
    items = [{"key": key, "wav": torch.zeros(1, RATE), "sample_rate": RATE, "txt": ""} for key in "ab"]
    items[0]["timeline"] = Timeline.of([Event(0.2, 0.4)])
    joined = uio.from_iterable(items).fbank(8).concat(max_seconds=9)
    ((one,), _) = counted(joined.activity(1).turn_end(silence=0.1))
    assert one["timeline"].known == ((0.0, 0.98),)
    assert one["activity"][:, 0].nonzero().flatten().tolist() == list(range(19, 39))
    assert int((one["turn_end"] == 1).nonzero()[0]) == 39
    (chunk, *_) = list(uio.Loader(joined.chunks(1.0, rows=1).pad()))
    assert chunk["chunk_lengths"].tolist() == [100]


def test_chunks_and_turn_ends_of_stacked_frames() -> None:
    """A frame every 60 ms, whether there is a timeline or not."""
    item = {"key": "a", "wav": torch.zeros(1, 2 * RATE), "sample_rate": RATE, "txt": ""}
    stacked = uio.from_iterable([{**item, "timeline": Timeline.of([Event(0.2, 0.6)])}]).fbank(8).stack(1, 6)
    (batch, *_) = list(uio.Loader(stacked.turn_end().chunks(1.0, rows=1, along=["turn_end"]).pad()))
    assert batch["chunk_lengths"].tolist() == [17]
    assert int((batch["turn_end"][0] == 1).nonzero()[0]) == 10, "whose centre is at 0.6125 s"


def test_a_moment_is_in_one_part() -> None:
    """Also one on the border: a word of no duration may still say that another one speaks."""
    timeline = Timeline((Event(1.0, 1.0, "hm"),))
    assert [len(timeline.cut(start, start + 1.0).events) for start in (0.0, 1.0, 2.0)] == [0, 1, 0]


def test_events_end_where_parts_are_joined() -> None:
    """What reaches over the edge of a part is not heard in the other one."""
    whole = Timeline.joined([(Timeline((HI, THERE)), 0.0, 1.0), (Timeline((HI.moved(0.6), THERE)), 1.0, 2.0)])
    spans = [(round(event.start, 9), round(event.end, 9)) for event in whole.events]
    assert spans == [(0.5, 0.8), (0.75, 1.0), (1.0, 1.2), (1.75, 2.25)]


def test_parts_without_a_timeline_are_unknown() -> None:
    whole = Timeline.joined([(None, 0.0, 2.0), (Timeline((HI,)), 2.0, 3.0), (Timeline((), ((0.5, 9.0),)), 5.0, 1.0)])
    assert whole.events == (HI.moved(-2.0),)
    assert whole.known == ((2.0, 5.0), (5.5, 6.0))
    assert Timeline.joined([(Timeline((HI,), ((0.0, 2.0),)), 0.0, 2.0)]).known is None


# What it costs


def untouched(sample: uio.Sample) -> uio.Sample:
    """Touching the timeline decodes nothing, whatever speed the audio is to have."""
    assert sample["timeline"].events[0].start in (0.5 / 0.5, 0.5)
    assert isinstance(sample.fields["wav"], str)
    return sample


def test_a_touched_timeline_decodes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SRT)
    pipeline = listed(tmp_path).timeline("{stem}.srt").decode_audio().speed_perturb([0.5]).fbank(8).map(untouched)
    assert len(counted(pipeline)[0]) == 1


def test_without_timelines_chains_stay_as_they_were(tmp_path: Path) -> None:
    pipeline = listed(tmp_path).decode_audio().speed_perturb().random_crop(max_seconds=1.0).fbank(8).stack()
    (sample,) = items_of(pipeline.build(Lane(Ledger())))
    assert [link.name for link in sample.chain.links] == [stage.name for stage in pipeline.stages[-5:]]
    assert "timeline" not in sample


def test_caches_keep_timelines(tmp_path: Path) -> None:
    """The audio's results are cached; the timeline is read and moved anew, and may be kept as a field."""
    (tmp_path / "a.srt").write_text(SRT)
    pipeline = listed(tmp_path).timeline("{stem}.srt").decode_audio()
    kept = pipeline.random_crop(max_seconds=1.0).cache(tmp_path / "c", ["wav", "sample_rate", "timeline"])
    for one in (pipeline.fbank(8).cache(tmp_path / "c"), kept):
        first, again = (only(one)[0] for _ in range(2))
        assert first == again
        assert isinstance(first, Timeline)
        assert first.events


def test_resume(tmp_path: Path) -> None:
    """Also in the middle of a recording that is cut."""
    (tmp_path / "all.rttm").write_text(RTTM)
    rows = [{"key": "a", "wav": str(tmp_path / "a.wav"), "txt": ""}] * 6
    clicks(tmp_path / "a.wav", [])
    cut = uio.from_raw_list(rows).timeline(tmp_path / "all.rttm").segments(of="recording", cut_seconds=(0.3, 0.9))
    pipeline = cut.decode_audio(channel=None).speed_perturb().random_crop(max_seconds=0.4).shuffle(5).batch(2)
    recorded = record(Case(pipeline, {"lanes": 2}))
    check_cuts(recorded, range(len(recorded.digests)))


# Damage


def test_damage_is_counted_by_name(tmp_path: Path) -> None:
    said: list[Any] = [
        {"start": 1.0, "end": 1.5, "text": "kept"}, {"start": 0.2, "end": 0.4, "text": "kept, though unsorted"},
        {"start": 1.5, "end": 2.5}, {"start": -1, "end": 0.5}, {"start": float("nan"), "end": 1}, {"word": "no time"},
        {"start": 1.5, "end": 1.2}, {"start": 0, "end": 1, "channel": 2}, "no event",
    ]  # fmt: skip
    timeline, skipped = only(listed(tmp_path, said=said).timeline(field="said"))
    assert [event.text for event in timeline.events] == ["kept, though unsorted", "kept"]
    odd = {"tiers": {"words": {"entries": 5}, "a - words": 5, "b": {"entries": [[0, 1]]}}}
    assert only(listed(tmp_path, said=odd).timeline(field="said"))[1] == {"bad_event": 3}
    assert skipped == {
        "late_event": 1, "negative_event": 1, "untimed_event": 2, "reversed_event": 1, "absent_channel": 1,
        "bad_event": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given_", "fields", "reason"),
    [
        ({"source": "{stem}.nothing.json"}, {}, "missing_timeline"),
        ({"field": "said"}, {}, "missing_timeline"),
        ({"field": "said"}, {"said": {"text": "no list"}}, "bad_timeline"),
        ({"field": "said"}, {"said": "{cut off"}, "bad_timeline"),
        ({"field": "said"}, {"said": {"segments": 5}}, "bad_timeline"),
    ],
)
def test_what_fails(given_: Any, fields: Any, reason: str, tmp_path: Path) -> None:
    samples, stats = counted(listed(tmp_path, **fields).timeline(**given_))
    assert (samples, dict(stats.skipped)) == ([], {reason: 1})


def test_damaged_lines_of_tables_count_for_the_recording_before_them(tmp_path: Path) -> None:
    (tmp_path / "all.rttm").write_text(RTTM.replace("\n", "\ngarbage\nSPEAKER\n", 1))
    (tmp_path / "all.uem").write_text("a 1 0\na 1 2 1\na 1 0 1\n")
    timeline, skipped = only(listed(tmp_path).timeline(tmp_path / "all.rttm", uem=tmp_path / "all.uem"))
    assert (len(timeline.events), timeline.known) == (2, ((0.0, 1.0),))
    assert skipped == {"bad_event": 1, "untimed_event": 2, "reversed_event": 1}


def test_gaps_of_an_stm_are_no_speaker_and_what_is_not_scored_has_no_text(tmp_path: Path) -> None:
    said = "a 1 x 0.5 0.8 <o> hi\na 1 x 1 1.5 <o> ignore_time_segment_in_scoring\na 1 y -1 1 <o> a\na 1 y nan 1 <o> a\n"
    (tmp_path / "all.stm").write_text(f"a 1 inter_segment_gap 0 0.5 <o>\n{said}")
    timeline, skipped = only(listed(tmp_path).timeline(tmp_path / "all.stm"))
    assert [(event.speaker, event.text) for event in timeline.events] == [("x", "hi"), ("x", "")]
    assert skipped == {"negative_event": 1, "untimed_event": 1}


def test_what_ends_late_is_left_out_of_parts_too(tmp_path: Path) -> None:
    (tmp_path / "a.rttm").write_text(RTTM.replace("0.750 0.500", "0.750 9.000"))
    cut = listed(tmp_path).timeline("{stem}.rttm").segments(of="recording", cut_seconds=(0.3, 0.4)).decode_audio()
    samples, stats = counted(cut)
    assert dict(stats.skipped) == {"late_event": 1}
    assert {event.speaker for sample in samples for event in sample["timeline"].events} == {"x"}


def test_damage_is_counted_once_for_all_parts(tmp_path: Path) -> None:
    (tmp_path / "a.rttm").write_text(RTTM.replace("0.750 0.500", "0.750 x"))
    cut = listed(tmp_path).timeline("{stem}.rttm").segments(of="recording", cut_seconds=(0.3, 0.4)).decode_audio()
    assert dict(counted(cut)[1].skipped) == {"untimed_event": 1}


@pytest.mark.parametrize("name", FORMS)
def test_damaged_bytes(name: str) -> None:
    """Cut off or changed at any byte, a file cannot be read, or gives events whose times can be compared; of a file
    that is cut off, all but the last are those of the whole."""
    text, events = FORMS[name]
    data = text.encode()
    for at in range(len(data)):
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]):
            try:
                found = [event_of(row) for row in rows_in(name, changed, words=True)]
            except DataError:
                continue
            made = [one for one in found if isinstance(one, Event)]
            assert all(math.isfinite(e.start) and e.start <= e.end < math.inf for e in made)
            if changed == data[:at]:
                assert made[:-1] == events[: len(made[:-1])]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "give a table or a pattern"),
        ({"source": "a.rttm", "field": "b"}, "give a table or a pattern"),
        ({"source": "{a | nothing}.json"}, "nothing"),
    ],
)
def test_wrong_arguments(given_: Any, message: str) -> None:
    with pytest.raises(uio.PipelineError, match=message):
        uio.from_raw_list("data.list").timeline(**given_)


def test_it_comes_before_what_changes_the_audio() -> None:
    with pytest.raises(uio.PipelineError, match="put timeline before decode_audio"):
        uio.from_raw_list("data.list").decode_audio().timeline("all.rttm")


@pytest.mark.parametrize("downloaded", [True, False])
def test_dialogues_of_duplexconv(downloaded: bool, tmp_path: Path) -> None:
    """Whole dialogues with all their channels, their turns in the channels that they are in; further fields, too."""
    corpora_small.made("duplexconv", tmp_path, downloaded=downloaded)
    begun = uio.from_corpus("duplexconv", tmp_path, part="Edu", unit="dialogues", fields={"seconds": "timeLenInSec"})
    samples, stats = counted(begun.decode_audio(channel=None))
    keyed = sorted((s["key"], len(s["wav"]), [e.channel for e in s["timeline"].events]) for s in samples)
    assert keyed == [(f"Edu--{n:06d}", 2, [0, 1, 0]) for n in (1, 2)]
    assert {event.text for sample in samples for event in sample["timeline"].events} == {"你好0", "你好1", "你好2", ""}
    assert all(sample["seconds"] > 1 and "txt" not in sample for sample in samples)
    assert stats.skipped == {}
    several, _ = counted(uio.from_corpus("duplexconv", tmp_path, unit="dialogues").decode_audio(channel=None))
    assert len(several) == 6


# Lists of moshi-finetune


def dialogues(folder: Path) -> Path:
    (folder / "wavs").mkdir()
    for name, channels in (("a", 2), ("mono", 1), ("alone", 2)):
        clicks(folder / "wavs" / f"{name}.wav", [0.5, 0.75], channels=channels)
        if name != "alone":
            (folder / "wavs" / f"{name}.json").write_text(json.dumps(MOSHI))
    rows = [{"path": f"wavs/{name}.wav", "duration": 2.0} for name in ("a", "mono", "alone")]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "data.jsonl"


def test_moshi(tmp_path: Path) -> None:
    """A missing JSON is a failure, and so is mono where both channels are decoded."""
    samples, stats = counted(uio.from_moshi(dialogues(tmp_path)).decode_audio(channel=[0, 1]))
    assert [(s["key"], s["wav"].shape, list(s["timeline"].events)) for s in samples] == [
        ("wavs/a", (2, 16_000), NAMED),
    ]
    assert samples[0]["timeline"].conditions == {"style": "calm"}
    assert stats.skipped == {"no_such_channel": 1, "absent_channel": 1, "missing_timeline": 1}


def test_words_of_a_channel_that_mono_audio_has_not_got(tmp_path: Path) -> None:
    samples, stats = counted(uio.from_moshi(dialogues(tmp_path)).decode_audio(channel=None))
    assert [len(s["timeline"].events) for s in samples] == [2, 1]
    assert stats.skipped == {"absent_channel": 1, "missing_timeline": 1}


def test_unsorted_words_are_counted_and_sorted(tmp_path: Path) -> None:
    """Only where they are promised to be sorted; all are kept."""
    said = {
        "alignments": [["b", [0.5, 0.6], "x"], ["a", [0.1, 0.2], "x"], ["c", [0.7, 0.8], "x"], ["d", [0.6, 1], "x"]]
    }
    timeline, skipped = only(listed(tmp_path, said=said).timeline(field="said"))
    assert ("".join(event.text for event in timeline.events), skipped) == ("abdc", {"unsorted_event": 2})


def test_inspect_knows_the_list(tmp_path: Path) -> None:
    """By its fields; hours of speech, of overlap and of silence are shown."""
    made = uio_command("inspect", "--json", dialogues(tmp_path))
    seen = json.loads(made.stdout)
    assert seen["parts"][0]["kind"] == "moshi-finetune list"
    hours = {name: round(n * 3600, 3) for name, n in seen["hours_of_speech"].items()}
    assert hours == {"SPEAKER_MAIN": 0.6, "SPEAKER_OTHER": 0.5, "(overlap)": 0.05, "(silence)": 2.95}
    assert seen["failures"] == {"absent_channel": 1, "missing_timeline": 1}


def test_inspect_says_who_speaks_in_a_list(tmp_path: Path) -> None:
    """By a table with a UEM, or by a field: of what is annotated, silence and overlap, too."""
    clicks(tmp_path / "a.wav", [])
    clicks(tmp_path / "b.wav", [])
    (tmp_path / "all.rttm").write_text(RTTM)
    (tmp_path / "all.uem").write_text("a 1 0 1.5\nb 1 1 2\n")
    said = [{"start": 1.5, "end": 2.0, "speaker": "z"}]
    rows = [json.dumps({"key": key, "wav": str(tmp_path / f"{key}.wav"), "txt": "", "said": said}) for key in "ab"]
    (tmp_path / "data.list").write_text("\n".join(rows))

    def hours(*options: object) -> dict[str, float]:
        seen = json.loads(uio_command("inspect", "--json", tmp_path / "data.list", *options).stdout)
        return {name: round(n * 3600, 3) for name, n in seen["hours_of_speech"].items()}

    told = hours("--timeline", tmp_path / "all.rttm", "--uem", tmp_path / "all.uem")
    assert told == {"x": 0.3, "y": 0.5, "(overlap)": 0.05, "(silence)": 1.75}
    assert hours("--timeline", "field:said") == {"z": 1.0, "(silence)": 3.0}
    assert hours() == {}
    failed = uio_command("inspect", tmp_path / "data.list", "--uem", tmp_path / "all.uem")
    assert failed.returncode == 2
    assert "give a table or a pattern" in failed.stderr + failed.stdout
