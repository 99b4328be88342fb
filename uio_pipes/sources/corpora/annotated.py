"""Corpora of recordings described by stm, TextGrid or NXT, and corpora with labels only."""

from __future__ import annotations

from uio_pipes.formats.tables.description import Table
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.corpora.transcripts import THREE
from uio_pipes.sources.table.source import from_table

_SAID = "text | s/\\{[A-Z]+\\}|<unk>// | s/ '/'/ | s/\\s+/ / | strip"
_TALKS = Layout("extracted", from_table, {
    "table": Table("TEDLIUM_release-3/legacy/{part}/stm/*.stm"),
    "drop": {_SAID: "|ignore_time_segment_in_scoring"},
    "fields": {"wav": "../sph/{recording}.sph", "txt": _SAID, "start": "start", "end": "end"},
})  # fmt: skip
TEDLIUM3 = Corpus(
    "tedlium3",
    title="TED-LIUM 3: talks in English",
    hours="452",
    download="TEDLIUM_release-3.tgz from https://www.openslr.org/51",
    parts=THREE,
    train=("train",),
    fields={"speaker": "speaker", "lang": "'en'"},
    columns=("text (as written)",),
    layouts=(
        _TALKS,
        _TALKS.downloaded("TEDLIUM_release-3.tgz", "recording", "path | m/\\/{part}\\/sph\\/([^\\/]*)\\.sph$/"),
    ),
    notes="Noises and `<unk>` are removed from `txt`, and the blank in front of 's. Segments without words, or not to "
    "be scored, count as `dropped`.",
)  # fmt: skip

_TAGGED = "text | s/<[^>]*>|[&`\\\\]// | strip"
_MEETINGS = Layout("extracted", from_table, {
    "table": Table("{part}/TextGrid/*.TextGrid"), "drop": {_TAGGED: "\\s*"},
    "fields": {"wav": "../wav/{recording}.flac"},
})  # fmt: skip
AISHELL4 = Corpus(
    "aishell4",
    title="AISHELL-4: Mandarin meetings, 8 microphones in an array",
    hours="120",
    download="PART.tar.gz from https://www.openslr.org/111",
    parts={part: part for part in ("train_L", "train_M", "train_S", "test")},
    train=("train_L", "train_M", "train_S"),
    options={"channel": ("0", "1", "2", "3", "4", "5", "6", "7")},
    fields={
        "key": "{recording}-{speaker}-{start}", "speaker": "{recording}-{speaker}", "txt": _TAGGED, "start": "start",
        "end": "end", "channel": "'{channel}'",
    },
    columns=("text (with tags)",),
    layouts=(_MEETINGS, _MEETINGS.downloaded("{part}.tar.gz", "recording", "path | m/\\/wav\\/(.*)\\.flac$/")),
    notes="Speakers are known within a recording only, and overlap. Tags are removed from `txt`; segments without "
    "words count as `dropped`. Two TextGrids of the published ones cannot be parsed: `bad_table`.",
)  # fmt: skip

_DEV = "(?:ES2011|IS1008|TS3004)[a-d]|IB40(?:0[1-4]|1[01])"
_TEST = "(?:ES2004|IS1009|TS3003|EN2002)[a-d]"
_NXT = "ami_public_manual_1.6.2"
_FORMS = (
    ("annotations as downloaded", "", f"{_NXT}.zip"),
    ("extracted", f"{_NXT}/", None),
    ("extracted here", "", None),
)
AMI = Corpus(
    "ami",
    title="AMI: meetings in English, by headsets and arrays",
    hours="100",
    download="amicorpus/MEETING/audio and ami_public_manual_1.6.2.zip from https://groups.inf.ed.ac.uk/ami/corpus",
    parts={"train": f"(?!{_DEV}|{_TEST}).*", "dev": _DEV, "test": _TEST},
    train=("train",),
    options={"mic": {"headset": "Headset-{channel}", "mix": "Mix-Headset", "array": "Array1-01"}},
    fields={
        "key": "{recording}-{speaker}-{start}", "wav": "{recording}/audio/{recording}.{mic}.wav", "txt": "text",
        "speaker": "speaker", "start": "start", "end": "end", "channel": "'0'", "lang": "'en'",
    },
    layouts=tuple(
        Layout(form, from_table, {
            "table": Table(f"{below}segments/*.segments.xml", within=archive, format="nxt"), "root": "amicorpus",
            "keep": {"recording": "{part}"}, "drop": {"text": "\\s*"},
        })
        for form, below, archive in _FORMS
    ),
    notes="Parts are those of the full corpus for recognition. `mic` is \"headset\" (each speaker's own), "
    "\"mix\" (of the headsets) or \"array\" (its first microphone); of stereo files the first channel is read. "
    "Segments without words count as `dropped`.",
)  # fmt: skip

WSC_TRAIN = Corpus(
    "wsc_train",
    title="WenetSpeech-Chuan: Sichuan dialects of Chinese, labels of audio that is elsewhere",
    hours="10,000",
    download="WenetSpeech-Chuan.zip from https://github.com/ASLP-lab/WenetSpeech-Chuan; the audio from the addresses "
    "in it, cut, into the folder clips beside it",
    parts={"train": "train"},
    train=("train",),
    fields={
        "key": "wav_utt_id_timestamp", "wav": "wav_utt_id_timestamp_path", "txt": "text", "lang": "'zh'",
        "speaker": "{table | stem}-{spk_num}",
    },
    columns=("text_punc", "confidence", "emotion", "age", "gender", "wvmos_score"),
    layouts=(
        Layout("extracted", from_table, {"table": Table("data*/audio_labels/*.jsonl"), "root": "clips"}),
        Layout("as downloaded", from_table, {
            "table": Table("data*/audio_labels/*.jsonl", within="WenetSpeech-Chuan.zip"), "root": "clips",
        }),
    ),
    notes="Labels whose audio is not there count as `no_audio`.",
)  # fmt: skip

CARDS = (TEDLIUM3, AISHELL4, AMI, WSC_TRAIN)
