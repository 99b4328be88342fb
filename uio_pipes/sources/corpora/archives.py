"""Corpora of tars with a separate table, or with a JSON for each utterance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from uio_pipes.formats.tables.description import Table
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.corpora.transcripts import THREE
from uio_pipes.sources.lists import from_shard_list
from uio_pipes.sources.table.source import from_table

_GIGA2 = Table("data/{lang}/{part}.tsv", header=("key", "txt"))
GIGASPEECH2 = Corpus(
    "gigaspeech2",
    title="GigaSpeech 2: Thai, Indonesian, Vietnamese from YouTube",
    hours="30,000 raw, 22,000 refined",
    download="data/LANG of speechcolab/gigaspeech2 from https://huggingface.co/datasets",
    parts={
        **{name: {"part": f"train_{name}", "tars": "train/*", "folder": "train"} for name in ("refined", "raw")},
        **{name: {"part": name, "tars": name} for name in ("dev", "test")},
    },
    train=("refined",),
    nested=(("raw", "refined"),),
    options={"lang": ()},
    fields={"key": "key", "wav": "key", "txt": "txt", "lang": "chosen.lang"},
    layouts=(
        Layout("as downloaded", from_table, {
            "table": _GIGA2, "match": "path | stem", "archives": [
                "data/{chosen.lang}/{chosen.folder}/{key | m/^\\d+/}.tar.gz", "data/{chosen.lang}/{chosen.tars}.tar.gz",
            ],
        }, there="data/{lang}/{tars}.tar.gz"),
        Layout("extracted", from_table, {
            "table": _GIGA2, "fields": {"wav": "{table | stem | m/^[a-z]+/}/{key | s/-[^-]*$// | s/-/\\//}/{key}.wav"},
        }),
    ),
    notes="`raw` has all utterances of the archives, `refined` some, with other texts: the others count as `no_row`.",
)  # fmt: skip

_FLEURS = Table(
    "data/{lang}/{part}.tsv",
    header=("id", "file", "raw", "normalized", "characters", "samples", "gender"),
    quoted=False,
)
FLEURS = Corpus(
    "fleurs",
    title="FLEURS: 102 languages, the same sentences, read",
    hours="1,400",
    download="data/LANG of google/fleurs from https://huggingface.co/datasets",
    parts=THREE,
    train=("train",),
    options={"lang": ()},
    fields={
        "key": "file | stem", "wav": "file", "txt": "normalized", "duration": "samples | / 16000",
        "lang": "chosen.lang",
    },
    columns=("id", "raw", "characters", "gender"),
    layouts=(
        Layout("as downloaded", from_table, {
            "table": _FLEURS, "archives": "data/{chosen.lang}/audio/{table | stem}.tar.gz", "match": "path | name",
        }, there="data/{lang}/audio/{part}.tar.gz"),
        Layout("extracted", from_table, {"table": _FLEURS, "fields": {"wav": "audio/{table | stem}/{file}"}}),
    ),
    notes="Several speakers read each sentence: keys are names of files, `id` is that of the sentence.",
)  # fmt: skip

_HF = {
    "table": Table("data/{lang}/asr_{part}.tsv"), "match": "path | stem", "keep": {"normalized_text": ".+"},
    "fields": {"key": "id", "wav": "id", "txt": "normalized_text", "lang": "chosen.lang"},
}  # fmt: skip
_HF_TARS, _HF_FILES = "data/{lang}/{part}/*.tar.gz", "data/{lang}/{part}/*/*.wav"
VOXPOPULI = Corpus(
    "voxpopuli",
    title="VoxPopuli: sessions of the European Parliament in 16 languages",
    hours="1,800 with texts",
    download="data/LANG of facebook/voxpopuli from https://huggingface.co/datasets, or by the tools of "
    "https://github.com/facebookresearch/voxpopuli",
    parts=THREE,
    train=("train",),
    options={"lang": ()},
    fields={"speaker": "speaker_id"},
    columns=("raw_text or original_text", "gender", "is_gold_transcript", "accent"),
    layouts=(
        Layout("as downloaded from Hugging Face", from_table, {**_HF, "archives": _HF_TARS}, there=_HF_TARS),
        Layout("from Hugging Face, extracted", from_table, {**_HF, "archives": _HF_FILES}, there=_HF_FILES),
        Layout("original", from_table, {
            "table": Table("annotations/asr/asr_{lang}.tsv.gz", separator="|", quoted=False),
            "root": "raw_audios/original", "keep": {"split": "{part}", "normed_text": ".+"},
            "fields": {
                "key": "{session_id}-{id_}", "wav": "{session_id | [:4]}/{session_id}_original.ogg",
                "txt": "normed_text", "intervals": "vad", "lang": "chosen.lang",
            },
        }),
    ),
    notes="Rows without a normalized text count as `not_kept`. Original utterances join the intervals of `vad`.",
)  # fmt: skip

_SIZES = ("tiny", "small", "medium", "large", "all")
_REAZON = Table("v2-tsv/{part}.tsv", header=("path", "txt"), quoted=False)
REAZONSPEECH = Corpus(
    "reazonspeech",
    title="ReazonSpeech 2: Japanese television",
    hours="35,000 (all), 8.5 (tiny)",
    download="v2 and v2-tsv of reazon-research/reazonspeech from https://huggingface.co/datasets: tars 000 for tiny, "
    "000-00b small, 000-073 medium, 000-242 large, 000-fff all",
    parts={size: size for size in _SIZES},
    train=_SIZES[::-1],
    nested=(_SIZES[::-1],),
    fields={"key": "path | stem", "wav": "path", "txt": "txt", "lang": "'ja'"},
    layouts=(
        Layout("as downloaded", from_table, {
            "table": _REAZON, "archives": "v2/{path | m/^[^\\/]+/}.tar",
        }, there="v2/*.tar"),
        Layout("extracted", from_table, {"table": _REAZON, "root": "v2"}),
    ),
    notes="Each size is a part of the next one: by default the largest that is there is read.",
)  # fmt: skip

_YODAS = Table("data/{lang}/text/*.json", expand="text")
YODAS2 = Corpus(
    "yodas2",
    title="YODAS2: YouTube in 149 languages, whole videos at 24 kHz",
    hours="422,000",
    download="data/LANG of espnet/yodas2 from https://huggingface.co/datasets (LANG as en000: 000 has captions by "
    "people, 100 and more automatic ones)",
    parts={"train": "train"},
    train=("train",),
    options={"lang": ()},
    fields={
        "key": "key", "wav": "audio_id", "txt": "text", "start": "key | m/-(\\d+)-\\d+$/ | cs",
        "end": "key | m/-(\\d+)$/ | cs", "lang": "chosen.lang",
    },
    layouts=(
        Layout("as downloaded", from_table, {
            "table": _YODAS, "archives": "data/{chosen.lang}/audio/{table | stem}.tar.gz", "match": "path | stem",
        }, there="data/{lang}/audio/*.tar.gz"),
        Layout("extracted", from_table, {
            "table": _YODAS, "archives": "data/{lang}/audio/**/*.wav", "fields": {"wav": "{chosen.lang}/{audio_id}"},
            "match": "{path | m/.*data\\/([^\\/]+)\\/audio\\//}/{path | stem}",  # the same video in two languages
        }),
    ),
    notes="Times are in 1/100 s, as the keys have them.",
)  # fmt: skip

_TURN = {
    "key": "{table | stem}-{asr_number}-{startInMs}", "wav": "table | stem", "txt": "labels.txt",
    "speaker": "{table | stem}-{asr_number}", "start": "startInMs | ms", "end": "endInMs | ms",
    "channel": "asr_number", "lang": "LID",
}  # fmt: skip


def from_duplexconv(
    *, table: Table | list[Table], unit: str, fields: Mapping[str, str], stream: bool | None = None, **options: Any
) -> Pipeline:
    """Start a pipeline from turns, or from whole dialogues with the ``timeline`` of their turns."""
    options |= {"match": "path | stem", "stream": stream}
    tables = table if isinstance(table, list) else [table]
    if unit == "turns":
        turns = [replace(one, expand="asr") for one in tables]
        return from_table(turns, keep={"labels.txt": ".+"}, fields=fields, **options)
    given = {name: expression for name, expression in fields.items() if _TURN.get(name) != expression}
    own = {"key": "table | stem", "wav": "table | stem", "asr": "asr", **given}
    return from_table(tables, fields=own, **options).timeline(field="asr")


DUPLEXCONV = Corpus(
    "duplexconv",
    title="DuplexConv: Chinese conversations of 2 to 4 speakers, a channel each, at 48 kHz",
    hours="6,000",
    download="the folders Edu, edu and none_Edu of DuplexConv from https://huggingface.co/datasets",
    parts={"Edu": "Edu", "edu": "edu", "none_Edu": "none_Edu"},
    train=("Edu", "edu", "none_Edu"),
    options={"unit": ("turns", "dialogues")},
    columns=("state", "snr", "mos", "labels"),
    layouts=(
        Layout("as downloaded", from_duplexconv, {
            "table": Table("*.json", within="{part}/jsons.tar.gz"), "archives": "{part}/audios/*.tar",
            "unit": "{unit}", "fields": _TURN,
        }),
        Layout("extracted", from_duplexconv, {
            "table": Table("{part}/jsons/*.json"), "archives": "{part}/audios/*.wav",
            "unit": "{unit}", "fields": _TURN,
        }),
    ),
    notes="The channel is the number of the speaker's track. Turns without a text (redacted ones, too) count as "
    "`not_kept`. Names of two folders differ only in case: keep them apart. With `unit=\"dialogues\"`, utterances are "
    "whole dialogues with all their channels: `key`, `wav`, and the `timeline` of their turns.",
)  # fmt: skip

_FIRST = Table("{first}{lang}/*_B*.jsonl")
_FIRST_FIELDS = {
    "key": "id", "wav": "id", "txt": "text | strip", "speaker": "speaker", "lang": "language", "duration": "duration"
}  # fmt: skip
EMILIA = Corpus(
    "emilia",
    title="Emilia and Emilia-YODAS: six languages from the Internet, at 24 kHz",
    hours="101,000 and 114,000",
    download="Emilia/LANG or Emilia-YODAS/LANG of amphion/Emilia-Dataset from https://huggingface.co/datasets",
    parts={"Emilia": {"part": "Emilia", "first": ""}, "Emilia-YODAS": "Emilia-YODAS"},
    train=("Emilia", "Emilia-YODAS"),
    options={"lang": ()},
    fields={
        "txt": "json:text | strip", "speaker": "json:speaker", "lang": "json:language", "duration": "json:duration",
    },
    columns=("json:dnsmos", "json:phone_count (Emilia-YODAS)"),
    layouts=(
        Layout("as downloaded", from_shard_list, {"paths": "{part}/{lang}/*.tar"}),
        Layout("first release, as downloaded", from_table, {
            "table": _FIRST, "fields": _FIRST_FIELDS, "match": "path | stem",
            "archives": "{id | m/^[A-Z]+/}/{id | m/^[A-Z]+_B\\d+/}.tar.gz",
        }, there="{first}{lang}/*_B*.tar.gz"),
        Layout("first release, extracted", from_table, {
            "table": _FIRST, "fields": {**_FIRST_FIELDS, "wav": "wav"},
        }, there="{first}{lang}/*_B*.jsonl"),
    ),
)  # fmt: skip

CARDS = (GIGASPEECH2, FLEURS, VOXPOPULI, REAZONSPEECH, YODAS2, DUPLEXCONV, EMILIA)
