"""Corpora with one transcript per part or folder, and audio in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uio_pipes.formats.tables.description import Table
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.parquet.source import from_parquet
from uio_pipes.sources.table.source import from_table

THREE = {"train": "train", "dev": "dev", "test": "test"}

_TRANSCRIPT = Table("data_aishell/transcript/aishell_transcript_v0.8.txt", separator=" ", header=("key", "words"))
_OF_SPEAKERS = Layout("as downloaded, extracted once", from_table, {
    "table": _TRANSCRIPT, "absent": "not_kept",
    "archives": ["data_aishell/wav/{key | m/(S\\d+)W/}.tar.gz", "data_aishell/wav/S*.tar.gz"],
    "match": "path | m/(?:^|\\/){part}\\/.*?([^\\/]*)\\.wav$/",
}, there="data_aishell/wav/S*.tar.gz")  # fmt: skip
AISHELL1 = Corpus(
    "aishell1",
    title="AISHELL-1: Mandarin, read",
    hours="178",
    download="data_aishell.tgz from https://www.openslr.org/33; it and the archives of speakers in it may stay",
    parts=THREE,
    train=("train",),
    fields={"key": "key", "wav": "key", "txt": "words | s/ //", "speaker": "key | m/(S\\d+)W/"},
    layouts=(
        Layout("extracted", from_table, {
            "table": _TRANSCRIPT, "archives": "data_aishell/wav/{part}/*/*.wav", "match": "path | stem",
            "absent": "not_kept",
        }, there="data_aishell/wav/{part}"),
        _OF_SPEAKERS,
        _OF_SPEAKERS.downloaded("data_aishell.tgz", "key", _OF_SPEAKERS.arguments["match"]),
    ),
    notes="One transcript is of all parts: lines without audio in a part are counted as `not_kept`, audio without a "
    "line as `no_row`. Blanks between words are removed; full-width letters stay (`normalize_text` makes them narrow).",
)  # fmt: skip

AISHELL2 = Corpus(
    "aishell2",
    title="AISHELL-2: Mandarin, read",
    hours="1,000",
    download="AISHELL-2 from https://www.aishelltech.com/aishell_2 (for universities, on request)",
    parts={"train": "data", "dev": "dev", "test": "test"},
    train=("train",),
    options={"device": ("iOS", "Android", "Mic")},
    fields={"key": "key", "txt": "txt", "speaker": "key | [1:6]"},
    layouts=(
        Layout("extracted", from_table, {
            "table": Table("AISHELL-2/{device}/{part}/trans.txt", separator="\t", header=("key", "txt")),
            "fields": {"wav": "wav/{key | [1:6]}/{key}.wav"},
        }),
    ),
    notes="`device` is that of the recordings; only dev and test have others than iOS.",
)  # fmt: skip

_CONTENT = Layout("extracted", from_table, {
    "table": Table("{part}/content.txt", separator="\t", header=("file", "words")),
    "fields": {"wav": "wav/{file | [:7]}/{file}"},
})  # fmt: skip
AISHELL3 = Corpus(
    "aishell3",
    title="AISHELL-3: Mandarin, for speech synthesis, 218 speakers",
    hours="85",
    download="data_aishell3.tgz from https://www.openslr.org/93",
    parts={"train": "train", "test": "test"},
    train=("train",),
    fields={"key": "file | stem", "txt": "words | s/(\\S+)\\s+\\S+\\s*/\\1/", "speaker": "file | [:7]"},
    columns=("words (characters and pinyin in turn)",),
    layouts=(_CONTENT, _CONTENT.downloaded("data_aishell3.tgz", "file", "path | m/^{part}\\/wav\\/.*?([^\\/]*)$/")),
)

_CLEAN = ("train-clean-100", "train-clean-360", "train-other-500")
_TESTS = ("dev-clean", "dev-other", "test-clean", "test-other")
_CHAPTERS = Layout("extracted", from_table, {
    "table": Table("LibriSpeech/{part}/*/*/*.trans.txt", separator=" ", header=("key", "txt")),
    "fields": {"wav": "{key}.flac"},
})  # fmt: skip
LIBRISPEECH = Corpus(
    "librispeech",
    title="LibriSpeech: English, read from books",
    hours="960 for training",
    download="PART.tar.gz from https://www.openslr.org/12",
    parts={part: part for part in (*_CLEAN, *_TESTS)},
    train=_CLEAN,
    fields={"key": "key", "txt": "txt", "speaker": "key | m/^\\d+/", "lang": "'en'"},
    layouts=(_CHAPTERS, _CHAPTERS.downloaded("{part}.tar.gz", "key")),
)

_LIBRITTS = ("key", "original", "normalized")
LIBRITTS = Corpus(
    "libritts",
    title="LibriTTS and LibriTTS-R: English at 24 kHz, read from books, cased, for speech synthesis",
    hours="585",
    download="PART.tar.gz from https://www.openslr.org/60 (LibriTTS-R: /141, named with _)",
    parts={part: {"part": part, "tar": part.replace("-", "_")} for part in (*_CLEAN, *_TESTS)},
    train=_CLEAN,
    fields={"key": "key", "txt": "normalized", "speaker": "key | m/^\\d+/", "lang": "'en'"},
    columns=("original",),
    layouts=tuple(
        layout
        for root, tar in (("LibriTTS", "{part}"), ("LibriTTS_R", "{tar}"))
        for extracted in [
            Layout("extracted", from_table, {
                "table": Table(f"{root}/{{part}}/*/*/*.trans.tsv", header=_LIBRITTS), "fields": {"wav": "{key}.wav"},
            })
        ]
        for layout in (extracted, extracted.downloaded(f"{tar}.tar.gz", "key"))
    ),
    notes="Files of macOS (`._*`) never count. One recording is known to be damaged (1092_134562_000013_000004).",
)  # fmt: skip


def _mls(kind: str, suffix: str) -> Iterator[Layout]:
    """Yield the layouts of a form of the audio: of the three parts, and of those for limited supervision."""
    folder, book = f"mls_{{lang}}{kind}", "{key | m/^\\d+/}/{key | m/_(\\d+)_/}"
    wav = f"mls_{{chosen.lang}}{kind}/{{chosen.own}}/audio/{book}/{{key}}.{suffix}"
    texts = Table(f"{folder}/{{split}}/transcripts.txt", separator="\t", header=("key", "txt"))
    join = replace(texts, paths=f"{folder}/train/transcripts.txt", on="key")
    limited = Table(f"{folder}/train/limited_supervision/{{hours}}/handles.txt", header=("key",), join=join)
    for table in (texts, limited):
        extracted = Layout("extracted", from_table, {"table": table, "root": "", "fields": {"wav": wav}})
        yield extracted
        yield extracted.downloaded(f"{folder}.tar.gz", "key", "path | m/\\/{own}\\/audio\\/.*?([^\\/]*)\\.\\w+$/")


MLS = Corpus(
    "mls",
    title="Multilingual LibriSpeech: eight languages, read from books",
    hours="50,000 (English 44,659)",
    download="mls_LANG_opus.tar.gz or mls_LANG.tar.gz from https://www.openslr.org/94, or "
    "facebook/multilingual_librispeech from https://huggingface.co/datasets",
    parts={
        **{part: {"part": part, "own": part, "split": part} for part in THREE},
        "9_hours": {"part": "9_hours", "own": "train", "hours": "9hr"},
        "1_hours": {"part": "1_hours", "own": "train", "hours": "1hr/*"},
    },
    train=("train",),
    nested=(("train", "9_hours", "1_hours"),),
    options={"lang": ()},
    fields={"key": "key", "txt": "txt", "speaker": "key | m/^\\d+/", "lang": "chosen.lang"},
    layouts=(
        *_mls("_opus", "opus"),
        *_mls("", "flac"),
        Layout("Parquet, from Hugging Face", from_parquet, {"paths": "{lang}/{part}-*.parquet", "fields": {
            "key": "id", "wav": "audio", "txt": "transcript", "speaker": "speaker_id", "duration": "audio_duration",
            "lang": "table | folder | name",
        }}),
    ),
    notes="`9_hours` and `1_hours` are the parts of train for limited supervision.",
)  # fmt: skip

_METADATA = Layout("extracted", from_table, {
    "table": Table(
        "LJSpeech-1.1/metadata.csv", separator="|", header=("key", "original", "normalized"), quoted=False
    ),
    "fields": {"wav": "wavs/{key}.wav"},
})  # fmt: skip
LJSPEECH = Corpus(
    "ljspeech",
    title="LJ Speech: English at 22.05 kHz, one speaker, for speech synthesis",
    hours="24",
    download="LJSpeech-1.1.tar.bz2 from https://keithito.com/LJ-Speech-Dataset",
    parts={"train": "train"},
    train=("train",),
    fields={"key": "key", "txt": "normalized", "lang": "'en'"},
    columns=("original",),
    layouts=(_METADATA, _METADATA.downloaded("LJSpeech-1.1.tar.bz2", "key")),
)

SPGISPEECH = Corpus(
    "spgispeech",
    title="SPGISpeech: English, calls of companies with investors, cased and punctuated",
    hours="5,000",
    download="train.csv, val.csv and spgispeech/ from https://datasets.kensho.com/datasets/spgispeech",
    parts={"train": "train", "val": "val"},
    train=("train",),
    fields={
        "key": "wav_filename | s/\\.wav$//", "wav": "spgispeech/{table | stem}/{wav_filename}", "txt": "transcript",
        "speaker": "wav_filename | folder", "lang": "'en'",
    },
    layouts=(
        Layout("extracted", from_table, {
            "table": Table("{part}.csv", separator="|", quoted=False), "root": "",
        }, there="spgispeech/{part}"),
        Layout("extracted, audio beside the tables", from_table, {
            "table": Table("{part}.csv", separator="|", quoted=False), "root": "",
            "fields": {"wav": "{table | stem}/{wav_filename}"},
        }, there="{part}"),
    ),
    notes="Names of files recur from call to call: keys are HASH/N. The call stands for its speaker.",
)  # fmt: skip

_KSPON_TEXT = (
    # noises, spelling, stutters and the slash behind a filler
    "text | s/\\b[bonlu]\\/ ?// | s/\\(([^()]*)\\)\\/\\([^()]*\\)/\\1/ | s/[*+\\/]// | strip"
)
KSPONSPEECH = Corpus(
    "ksponspeech",
    title="KsponSpeech: Korean, spontaneous",
    hours="969",
    download="KsponSpeech_01 … 05, KsponSpeech_eval and the .trn files from https://aihub.or.kr",
    parts={"train": "train", "dev": "dev", "eval_clean": "eval_clean", "eval_other": "eval_other"},
    train=("train",),
    fields={
        "key": "path | stem", "txt": _KSPON_TEXT, "encoding": "'s16le'", "sample_rate": "'16000'", "lang": "'ko'",
    },
    columns=("text (as written)",),
    layouts=(
        Layout("extracted", from_table, {
            "table": Table("{part}.trn", separator=" :: ", header=("path", "text")), "root": "",
            "fields": {"wav": "path"}, "drop": {_KSPON_TEXT: "\\s*"},
        }, there="KsponSpeech_eval"),
        Layout("extracted, eval beside the others", from_table, {
            "table": Table("{part}.trn", separator=" :: ", header=("path", "text")), "root": "",
            "fields": {"wav": "path | s/^KsponSpeech_eval\\///"}, "drop": {_KSPON_TEXT: "\\s*"},
        }),
    ),
    notes="Samples without a header. Marks of noises, fillers and stutters are removed from `txt`; of "
    "(spelling)/(pronunciation) it has the spelling.",
)  # fmt: skip

_KE_TEXT = "txt | s/<SPOKEN_NOISE>// | strip"
_KE = ("train_phase1", "train_phase2", "dev_phase1", "dev_phase2", "test")
KESPEECH = Corpus(
    "kespeech",
    title="KeSpeech: Mandarin and eight of its dialects, read",
    hours="1,542",
    download="KeSpeech from https://github.com/KeSpeech/KeSpeech (on request)",
    parts={part: part for part in _KE},
    train=_KE[:2],
    fields={"key": "key", "wav": "path", "txt": _KE_TEXT, "speaker": "speaker"},
    columns=("subdialect",),
    layouts=(
        Layout("extracted", from_table, {
            "table": Table(
                "Tasks/ASR/{part}/text", separator=" ", header=("key", "txt"),
                join=(
                    Table("Tasks/ASR/{part}/wav.scp", separator=" ", header=("key", "path"), on="key"),
                    Table("Tasks/ASR/{part}/utt2spk", separator=" ", header=("key", "speaker"), on="key"),
                    Table("Tasks/ASR/{part}/utt2subdialect", separator=" ", header=("key", "subdialect"), on="key"),
                ),
            ),
            "root": "", "drop": {_KE_TEXT: "\\s*"},
        }),
    ),
)  # fmt: skip

CARDS = (
    AISHELL1, AISHELL2, AISHELL3, LIBRISPEECH, LIBRITTS, MLS, LJSPEECH, SPGISPEECH, KSPONSPEECH, KESPEECH
)  # fmt: skip
