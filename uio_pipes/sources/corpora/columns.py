"""Corpora with a TSV that names audio, and corpora whose audio and text files share a stem."""

from __future__ import annotations

from typing import Any

from uio_pipes.formats.tables.description import Table
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.corpora.transcripts import THREE
from uio_pipes.sources.table.source import from_table

_CV_PARTS = ("train", "dev", "test", "validated", "invalidated", "other")
_CV_FIELDS = {
    "key": "path | stem", "txt": "sentence", "speaker": "client_id", "lang": "table | folder | name",
}  # fmt: skip
_RELEASE = "cv-corpus-{version}-20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]"  # with its date


def _clips(folder: str) -> Layout:
    """Return the layout below a folder of a language."""
    durations = f"{folder}/clip_durations.tsv"
    return Layout("extracted", from_table, {
        "table": Table(f"{folder}/{{part}}.tsv", join=Table(durations, on="path = clip")),
        "fields": {"wav": "clips/{path}", "duration": "duration[ms] | ms"},
    }, there=durations)  # fmt: skip


_OLDER = Layout("extracted, before version 15", from_table, {
    "table": Table(f"{_RELEASE}/{{lang}}/{{part}}.tsv"), "fields": {"wav": "clips/{path}"},
})  # fmt: skip
COMMONVOICE = Corpus(
    "commonvoice",
    title="Common Voice: more than a hundred languages, read",
    hours="33,000",
    download="cv-corpus-VERSION-LANG.tar.gz, or common-voice-scripted-speech-….tar.gz of newer ones, from "
    "https://commonvoice.mozilla.org/datasets",
    parts={part: part for part in _CV_PARTS},
    train=("train",),
    nested=[("validated", part) for part in THREE],
    options={"version": None, "lang": ()},
    fields=_CV_FIELDS,
    columns=(
        "sentence_id", "sentence_domain", "up_votes", "down_votes", "age", "gender", "accents", "variant", "segment"
    ),
    layouts=(
        _clips(f"{_RELEASE}/{{lang}}"),
        _OLDER,
        _clips("cv-corpus-*/*").downloaded(
            f"{_RELEASE}-{{lang}}.tar.gz", "path", "path | name", "{table | folder | s/\\//-/}.tar.gz"
        ),
        _clips("cv-corpus-*/*").downloaded("common-voice-*.tar.gz", "path", "path | name"),
    ),
    notes="A release holds what earlier ones held, but for those named delta: of several, one must be named, or some, "
    "`version=[\"17.0\", \"18.0-delta\"]`. Values are not quoted, whatever quotes they have. A part names only some of "
    "the clips: the others count as `no_row` where archives are streamed.",
)  # fmt: skip

_COVOST: dict[str, Any] = {
    "root": "",
    "keep": {"sentence": ".+", "split": "{part}"},
    "fields": {
        "key": "path | stem", "txt": "sentence", "translation": "translation | strip", "speaker": "client_id",
        "lang": "chosen.source",
    },
}  # fmt: skip
_CV4 = "cv-corpus-4-2019-12-10"


def _covost(form: str, translations: str | None, audio: str) -> Layout:
    """Return the layout with Common Voice in the folder, or the archive, ``audio``."""
    own = audio.replace("{source}", "{chosen.source}")  # that of a row
    there, on = f"{audio}/validated.tsv", "path"
    texts, wav, archives = Table(there, on=on), f"{own}/clips/{{path}}", dict[str, str]()
    if audio.endswith(".gz"):
        there, wav, archives = audio, "path", {"archives": own, "match": "path | name"}
        texts = Table("validated.tsv", within=audio, on=on)
    table = Table("covost_v2.{source}_{target}.tsv", escape="\\", within=translations, join=texts)
    fields = {**_COVOST["fields"], "wav": wav}
    return Layout(form, from_table, {"table": table, **_COVOST, **archives, "fields": fields}, there=there)


COVOST2 = Corpus(
    "covost2",
    title="CoVoST 2: translations of Common Voice 4, from 21 languages into English and from English into 15",
    hours="2,880",
    download="covost_v2.SOURCE_TARGET.tsv.tar.gz from https://github.com/facebookresearch/covost, and the source "
    "language of Common Voice 4",
    parts={"train": "train(?:_covost)?", "dev": "dev", "test": "test"},
    train=("train",),
    options={"source": (), "target": ()},
    layouts=tuple(
        _covost(f"{form}, audio {how}", archive, audio)
        for form, archive in (("extracted", None), ("as downloaded", "covost_v2.{source}_{target}.tsv.tar.gz"))
        for how, audio in (
            ("extracted", "{source}"), ("extracted", f"{_CV4}/{{source}}"), ("as downloaded", "{source}.tar.gz"),
            ("as downloaded", f"{_CV4}-{{source}}.tar.gz"),
        )
    ),
    notes="`txt` is what is said, `translation` its translation. Sentences that are no longer validated count as "
    "`not_kept`, as those of other parts do.",
)  # fmt: skip

_VCTK_FIELDS = {"key": "path | stem", "txt": "text | strip", "speaker": "path | stem | m/^[^_]+/", "lang": "'en'"}
_VCTK_ROOTS = ("", "VCTK-Corpus-0.92/", "VCTK-Corpus/")


def _vctk(form: str, root: str, audio: str, wav: str) -> Layout:
    return Layout(form, from_table, {
        "table": Table(f"{root}txt/*/*.txt", format="whole"), "archives": f"{root}{audio}", "match": "path | stem",
        "fields": {"wav": wav},
    }, there=root + audio.partition("/")[0])  # fmt: skip


_SAID = [
    _vctk("extracted", root, "wav48_silence_trimmed/*/*_{mic}.flac", "{path | stem}_{mic}") for root in _VCTK_ROOTS
]
VCTK = Corpus(
    "vctk",
    title="VCTK: English at 48 kHz, 110 speakers, for speech synthesis",
    hours="44",
    download="VCTK-Corpus-0.92.zip from https://datashare.ed.ac.uk/handle/10283/3443",
    parts={"train": "train"},
    train=("train",),
    options={"mic": ("mic1", "mic2")},
    fields=_VCTK_FIELDS,
    layouts=(
        *_SAID,
        _SAID[0].downloaded("VCTK-Corpus-0.92.zip", "{path | stem}_{mic}", "path | m/([^\\/]*_{mic})\\.flac$/"),
        *(_vctk("older, extracted", root, "wav48/*/*.wav", "path | stem") for root in _VCTK_ROOTS),
    ),
    notes="p315 has no texts (`no_row`), p280 no second microphone, and some utterances no audio (`no_audio`).",
)  # fmt: skip

TIMIT = Corpus(
    "timit",
    title="TIMIT: English of 630 speakers, with times of phones",
    hours="5",
    download="LDC93S1 from https://catalog.ldc.upenn.edu/LDC93S1",
    parts={"train": "[Tt][Rr][Aa][Ii][Nn]", "test": "[Tt][Ee][Ss][Tt]"},
    train=("train",),
    fields={
        "key": "{path | folder | name | upper}-{path | stem | upper}", "txt": "text | s/^\\d+ \\d+ // | strip",
        "speaker": "path | folder | name | upper", "lang": "'en'",
    },
    layouts=tuple(
        Layout(f"extracted, {kind}", from_table, {
            "table": Table(f"{root}{{part}}/*/*/*.{suffix}", format="whole"),
            "fields": {"wav": f"{{path | s/\\.\\w+$//}}.{audio}"},
        }, there=f"{root}{{part}}/*/*/*.{audio}")
        for root in ("data/", "", "TIMIT/", "timit/")
        for kind, suffix, audio in (("in capitals", "TXT", "WAV"), ("in small letters", "txt", "wav"))
    ),
    notes="Files named .WAV are NIST sphere in most copies. Sentences recur: keys are SPEAKER-SENTENCE.",
)  # fmt: skip

_CHAPTER = "table | m/((?:[^\\/]+\\/){3}[^\\/]+)\\.json$/"
_BOOKS = Layout("extracted", from_table, {
    "table": Table("{part}/*/*/*.json"), "fields": {"key": _CHAPTER, "wav": "{table | stem}.flac"},
})  # fmt: skip
LIBRILIGHT = Corpus(
    "librilight",
    title="Libri-Light: English, read from books, without texts",
    hours="60,000",
    download="small.tar, medium.tar, large.tar from https://github.com/facebookresearch/libri-light",
    parts={"small": "small", "medium": "medium", "large": "large"},
    train=("small", "medium", "large"),
    fields={"speaker": "speaker", "voice_activity": "voice_activity", "lang": "'en'"},
    columns=("book_meta", "snr"),
    layouts=(_BOOKS, _BOOKS.downloaded("{part}.tar", _CHAPTER, "path | s/\\.flac$//")),
    notes="Utterances are whole chapters; `voice_activity` says where speech is, in seconds.",
)  # fmt: skip

CARDS = (COMMONVOICE, COVOST2, VCTK, TIMIT, LIBRILIGHT)
