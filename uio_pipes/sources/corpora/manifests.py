"""Corpora in Parquet, in one JSON with segments, or in manifests."""

from __future__ import annotations

from uio_pipes.formats.tables.description import Table
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.lhotse.source import from_lhotse_cuts
from uio_pipes.sources.parquet.source import from_parquet
from uio_pipes.sources.table.source import from_table

_PEOPLE = ("clean", "clean_sa", "dirty", "dirty_sa")
PEOPLES_SPEECH = Corpus(
    "peoples_speech",
    title="The People's Speech: English, from archive.org",
    hours="30,000",
    download="MLCommons/peoples_speech from https://huggingface.co/datasets",
    parts={part: part for part in (*_PEOPLE, "validation", "test")},
    train=_PEOPLE,
    fields={"key": "id", "wav": "audio", "txt": "text", "duration": "duration_ms | ms", "lang": "'en'"},
    layouts=(Layout("as downloaded", from_parquet, {"paths": "{part}/*.parquet"}, there="{part}/*.parquet"),),
    notes="There are no speakers.",
)

_LOQUACIOUS = tuple(f"{subset}/train" for subset in ("large", "medium", "small", "clean"))
LOQUACIOUS = Corpus(
    "loquacious",
    title="Loquacious: English of five corpora in one form",
    hours="25,000 (large), 2,500 (medium), 250 (small)",
    download="speechbrain/LoquaciousSet from https://huggingface.co/datasets",
    parts={
        f"{subset}/{part}": {"subset": subset, "part": part}
        for subset in ("large", "medium", "small", "clean")
        for part in ("train", "dev", "test")
    },
    train=_LOQUACIOUS,
    nested=(_LOQUACIOUS,),
    fields={"key": "ID", "wav": "wav", "txt": "text", "speaker": "spk_id", "duration": "duration", "lang": "'en'"},
    columns=("sex",),
    layouts=(Layout("as downloaded", from_parquet, {"paths": "{subset}/{part}-*.parquet"}),),
    notes="Speakers are often unknown. Subsets are parts of the large one: by default the largest one there is read.",
)

_GRANARY_FIELDS = {
    "key": "utt_id", "wav": "audio", "txt": "text", "lang": "lang | s/[<>]//", "duration": "duration",
}  # fmt: skip
YODAS_GRANARY = Corpus(
    "yodas_granary",
    title="YODAS-Granary: YouTube in 23 European languages, with better texts, and translated into English",
    hours="192,000",
    download="data/LANG of espnet/yodas-granary from https://huggingface.co/datasets",
    parts={"asr_only": "asr_only", "ast": "ast"},
    train=("asr_only", "ast"),
    options={"lang": ()},
    fields=_GRANARY_FIELDS,
    columns=("translation_en (ast)", "original_audio_id", "original_audio_offset"),
    layouts=(Layout("as downloaded", from_parquet, {"paths": "data/{lang}/{part}/*.parquet"}),),
)

_TAGS = "text_tn | s/ ?<(?:COMMA|PERIOD|QUESTIONMARK|EXCLAMATIONPOINT)>// | strip"
GIGASPEECH = Corpus(
    "gigaspeech",
    title="GigaSpeech: English from audiobooks, podcasts and YouTube",
    hours="10,000 (XL), 2,500 (L), 1,000 (M), 250 (S), 10 (XS)",
    download="GigaSpeech.json and audio/ by the tools of https://github.com/SpeechColab/GigaSpeech (on request)",
    parts={size: size for size in ("XL", "L", "M", "S", "XS", "DEV", "TEST")},
    train=("XL",),
    nested=(("XL", "L", "M", "S", "XS"),),
    fields={
        "key": "sid", "wav": "path", "txt": _TAGS, "start": "begin_time", "end": "end_time",
        "speaker": "speaker | m/^(?!N\\/A$).+/", "lang": "'en'",
    },
    columns=("text_tn (with tags of punctuation)", "aid", "source", "category", "title", "subsets"),
    layouts=(
        Layout("extracted", from_table, {
            "table": Table("GigaSpeech.json", expand="audios.segments"), "keep": {"subsets": "\\{{part}\\}"},
            "drop": {"text_tn": "<(?:SIL|MUSIC|NOISE|OTHER)>"},
        }),
    ),
    notes="Tags of punctuation are removed from `txt`. Other subsets count as `not_kept`, segments of garbage in DEV "
    "and TEST as `dropped`.",
)  # fmt: skip

WENETSPEECH = Corpus(
    "wenetspeech",
    title="WenetSpeech: Mandarin from YouTube and podcasts",
    hours="10,000 (L), 1,000 (M), 100 (S); weak labels (W) 2,400",
    download="WenetSpeech.json and audio/ by the tools of https://github.com/wenet-e2e/WenetSpeech (on request)",
    parts={part: part for part in ("L", "M", "S", "W", "DEV", "TEST_NET", "TEST_MEETING")},
    train=("L",),
    nested=(("L", "M", "S"),),
    fields={"key": "sid", "wav": "path", "txt": "text", "start": "begin_time", "end": "end_time", "lang": "'zh'"},
    columns=("confidence", "aid", "source", "tags", "subsets"),
    layouts=(
        Layout("extracted", from_table, {
            "table": Table("WenetSpeech.json", expand="audios.segments"), "keep": {"subsets": "{part}"},
        }),
    ),
    notes="A segment is in several subsets; those of other subsets count as `not_kept`.",
)  # fmt: skip

_SIZES = ("small", "medium", "large")
_TESTS = ("dev", "test_clean", "test_other", "test_clean_large", "test_other_large")
LIBRIHEAVY = Corpus(
    "libriheavy",
    title="Libriheavy: Libri-Light with texts, cased and punctuated",
    hours="50,000 (large), 5,000 (medium), 500 (small)",
    download="libriheavy_cuts_PART.jsonl.gz from https://github.com/k2-fsa/libriheavy, and the audio of librilight "
    "into download/librilight beside them",
    parts={part: part for part in (*_SIZES, *_TESTS)},
    train=_SIZES,
    fields={"txt": "texts.0", "lang": "language"},
    columns=("texts.1 (in capitals, by recognition)", "pre_texts.0"),
    layouts=(
        Layout("extracted", from_lhotse_cuts, {"paths": "libriheavy_cuts_{part}.jsonl.gz", "root": ""}),
    ),
)  # fmt: skip

GRANARY = Corpus(
    "granary",
    title="Granary: better texts, and translations, for 25 European languages of other corpora",
    hours="643,000",
    download="nvidia/Granary from https://huggingface.co/datasets, and the audio of the corpora that it is of, to the "
    "paths that the rows name below its folder",
    parts={source: source for source in ("voxpopuli", "ytc", "yodas", "librilight")},
    train=("voxpopuli", "ytc", "yodas", "librilight"),
    options={"lang": (), "task": ("asr", "ast")},
    fields={
        "key": "utt_id", "wav": "audio_filepath", "txt": "text", "start": "offset or ''", "duration": "duration",
        "lang": "source_lang or chosen.lang",
    },
    columns=("answer (of task ast)", "target_lang", "dataset_source"),
    layouts=(
        Layout("as downloaded", from_table, {"table": Table("{lang}/{part}/{lang}_{task}*.jsonl"), "root": ""}),
    ),
    notes="Rows whose audio is not there count as `no_audio`.",
)  # fmt: skip

CARDS = (PEOPLES_SPEECH, LOQUACIOUS, YODAS_GRANARY, GIGASPEECH, WENETSPEECH, LIBRIHEAVY, GRANARY)
