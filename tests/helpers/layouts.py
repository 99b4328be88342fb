"""Small corpora without a card, in the layouts in which they are published; each utterance is a tone of its own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from corpora_small.making import Making, Said, encoded, pcm, recorded, sphere, spoken

ENGLISH = (
    "the birch canoe slid on the planks",
    "glue the sheet",
    "it's easy to tell",
    "these days a chicken leg is rare",
)
CHINESE = ("绿是阳春烟景大块文章的底色", "他仅凭腰部的力量", "今天天气很好", "打开客厅的灯")
KOREAN = ("그는 괜찮은 척하려고", "오늘 날씨가 좋다", "우리는 학교에 간다", "지난해 공동 창업자가")
JAPANESE = (
    "水をマレーシアから買わなくてはならないのです",
    "木曜日停戦会談は何の進展もないまま",
    "上院議員は私がデータをゆがめた",
    "彼の話を聞いた",
)
COMMAS = ("a day, a week, or so", "today, we go", "a good day", "so be it", "oh, no, not so", "all is well")


class Corpus(Making):
    """A corpus that is being made; ``texts``: what is said in it, in turn."""

    texts: Sequence[str] = ENGLISH

    def audio(self, path: str, part: str = "train", text: str | None = None, archive: str = "") -> str:
        """Write a recording of an utterance, and return its text."""
        said = self.say(part, path, self.text() if text is None else text)
        suffix = path.rpartition(".")[2].lower()
        if suffix == "pcm":
            data = pcm(said)
        elif suffix == "sph":
            data = sphere(said.wave(16_000))
        else:
            data = spoken(said, form={"wav": "WAV", "flac": "FLAC", "mp3": "MP3", "ogg": "OGG", "opus": "OPUS"}[suffix])
        self.put(archive, path, data) if archive else self.write(path, data)
        return said.txt or ""

    def text(self) -> str:
        number = len(self.said)
        word = self.texts[number % len(self.texts)]
        if word.isascii():
            return f"{word} {'abcdefghij'[number % 10]}"
        return f"{word}{'一二三四五六七八九十'[number % 10]}"

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield part and number of four utterances of train, two of dev and two of test."""
        yield from (
            (part, f"{number}") for part, count in (("train", 4), ("dev", 2), ("test", 2)) for number in range(count)
        )


Layout = Callable[[Corpus], None]
LAYOUTS: dict[str, tuple[Layout, Sequence[str]]] = {}


def layout(texts: Sequence[str] = ENGLISH) -> Callable[[Layout], Layout]:
    def noted(make: Layout) -> Layout:
        LAYOUTS[make.__name__] = make, texts
        return make

    return noted


def made(name: str, folder: Path) -> Corpus:
    make, texts = LAYOUTS[name]
    corpus = Corpus(folder, downloaded=True)
    corpus.texts = texts
    make(corpus)
    corpus.finish()
    return corpus


def calls(c: Corpus, path: str, seconds: float = 0.0) -> dict[str, list[Said]]:
    """Write two recordings of three utterances each, and return these by the names of recordings."""
    every = dict[str, list[Said]]()
    for name in ("call01", "call02"):
        every[name] = [c.say("train", name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
        place = path.format(name)
        c.write(place, recorded(every[name], 16_000, "FLAC" if place.endswith("flac") else "WAV", seconds=seconds))
    return every


def tables(c: Corpus, rows: dict[str, list[str]], path: str, header: str = "") -> None:
    """Write a table for each part, whose name stands for ``{}``."""
    for part, lines in rows.items():
        c.write(path.format(part), [*([header] if header else []), *lines])


SAID: dict[str, Callable[[str], str]] = {
    "": str,
    "UPPER": str.upper,
    "Capitalized": str.capitalize,
    "Sentence.": lambda text: f"{text}.".capitalize(),
    "<t>, yes": "{}, yes".format,
}
# A recording and rows an utterance: where the recording lies, by <part>, <s> (a speaker) and <n>; then a row of each
# table by the path of that, <t> is the text, behind the table's header; a row without <t> and <n> is a file's content.
ROWS = r"""
magicdata; texts=CHINESE; parts=train,dev,test; count=2
 <part>/5_54<n>/5_54<n>_<part>.wav
 SPKINFO.txt = SPKID\tAge\tGender\tDialect\n5_541\t23\tmale\thenan
 <part>/TRANS.txt = UtteranceID\tSpeakerID\tTranscription\n5_54<n>_<part>.wav\t5_54<n>\t<t>
jsut; texts=JAPANESE; speakers=BASIC5000,ONOMATOPEE300; count=3
 jsut_ver1.1/<s>/wav/<s>_000<n>.wav
 jsut_ver1.1/ChangeLog.txt = ver1.1: more
 jsut_ver1.1/<s>/transcript_utf8.txt = <s>_000<n>:<t>
jvs; texts=JAPANESE; speakers=jvs001/parallel100,jvs001/whisper10,jvs002/parallel100,jvs002/whisper10; count=2
 jvs_ver1/<s>/wav24kHz16bit/VOICEACTRESS100_00<n>.wav
 jvs_ver1/gender_f0range.txt = speaker Male_or_Female minf0[Hz] maxf0[Hz]\njvs001 M 70 200
 jvs_ver1/<s>/transcripts_utf8.txt = VOICEACTRESS100_00<n>:<t>
kss; texts=KOREAN
 kss/1/1_000<n>.wav
 kss/transcript.v.1.4.txt = 1/1_000<n>.wav|<t>|<t>|<t>|<n>.5|He tried to seem fine <n>.
css10
 german/meisterfloh/meisterfloh_000<n>.wav
 german/transcript.txt = meisterfloh/meisterfloh_000<n>.wav|<t>|<t>|<n>.25
fluent_speech_commands; parts=train,valid,test
 wavs/speakers/spk<n>/<part><n>-aa.wav
 data/<part>_data.csv = ,path,speakerId,transcription,action,object,location\n<n>,wavs/speakers/spk<n>/<part><n>-aa.wav,spk<n>,<t>,activate,lights,none
javanese_tts; speakers=female,male
 jv_id_<s>/wavs/jv<s>_0<n>.wav
 jv_id_<s>/line_index.tsv = jv<s>_0<n>\t<t>
uk_english
 southern_english_female/sof_0<n>_0<n>.wav
 southern_english_female/line_index.csv = EN000<n>, sof_0<n>_0<n>, <t>
kazakh_ksc; parts=train,dev,test
 ISSAI_KSC/Audios/5f<n><part>c8.wav
 ISSAI_KSC/Transcriptions/5f<n><part>c8.txt = <t>
 ISSAI_KSC/Meta/<part>.csv = uttID deviceID\n5f<n><part>c8 <n>f
mediaspeech
 TR/a<n>b.flac
 TR/a<n>b.txt = <t>
samromur; parts=train,dev,test; said=Capitalized
 samromur_21.05/<part>/00<n>/00<n>-<part>01.flac
 samromur_21.05/metadata.tsv = id\tspeaker_id\tfilename\tsentence\tsentence_norm\tgender\tage\tduration\tstatus\n<n>\t00<n>\t00<n>-<part>01.flac\t<t>\tnot <t>\tmale\t20-29\t0.4\t<part>
esd; speakers=0011,0012
 ESD/<s>/Neutral/<s>_00000<n>.wav
 ESD/<s>/<s>.txt = <s>_00000<n>\t<t>\tNeutral
vctk_first; speakers=p225,p226
 VCTK-Corpus/wav48/<s>/<s>_00<n>.wav
 VCTK-Corpus/speaker-info.txt = ID  AGE  GENDER  ACCENTS  REGION\n225  23  F    English    Southern England
 VCTK-Corpus/txt/<s>/<s>_00<n>.txt = <t>
transcripts_beside_wavs
 wavs/u<n>.wav
 transcripts.txt = u<n> <t>
folders_of_speakers; speakers=spk1,spk2,spk3; count=2
 <s>/0<n>.wav
 all.tsv = file\tspeaker\ttext\n0<n>.wav\t<s>\t<t>
split_column; parts=train,dev,test
 audio/<n><part>.wav
 index.csv = utt,split,wav,sentence\n<n><part>,<part>,audio/<n><part>.wav,<t>
numbers_without_zeros
 clips/0000<n>.wav
 texts.tsv = id\ttext\n<n>\t<t>
template_names; speakers=1,2; count=2
 audio/s<s>_<n>.wav
 data.csv = speaker,number,text\ns<s>,<n>,<t>
tedx_spanish
 speech/TEDX_F_00<n>.wav
 files/TEDx_Spanish.transcription = <t> TEDX_F_00<n>
ascend; texts=CHINESE; parts=train,validation,test
 waves/ses<n>_<part>_L.wav
 <part>_metadata.csv = id,file_name,transcription,duration,language,original_speaker_id,session_id,topic\n000<n>,waves/ses<n>_<part>_L.wav,<t>,0.4,mixed,<n>,1,education
st_cmds; texts=CHINESE
 ST-CMDS-20170001_1-OS/20170001P0000<n>A0001.wav
 ST-CMDS-20170001_1-OS/20170001P0000<n>A0001.txt = <t>
 ST-CMDS-20170001_1-OS/20170001P0000<n>A0001.metadata = SEX\tMale\nAGE\t23\nORS\t<t>
zeroth; texts=KOREAN; parts=train,test
 <part>_data_01/003/10<n>/10<n>_003_0001.flac
 AUDIO_INFO = SPEAKERID|NAME|SEX|SCRIPTID|DATASET\n100|김|m|003|train_data_01
 <part>_data_01/003/10<n>/10<n>_003.trans.txt = 10<n>_003_0001 <t>
librispeech_part; parts=dev-clean; speakers=84,174
 LibriSpeech/<part>/<s>/12/<s>-12-000<n>.flac
 LibriSpeech/SPEAKERS.TXT = ;ID  |SEX| SUBSET\n84   | F | dev-clean | 8.02 | Christie Nowak
 LibriSpeech/<part>/<s>/12/<s>-12.trans.txt = <s>-12-000<n> <t>
librispeech_bare; speakers=84,174
 <s>/12/<s>-12-000<n>.flac
 <s>/12/<s>-12.trans.txt = <s>-12-000<n> <t>
libritts_like; parts=train,dev,test
 Corp/<part>-clean/<n>1/<n>9/<n>1_<n>9_00001_000000.wav
 Corp/<part>-clean/<n>1/<n>9/<n>1_<n>9_00001_000000.normalized.txt = <t>
 Corp/<part>-clean/<n>1/<n>9/<n>1_<n>9_00001_000000.original.txt = <t>
audiofolder; parts=train,dev,test; said=<t>, yes
 data/<part>/clips/<n>.wav
 data/<part>/metadata.csv = file_name,transcription\nclips/<n>.wav,"<t>"
king_asr; texts=CHINESE; speakers=0,1; count=3; encoding=utf-16
 WAVE/SPEAKER000<s>/SESSION0/0000<s>000<n>.wav
 SCRIPT/0000<s>0.TXT = 0000<s>000<n>\t<t>
arabic_speech
 wav/ARA NORM  000<n>.wav
 orthographic-transcript.txt = "ARA NORM  000<n>.wav" "<t>"
 phonetic-transcript.txt = "ARA NORM  000<n>.wav" "th e0 ii1 <t>"
voxforge; speakers=anon-20080101-kaz,bob-20090202-xyz; count=3; said=UPPER
 <s>/wav/a000<n>.wav
 <s>/etc/PROMPTS = <s>/mfc/a000<n> <t>
 <s>/etc/README = User Name:anonymous
 <s>/LICENSE = GPL
cmu_arctic; speakers=bdl,slt; count=3; said=Sentence.
 cmu_us_<s>_arctic/wav/arctic_a000<n>.wav
 cmu_us_<s>_arctic/etc/txt.done.data = ( arctic_a000<n> "<t>" )
pcm_of_cp949; texts=KOREAN; encoding=cp949
 Speech_01/S_000/S_00000<n>.pcm
 Speech_01/S_000/S_00000<n>.txt = <t>
slurp; parts=train,dev
 audio/slurp_real/audio-<part><n>.flac
 dataset/slurp/<part>.jsonl = {"slurp_id": <n>, "sentence": "<t>", "tokens": [{"surface": "the", "id": 0}, {"surface": "a", "id": 1}], "recordings": [{"file": "audio-<part><n>.flac", "wer": 0.0}]}
lrs2; speakers=5535415699068794046,5535423430009926848; said=UPPER
 main/<s>/0000<n>.wav
 main/<s>/0000<n>.txt = Text:  <t>\nConf:  3
vivos; parts=train,test
 vivos/<part>/waves/V<n>/V<n>_<part>.wav
 vivos/<part>/prompts.txt = V<n>_<part> <t>
l2_arctic; speakers=ABA,BWC
 <s>/wav/arctic_a000<n>.wav
 <s>/transcript/arctic_a000<n>.txt = <t>
mile_tamil; parts=train,test
 <part>/audio_files/IISc_<n><part>.wav
 <part>/trans_files/IISc_<n><part>.txt = <t>
minds14
 audio/en-US/CASH/60<n>.wav
 text/en-US.csv = filepath,transcription,text_asr,intent\nen-US/CASH/60<n>.wav,<t>,not <t>,cash
parallel_trees; speakers=m1,f2
 audio/<s>/session/u<n>.wav
 text/<s>/session/u<n>.txt = <t>
two_trees_of_texts; speakers=anna,bob
 wav/<s>/<s>_<n>0x.wav
 labels/<s>.txt = <s>_<n>0x\tangry mood\t<n>
 words/<s>.txt = <s>_<n>0x\t<t>
texts_of_the_same_name_twice
 wav/k<n>y.wav
 mood/k<n>y.txt = angry
 words/k<n>y.txt = <t>
double_colons; parts=train,test
 wav/<n>/<part>_0<n>.wav
 scripts/<part>.trn = wav/<n>/<part>_0<n>.wav :: <t>
names_within_names
 clips/corpus_<n>k_16k.wav
 texts.tsv = <n>k\t<t>
"""  # noqa: E501


def written(c: Corpus, options: dict[str, str], audio: str, tables: dict[str, str]) -> None:
    """Write what ROWS describes."""
    speakers, count = options.get("speakers", "").split(","), int(options.get("count", 4))
    lines: dict[str, dict[str, None]] = {}
    for part, speaker, n in product(options.get("parts", "train").split(","), speakers, range(count)):
        split = {"valid": "dev", "validation": "dev", "dev-clean": "dev"}.get(part, part)
        values = {"<part>": part, "<s>": speaker, "<n>": str(n)}
        values["<t>"] = c.audio(filled(audio, values), split, SAID[options.get("said", "")](c.text()))
        for path, form in tables.items():
            rows = filled(form, values).replace("\\t", "\t").split("\\n")
            lines.setdefault(filled(path, values), {}).update(dict.fromkeys(rows))  # a header comes once
    for path, rows in lines.items():
        c.write(path, list(rows), options.get("encoding", "utf-8"))


def filled(pattern: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        pattern = pattern.replace(name, value)
    return pattern


for block in re.split(r"\n(?=\w)", ROWS):
    if block.strip():
        (name, *given), (place, *forms) = block.split("\n ")[0].strip().split("; "), block.strip().split("\n ")[1:]
        made_by = dict(one.split("=", 1) for one in given)
        paths = dict(form.split(" = ", 1) for form in forms)
        spoken_in = {"CHINESE": CHINESE, "KOREAN": KOREAN, "JAPANESE": JAPANESE}.get(made_by.get("texts", ""), ENGLISH)
        LAYOUTS[name] = partial(written, options=made_by, audio=place, tables=paths), spoken_in


@layout(CHINESE)
def thchs30(c: Corpus) -> None:
    for part, n in c.parts():
        name = f"{'ABC'[('train', 'dev', 'test').index(part)]}{n}_{n}.wav"
        said = c.audio(f"data_thchs30/data/{name}", part)
        c.write(f"data_thchs30/data/{name}.trn", [" ".join(said), "lv4 shi4 yang2", "l v4 sh ix4"])
        c.write(f"data_thchs30/{part}/{name}.trn", f"../data/{name}.trn")
        os.symlink(f"../data/{name}", c.folder / f"data_thchs30/{part}/{name}")
        c.said[-1] = c.said[-1]._replace(txt=" ".join(said))
    c.write("data_thchs30/README.TXT", ["THCHS-30 is a corpus"] * 9)
    c.write("data_thchs30/lm_word/lexicon.txt", ["绿 l v4", "是 sh ix4"])


@layout(CHINESE)
def primewords(c: Corpus) -> None:
    place = "primewords_md_2018_set1/audio_files"
    said = [c.audio(f"{place}/{n}/0{n}/{n}e{n}.wav") for n in range(4)]
    rows = [{"id": n, "user_id": "7", "file": f"{n}e{n}.wav", "text": words} for n, words in enumerate(said)]
    c.write("primewords_md_2018_set1/set1_transcript.json", json.dumps(rows, ensure_ascii=False))


@layout(CHINESE)
def magicdata_downloaded(c: Corpus) -> None:
    for part, n in c.parts():
        name = f"5_54{n}_2017{n}.wav"
        said = c.audio(f"{part}/5_54{n}/{name}", part, archive=f"{part}_set.tar.gz")
        rows = c._archives.setdefault(f"{part}_set.tar.gz", {}).setdefault(
            f"{part}/TRANS.txt", b"UtteranceID\tSpeakerID\tTranscription\n"
        )
        c._archives[f"{part}_set.tar.gz"][f"{part}/TRANS.txt"] = rows + f"{name}\t5_54{n}\t{said}\n".encode()


@layout(CHINESE)
def aidatatang(c: Corpus) -> None:
    """Archives of a speaker each, one transcript of all parts."""
    rows = []
    for part, n in c.parts():
        key = f"T0055G00{n}{'abc'[('train', 'dev', 'test').index(part)]}S0001"
        said = c.audio(f"G00{n}/{key}.wav", part, archive=f"aidatatang_200zh/corpus/{part}/G00{n}{part}.tar.gz")
        rows.append(f"{key} {said}")
    c.write("aidatatang_200zh/transcript/aidatatang_200_zh_transcript.txt", rows)


@layout()
def m_ailabs(c: Corpus) -> None:
    for book in ("spiegel", "kaetzchen"):
        folder = f"de_DE/by_book/female/ramona/{book}"
        rows, objects = [], {}
        for n in range(3):
            said = c.audio(f"{folder}/wavs/{book}_f00000{n}.wav")
            rows.append(f"{book}_f00000{n}|{said}|{said}")
            objects[f"{book}_f00000{n}.wav"] = {"clean": said, "original": said}
        c.write(f"{folder}/metadata.csv", rows)
        c.write(f"{folder}/metadata_mls.json", json.dumps(objects))


@layout()
def golos(c: Corpus) -> None:
    for part in ("train", "test"):
        rows = []
        for n in range(4):
            path = f"{'crowd' if n else 'farfield'}/{n}/{part}{n}ab.opus"
            said = c.audio(f"{part}_opus/{path}", part)
            rows.append(json.dumps({"id": f"{part}{n}ab", "audio_filepath": path, "duration": 0.4, "text": said}))
        c.write(f"{part}_opus/manifest.jsonl", rows)
        if part == "train":
            c.write(f"{part}_opus/1hour.jsonl", rows[:2])


@layout()
def hifi_tts(c: Corpus) -> None:
    for speaker in ("92_clean", "6097_other"):
        rows: dict[str, list[str]] = {}
        number, kind = speaker.split("_")
        for part, n in c.parts():
            path = f"audio/{speaker}/12{n}/word_{part}_{speaker}_{n}.flac"
            said = c.audio(f"hi_fi_tts_v0/{path}", part)
            row = {
                "audio_filepath": path,
                "text": said,
                "duration": 0.4,
                "text_no_preprocessing": said.title(),
                "text_normalized": said,
            }
            rows.setdefault(part, []).append(json.dumps(row))
        tables(c, rows, f"hi_fi_tts_v0/{number}_manifest_{kind}_{{}}.json")


@layout()
def an4(c: Corpus) -> None:
    for part in ("train", "test"):
        rows, ids = [], []
        for n in range(3):
            key = f"an40{n}-f{part[:2]}w-b"
            rows.append(f"<s> {c.audio(f'an4/wav/an4_clstk/f{part[:2]}w/{key}.sph', part)} </s> ({key})")
            ids.append(f"an4_clstk/f{part[:2]}w/{key}")
        c.write(f"an4/etc/an4_{part}.transcription", rows)
        c.write(f"an4/etc/an4_{part}.fileids", ids)


@layout()
def alffa(c: Corpus) -> None:
    """Kaldi's tables, whose paths are those of the publisher's machine."""
    for part in ("train", "test"):
        rows = [
            (f"SWH-05-{part}_0{n}", c.audio(f"data/{part}/wav/SWH-05-2010/SWH-05-{part}_0{n}.wav", part))
            for n in range(3)
        ]
        c.write(f"data/{part}/text", [f"{key}\t{said}" for key, said in rows])
        c.write(
            f"data/{part}/wav.scp", [f"{key} /home/gelas/asr/data/{part}/wav/SWH-05-2010/{key}.wav" for key, _ in rows]
        )
        c.write(f"data/{part}/utt2spk", [f"{key} SWH-05-2010" for key, _ in rows])


@layout(CHINESE)
def kaldi_other_names(c: Corpus) -> None:
    """Keys that are no names of files: wav.scp leads from one to the other, from the corpus's own folder."""
    rows = [(f"utt-{n}x", f"audio/{n}/rec{n}.flac") for n in range(4)]
    said = [c.audio(path) for _, path in rows]
    c.write("lists/wav.scp", [f"{key} {path}" for key, path in rows])
    c.write("lists/text", [f"{key} {words}" for (key, _), words in zip(rows, said, strict=True)])


@layout()
def heroico(c: Corpus) -> None:
    """Answers by folder and number in Latin-1, recordings of prompts that all speakers read."""
    answers = [
        f"{s}/{n}\t{c.audio(f'speech/heroico/Answers_Spanish/{s}/{n}.wav', text=f'sí señor {s} dice {n}a cosas')}"
        for s in (1, 2)
        for n in (1, 2)
    ]
    c.write("transcripts/heroico-answers.txt", answers, "latin-1")


@layout()
def prompts(c: Corpus) -> None:
    lines = ["kids are talking by the door", "dogs are sitting by the window"]
    for speaker in ("spk1", "spk2"):
        for n, line in enumerate(lines):
            c.audio(f"{speaker}/p0{n}.wav", text=line)
    c.write("prompts.txt", [f"p0{n}\t{line}" for n, line in enumerate(lines)])


@layout()
def audiofolder_zipped(c: Corpus) -> None:
    for part in ("train", "test"):
        rows = [f"{n}{part}.mp3,{c.audio(f'{n}{part}.mp3', part, archive=f'data/{part}.zip')}" for n in range(3)]
        c.put(f"data/{part}.zip", "metadata.csv", ["file_name,text", *rows])


@layout()
def common_voice_on_the_hub(c: Corpus) -> None:
    for part, n in c.parts():
        name = f"common_voice_en_{n}{part}.mp3"
        said = c.audio(f"en_{part}_0/{name}", part, archive=f"audio/en/{part}/en_{part}_0.tar")
        path = c.folder / f"transcript/en/{part}.tsv"
        old = path.read_text() if path.exists() else "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\n"
        c.write(f"transcript/en/{part}.tsv", old + f"abc{n}\t{name}\t{said}\t2\t0\t\t\n")


@layout()
def common_voice_one_language(c: Corpus) -> None:
    head = "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\taccents\tlocale\tsegment"
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        name = f"common_voice_cy_{n}{part}.mp3"
        rows.setdefault(part, []).append(f"abc{n}\t{name}\t{c.audio(f'clips/{name}', part)}\t2\t0\t\t\t\tcy\t")
    rows["validated"] = [row for several in rows.values() for row in several]
    rows["other"] = [f"abc\tcommon_voice_cy_9.mp3\t{c.audio('clips/common_voice_cy_9.mp3', 'other')}\t0\t0\t\t\t\tcy\t"]
    tables(c, rows, "{}.tsv", head)


@layout()
def gigaspeech_on_the_hub(c: Corpus) -> None:
    for part, n in c.parts():
        name = f"xs_chunks_000{n}" if part == "train" else f"{part}_chunks_000{n}"
        sid = f"AUD000{n}_S{part}"
        place = "xs" if part == "train" else part
        said = c.audio(
            f"{name}/{sid}.wav", "train" if part == "train" else part, archive=f"data/audio/{place}_files/{name}.tar.gz"
        )
        c.write(
            f"data/metadata/{place}_metadata/{name}_metadata.csv",
            ["sid,speaker,text_tn,begin_time,end_time,path", f"{sid},N/A,{said},1.5,1.9,audio/youtube/{sid}.wav"],
        )


@layout()
def chime6(c: Corpus) -> None:
    for part, session in (("train", "S03"), ("dev", "S02")):
        rows = []
        for speaker in ("P09", "P10"):
            some = [c.say(part, f"{session}_{speaker}", f"{c.text()}", start=0.1 + 0.6 * n) for n in range(2)]
            c.write(f"CHiME6/audio/{part}/{session}_{speaker}.wav", recorded(some, 16_000))
            rows += [
                {
                    "end_time": f"0:00:0{one.end:.2f}",
                    "start_time": f"0:00:0{one.start:.2f}",
                    "words": one.txt,
                    "speaker": speaker,
                    "ref": "U02",
                    "location": "kitchen",
                    "session_id": session,
                }
                for one in some
            ]
        c.write(f"CHiME6/transcriptions/{part}/{session}.json", json.dumps(rows, indent=1))


@layout()
def magicdata_ramc(c: Corpus) -> None:
    for name in ("CTS-CN-F2F-01", "CTS-CN-F2F-02"):
        some = [c.say("train", name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
        c.write(f"MDT2021S003/WAV/{name}.wav", recorded(some, 16_000))
        c.write(
            f"MDT2021S003/TXT/{name}.txt",
            [f"[{one.start:.3f},{one.end:.3f}]\tG0000{n}\tmale,beijing\t{one.txt}" for n, one in enumerate(some)],
        )


@layout()
def textgrids_of_calls(c: Corpus) -> None:
    for name in ("R8001_M8004", "R8003_M8001"):
        some = [c.say("train", name, c.text(), start=0.1 + 0.6 * n) for n in range(2)]
        c.write(f"Train_Ali_far/audio_dir/{name}_MS802.wav", recorded(some, 16_000))
        lines = [
            'File type = "ooTextFile"',
            'Object class = "TextGrid"',
            "",
            "xmin = 0",
            "xmax = 2",
            "tiers? <exists>",
            "size = 1",
            "item []:",
            "    item [1]:",
            '        class = "IntervalTier"',
            '        name = "N_SPK8013"',
            "        xmin = 0",
            "        xmax = 2",
            f"        intervals: size = {len(some)}",
        ]
        for n, one in enumerate(some, 1):
            lines += [
                f"        intervals [{n}]:",
                f"            xmin = {one.start}",
                f"            xmax = {one.end}",
                f'            text = "{one.txt}"',
            ]
        c.write(f"Train_Ali_far/textgrid_dir/{name}.TextGrid", lines)


@layout()
def speechbrain(c: Corpus) -> None:
    for part in ("train", "valid"):
        rows = {
            f"utt{n}{part}": {
                "wav": f"{{data_root}}/{part}/u{n}{part}.wav",
                "length": 0.4,
                "words": c.audio(f"{part}/u{n}{part}.wav", part.replace("valid", "dev")),
            }
            for n in range(3)
        }
        c.write(f"{part}.json", json.dumps(rows, indent=2))


@layout()
def mic_variants(c: Corpus) -> None:
    for n in range(4):
        said = c.audio(f"wav48/p225/p225_00{n}_mic1.flac")
        c.write(f"txt/p225/p225_00{n}.txt", said)
        c.write(f"wav48/p225/p225_00{n}_mic2.flac", encoded(c.said[-1].wave(16_000), 16_000, "FLAC"))


@layout()
def speechocean762(c: Corpus) -> None:
    for part in ("train", "test"):
        rows = [(f"00001{n}{len(part)}", f"WAVE/SPEAKER000{n}/00001{n}{len(part)}.wav") for n in range(3)]
        said = [c.audio(f"speechocean762/{path}", part) for _, path in rows]
        c.write(f"speechocean762/{part}/wav.scp", [f"{key}\t{path}" for key, path in rows])
        c.write(f"speechocean762/{part}/text", [f"{key}\t{words}" for (key, _), words in zip(rows, said, strict=True)])
        c.write(f"speechocean762/{part}/utt2spk", [f"{key}\t000{n}" for n, (key, _) in enumerate(rows)])
        c.write(f"speechocean762/{part}/spk2age", ["0001\t6"])
    c.write("speechocean762/resource/scores.json", json.dumps({key: {"text": "NO", "accuracy": 8} for key, _ in rows}))


@layout()
def mucs_code_switching(c: Corpus) -> None:
    """Kaldi's segments, with paths of the publisher's machine."""
    for part in ("train", "test"):
        place = f"Hindi-English/{part}"
        recordings = {
            f"rec{n}{part[:2]}": [c.say(part, f"rec{n}", c.text(), start=0.1 + 0.6 * m) for m in range(2)]
            for n in range(2)
        }
        for name, some in recordings.items():
            c.write(f"{place}/{name}.wav", recorded(some, 16_000))
        every = [(f"{name}_{m}", name, one) for name, some in recordings.items() for m, one in enumerate(some)]
        c.write(
            f"{place}/transcripts/segments", [f"{key} {name} {one.start:.2f} {one.end:.2f}" for key, name, one in every]
        )
        c.write(f"{place}/transcripts/text", [f"{key} {one.txt}" for key, _, one in every])
        c.write(f"{place}/transcripts/wav.scp", [f"{name} /data/hindi/{part}/{name}.wav" for name in recordings])
        c.write(f"{place}/transcripts/utt2spk", [f"{key} {name}" for key, name, _ in every])


@layout()
def wsj_dots(c: Corpus) -> None:
    for part, folder in (("train", "si_tr_s"), ("dev", "si_dt_05")):
        rows = [
            f"{c.audio(f'wsj/{folder}/01{n}/01{n}c020{n}{part[0]}.wav', part).upper()} (01{n}c020{n}{part[0]})"
            for n in range(3)
        ]
        for n in range(3):
            c.said[n - 3] = c.said[n - 3]._replace(txt=(c.said[n - 3].txt or "").upper(), part="train")
        c.write(f"wsj/transcrp/{folder}.dot", rows)


@layout()
def switchboard_like(c: Corpus) -> None:
    for name in ("conv01", "conv02"):
        some = [c.say("train", name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
        c.write(f"wav/{name}.wav", recorded(some, 16_000))
        c.write(
            f"trans/{name}.csv",
            ["start,end,speaker,text", *(f"{one.start:.3f},{one.end:.3f},A,{one.txt}" for one in some)],
        )


@layout()
def subtitles(c: Corpus) -> None:
    for name in ("talk1", "talk2"):
        some = [c.say("train", name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
        c.write(f"{name}.wav", recorded(some, 16_000))
        c.write(
            f"{name}.srt",
            [
                line
                for n, one in enumerate(some, 1)
                for line in (
                    str(n),
                    f"00:00:0{one.start:.3f} --> 00:00:0{one.end:.3f}".replace(".", ","),
                    str(one.txt),
                    "",
                )
            ],
        )


@layout()
def tuda_xml(c: Corpus) -> None:
    for part in ("train", "dev"):
        for n in range(3):
            base = f"german-speechdata/{part}/2014-03-17-13-0{n}{part[0]}"
            said = c.audio(f"{base}_Kinect-Beam.wav", part)
            c.write(
                f"{base}.xml",
                f"<?xml version='1.0'?><recording><speaker_id>a{n}</speaker_id><gender>male</gender>"
                f"<sentence>{said.title()}</sentence><cleaned_sentence>{said}</cleaned_sentence></recording>",
            )
            c.said[-1] = c.said[-1]._replace(txt=said.title())


@layout()
def json_by_id(c: Corpus) -> None:
    c.write("annotations.json", json.dumps({f"clip{n}": c.audio(f"audio/clip{n}.ogg") for n in range(4)}))


@layout()
def iemocap(c: Corpus) -> None:
    """Words and emotions of dialogs in files of equal names."""
    for session, dialog in product("12345", ("impro01", "impro02", "script01_1")):
        words, moods = list[str](), ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""]
        for n in range(3):
            name = f"Ses0{session}F_{dialog}_F00{n}"
            said = c.audio(f"Session{session}/sentences/wav/{name[:-5]}/{name}.wav")
            words.append(f"{name} [00{n}.2901-00{n}.9357]: {said}")
            moods += [
                f"[{n}.2901 - {n}.9357]\t{name}\tneu\t[2.5, 2.5, 2.5]",
                "C-E2:\tNeutral;\t()",
                "A-E3:\tval 3;\t()",
                "",
            ]
        for folder, lines in (("transcriptions", words), ("EmoEvaluation", moods)):
            c.write(f"Session{session}/dialog/{folder}/{name[:-5]}.txt", lines)


@layout()
def json_by_room(c: Corpus) -> None:
    """Objects by ID in objects by ID; the same names in each folder."""
    rooms = {
        room: {f"sub{n}a": {"rate": 16000, "text": c.audio(f"Dataset/{room}/sub{n}a.wav")} for n in range(3)}
        for room in ("Studio", "Chamber")
    }
    c.write("Dataset/info.json", json.dumps(rooms))


@layout()
def ids_of_splits(c: Corpus) -> None:
    rows = []
    names: dict[str, list[str]] = {}
    for part, n in list(c.parts())[:6]:
        rows.append(f"{part[0]}{n}x|{c.audio(f'wavs/{part[0]}{n}x.wav', part)}")
        names.setdefault(part, []).append(f"{part[0]}{n}x")
    c.write("metadata.csv", rows)
    tables(c, names, "splits/{}.txt")


@layout()
def zip_of_speakers(c: Corpus) -> None:
    for speaker in ("A01", "B02"):
        for n in range(3):
            c.put(
                f"{speaker}.zip",
                f"{speaker}/{speaker}_{n}a.txt",
                c.audio(f"{speaker}/{speaker}_{n}a.wav", archive=f"{speaker}.zip"),
            )


@layout()
def coraal(c: Corpus) -> None:
    """Tables of a recording each, with times by names of their own."""
    for name, some in calls(c, "DCA_audio/{}.wav").items():
        rows = [f"{n}\tspk\t{one.start:.3f}\t{one.txt}\t{one.end:.3f}" for n, one in enumerate(some)]
        c.write(f"DCA_textfiles/{name}.txt", ["Line\tSpkr\tStTime\tContent\tEnTime", *rows])


@layout()
def fisher(c: Corpus) -> None:
    for name, some in calls(c, "audio/000/{}.wav").items():
        rows = [f"{one.start:.2f} {one.end:.2f} A: {one.txt}\n" for one in some]
        c.write(f"trans/000/{name}.txt", [f"# {name}.sph", "# Transcribed at the LDC", "", *rows])


@layout()
def transcriber(c: Corpus) -> None:
    for name, some in calls(c, "{}.wav").items():
        turns = [f'<Turn startTime="{one.start}" endTime="{one.end}"><Sync/>\n{one.txt}\n</Turn>' for one in some]
        c.write(f"{name}.trs", ['<?xml version="1.0"?>', "<Trans><Section>", *turns, "</Section></Trans>"])


@layout()
def nchlt(c: Corpus) -> None:
    """XML with the names of recordings in attributes."""
    for part, short in (("train", "trn"), ("test", "tst")):
        names = [f"nchlt_afr/audio/00{n}/nchlt_afr_00{n}{short[1]}.wav" for n in range(3)]
        rows = [
            f'<recording audio="{name}" md5="1{part}"><orth>{c.audio(name, part)}</orth></recording>' for name in names
        ]
        speaker = ["<?xml version='1.0'?><corpus><speaker id='001' age='20'>", *rows, "</speaker></corpus>"]
        c.write(f"nchlt_afr/transcriptions/nchlt_afr.{short}.xml", speaker)


@layout()
def nst_danish(c: Corpus) -> None:
    """A name of two fields, of which one stands further up."""
    for pid in ("r5650072", "r5650073"):
        rows = [{"DST": "1", "file": f"u0{n}.wav", "text": c.audio(f"da/{pid}/{pid}_u0{n}.wav")} for n in range(3)]
        document = {"info": dict.fromkeys("abcdefgh", "37"), "pid": pid, "val_recordings": rows}
        c.write(f"meta/{pid}.json", json.dumps(document))


@layout()
def commands_of_kaldi(c: Corpus) -> None:
    rows = [(f"gw{n}", c.audio(f"audios/gw{n}.wav")) for n in range(4)]
    c.write("train/text", [f"{key} {said}" for key, said in rows])
    c.write("train/wav.scp", [f"{key} sox audios/{key}.wav -r 16k -t wav - |" for key, _ in rows])


@layout(CHINESE)
def csmsc(c: Corpus) -> None:
    """Pronunciations in lines of their own, and files of labels called as the recordings."""
    rows = []
    for n in range(4):
        rows += [f"00000{n}\t{c.audio(f'Wave/00000{n}.wav')}", "\tka2 er2 pu3 pei2"]
        c.write(f"PhoneLabeling/00000{n}.interval", ['File type = "ooTextFile"', "0", "1.2", "sil"])
    c.write("ProsodyLabeling/000001-010000.txt", rows)


@layout()
def must_c(c: Corpus) -> None:
    """Texts line by line with a YAML of segments, in two languages."""
    for part, offset in (("train", 0), ("dev", 2)):
        rows, said, other = [], [], []
        for name in (f"ted_{offset}", f"ted_{offset + 1}"):
            some = [c.say(part, name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
            c.write(f"en-de/data/{part}/wav/{name}.wav", recorded(some, 16_000))
            rows += [f"- {{duration: {one.seconds}, offset: {one.start:.1f}, rW: 9, wav: {name}.wav}}" for one in some]
            said += [one.txt or "" for one in some]
            other += [f"nicht {one.txt}" for one in some]
        for ending, lines in (("yaml", rows), ("en", said), ("de", other)):
            c.write(f"en-de/data/{part}/txt/{part}.{ending}", lines)


@layout()
def babel(c: Corpus) -> None:
    """Texts between the lines of times."""
    for name, some in calls(c, "training/audio/{}.wav").items():
        lines = [
            line for one in some for line in (f"[{one.start:.3f}]", str(one.txt), f"[{one.end:.3f}]", "<no-speech>")
        ]
        c.write(f"training/transcription/{name}.txt", ["[0.000]", "<no-speech>", *lines, "[9.000]"])


@layout()
def europarl_st(c: Corpus) -> None:
    """Texts line by line with a list of recordings and times, in two languages."""
    for part, offset in (("train", 0), ("dev", 2)):
        rows, said = [], []
        for name in (f"en.{offset}", f"en.{offset + 1}"):
            some = [c.say(part, name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
            c.write(f"en/audios/{name}.wav", recorded(some, 16_000))
            rows += [f"{name} {one.start:.2f} {one.end:.2f}" for one in some]
            said += [one.txt or "" for one in some]
        for ending, lines in (("lst", rows), ("en", said), ("de", [f"nicht {one}" for one in said])):
            c.write(f"en/de/{part}/segments.{ending}", lines)


@layout()
def mtedx(c: Corpus) -> None:
    """Texts line by line with Kaldi's segments, which are called otherwise, and subtitles beside."""
    for part, own in (("train", "train"), ("dev", "valid")):
        rows, said = [], []
        for name in (f"1aXc{own[0]}", f"2bYd{own[0]}"):
            some = [c.say(part, name, c.text(), start=0.1 + 0.6 * n) for n in range(3)]
            c.write(f"es-es/data/{own}/wav/{name}.flac", recorded(some, 16_000, "FLAC"))
            rows += [f"{name}_{n:04d} {name} {one.start:.2f} {one.end:.2f}" for n, one in enumerate(some)]
            said += [one.txt or "" for one in some]
        c.write(f"es-es/data/{own}/txt/segments", rows)
        c.write(f"es-es/data/{own}/txt/{own}.es", said)


@layout(KOREAN)
def ai_hub(c: Corpus) -> None:
    """A JSON for each recording, of objects that are unlike, in a tree of its own."""
    for part, number in c.parts():
        place = {"train": "Training", "dev": "Validation", "test": "Test"}[part]
        text = c.audio(f"{place}/[원천]{part}/F000/F{number}_{part}.wav", part)
        said = {"stt": text, "scriptId": "1", "fileNm": f"F{number}_{part}.wav", "recrdTime": "0.4"}
        whole = {
            "발화정보": said,
            "대화정보": {"recrdEnvrn": "집", "cityCode": "서울"},
            "녹음자정보": {"gender": "여", "age": "30대"},
        }
        c.write(f"{place}/[라벨]{part}/F000/F{number}_{part}.json", [json.dumps(whole, ensure_ascii=False, indent=1)])


@layout()
def labels_of_htk(c: Corpus) -> None:
    """A file of labels for each speaker, a word a line."""
    for speaker in ("F02", "M01"):
        rows = ["#!MLF!#"]
        for number in range(3):
            text = c.audio(f"audio/{speaker}/{speaker}_B1_C{number}.wav")
            rows += [f'"*/{speaker}_B1_C{number}.lab"', *text.split(), "."]
        c.write(f"mlf/{speaker}/{speaker}_word.mlf", rows)


@layout()
def commas_in_texts(c: Corpus) -> None:
    """OpenSLR 83: texts with commas that no quotes tell from the others."""
    rows = [f"EN{n:04d}, sef_{n:05d}, {c.audio(f'female/sef_{n:05d}.wav', text=own)}" for n, own in enumerate(COMMAS)]
    c.write("female/line_index.csv", rows)
