"""``timeline``: every form as its tool writes it, moved with the audio to the sample, and damaged byte by byte."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from contract import Case, check_cuts, record
from helpers_bad import counted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.errors import DataError
from uio_pipes.formats.tables.events import event_of, rows_in

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
    {"id": "s1", "recording_id": "a", "start": 0.75, "duration": 0.5, "channel": 1, "text": "you there", "speaker": "y"},
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
    (tmp_path / name).write_text(text)
    timeline, skipped = only(listed(tmp_path).timeline(name.replace(name.partition(".")[0], "{'" + name[:-len(name.partition(".")[2]) - 1] + "'}")))
    assert (list(timeline.events), skipped) == (events, {})
    assert timeline.conditions == (MOSHI["text_conditions"] if name == "moshi.json" else None)
    if name.startswith("a."):
        timeline, skipped = only(listed(tmp_path).timeline(tmp_path / name))
        assert (list(timeline.events), skipped) == (events, {})
