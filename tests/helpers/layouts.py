"""Small corpora without a card, in the layouts in which they are published; each utterance is a tone of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
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
def st_cmds(c: Corpus) -> None:
    for n in range(4):
        base = f"ST-CMDS-20170001_1-OS/20170001P0000{n}A0001"
        said = c.audio(f"{base}.wav")
        c.write(f"{base}.txt", said)
        c.write(f"{base}.metadata", ["SEX\tMale", "AGE\t23", f"ORS\t{said}"])


@layout(CHINESE)
def magicdata(c: Corpus) -> None:
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        name = f"5_54{n}_2017{n}.wav"
        rows.setdefault(part, []).append(f"{name}\t5_54{n}\t{c.audio(f'{part}/5_54{n}/{name}', part)}")
    tables(c, rows, "{}/TRANS.txt", "UtteranceID\tSpeakerID\tTranscription")
    c.write("SPKINFO.txt", ["SPKID\tAge\tGender\tDialect", "5_541\t23\tmale\thenan"])


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


@layout(KOREAN)
def zeroth(c: Corpus) -> None:
    for part, n in c.parts():
        if part != "dev":
            key = f"10{n}_003_000{n}"
            folder = f"{part}_data_01/003/10{n}"
            c.write(f"{folder}/10{n}_003.trans.txt", [f"{key} {c.audio(f'{folder}/{key}.flac', part)}"])
    c.write("AUDIO_INFO", ["SPEAKERID|NAME|SEX|SCRIPTID|DATASET", "100|김|m|003|train_data_01"])


@layout(JAPANESE)
def jsut(c: Corpus) -> None:
    for subset, key in (("basic5000", "BASIC5000"), ("onomatopee300", "ONOMATOPEE300")):
        rows = [f"{key}_000{n}:{c.audio(f'jsut_ver1.1/{subset}/wav/{key}_000{n}.wav')}" for n in range(3)]
        c.write(f"jsut_ver1.1/{subset}/transcript_utf8.txt", rows)
    c.write("jsut_ver1.1/ChangeLog.txt", ["ver1.1: more"] * 3)


@layout(JAPANESE)
def jvs(c: Corpus) -> None:
    for speaker in ("jvs001", "jvs002"):
        for style in ("parallel100", "whisper10"):
            folder = f"jvs_ver1/{speaker}/{style}"
            rows = [
                f"VOICEACTRESS100_00{n}:{c.audio(f'{folder}/wav24kHz16bit/VOICEACTRESS100_00{n}.wav')}"
                for n in range(2)
            ]
            c.write(f"{folder}/transcripts_utf8.txt", rows)
    c.write("jvs_ver1/gender_f0range.txt", ["speaker Male_or_Female minf0[Hz] maxf0[Hz]", "jvs001 M 70 200"])


@layout(KOREAN)
def kss(c: Corpus) -> None:
    rows = []
    for n in range(4):
        said = c.audio(f"kss/{n % 2}/{n % 2}_000{n}.wav")
        rows.append(f"{n % 2}/{n % 2}_000{n}.wav|{said}|{said}|{said}|{n}.5|He tried to seem fine {n}.")
    c.write("kss/transcript.v.1.4.txt", rows)


@layout()
def css10(c: Corpus) -> None:
    rows = []
    for n in range(4):
        said = c.audio(f"german/meisterfloh/meisterfloh_000{n}.wav")
        rows.append(f"meisterfloh/meisterfloh_000{n}.wav|{said}|{said}|{n}.25")
    c.write("german/transcript.txt", rows)


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
def cmu_arctic(c: Corpus) -> None:
    for speaker in ("bdl", "slt"):
        folder = f"cmu_us_{speaker}_arctic"
        rows = [f'( arctic_a000{n} "{c.audio(f"{folder}/wav/arctic_a000{n}.wav").capitalize()}." )' for n in range(3)]
        for n in range(3):
            c.said[n - 3] = c.said[n - 3]._replace(txt=f"{c.said[n - 3].txt}.".capitalize())
        c.write(f"{folder}/etc/txt.done.data", rows)


@layout()
def voxforge(c: Corpus) -> None:
    for speaker in ("anon-20080101-kaz", "bob-20090202-xyz"):
        rows = [(f"a000{n}", c.audio(f"{speaker}/wav/a000{n}.wav").upper()) for n in range(3)]
        for n in range(3):
            c.said[n - 3] = c.said[n - 3]._replace(txt=(c.said[n - 3].txt or "").upper())
        c.write(f"{speaker}/etc/PROMPTS", [f"{speaker}/mfc/{key} {said}" for key, said in rows])
        c.write(f"{speaker}/etc/README", ["User Name:anonymous", "Gender: male"])
        c.write(f"{speaker}/LICENSE", ["GPL"])


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
def fluent_speech_commands(c: Corpus) -> None:
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        path = f"wavs/speakers/spk{n}/{part}{n}-aa.wav"
        rows.setdefault({"dev": "valid"}.get(part, part), []).append(
            f"{n},{path},spk{n},{c.audio(path, part)},activate,lights,none"
        )
    tables(c, rows, "data/{}_data.csv", ",path,speakerId,transcription,action,object,location")


@layout()
def javanese_tts(c: Corpus) -> None:
    for side in ("female", "male"):
        c.write(
            f"jv_id_{side}/line_index.tsv",
            [f"jv{side[0]}_0{n}\t{c.audio(f'jv_id_{side}/wavs/jv{side[0]}_0{n}.wav')}" for n in range(3)],
        )


@layout()
def uk_english(c: Corpus) -> None:
    rows = [f"EN000{n}, sof_0{n}_0{n}, {c.audio(f'southern_english_female/sof_0{n}_0{n}.wav')}" for n in range(4)]
    c.write("southern_english_female/line_index.csv", rows)


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
def kazakh_ksc(c: Corpus) -> None:
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        key = f"5f{n}{part[:2]}c8"
        c.write(f"ISSAI_KSC/Transcriptions/{key}.txt", c.audio(f"ISSAI_KSC/Audios/{key}.wav", part))
        rows.setdefault(part, []).append(f"{key} {n}f")
    tables(c, rows, "ISSAI_KSC/Meta/{}.csv", "uttID deviceID")


@layout()
def mediaspeech(c: Corpus) -> None:
    for n in range(4):
        c.write(f"TR/a{n}b.txt", c.audio(f"TR/a{n}b.flac"))


@layout()
def samromur(c: Corpus) -> None:
    rows = []
    for part, n in c.parts():
        name = f"00{n}-{part[:2]}01.flac"
        said = c.audio(f"samromur_21.05/{part}/00{n}/{name}", part)
        rows.append(f"{n}\t00{n}\t{name}\t{said.capitalize()}.\t{said}\tmale\t20-29\t0.4\t{part}")
        c.said[-1] = c.said[-1]._replace(txt=f"{said.capitalize()}.")
    c.write(
        "samromur_21.05/metadata.tsv",
        ["id\tspeaker_id\tfilename\tsentence\tsentence_norm\tgender\tage\tduration\tstatus", *rows],
    )


@layout()
def esd(c: Corpus) -> None:
    for speaker in ("0011", "0012"):
        rows = [
            f"{speaker}_00000{n}\t{c.audio(f'ESD/{speaker}/{mood}/{speaker}_00000{n}.wav')}\t{mood}"
            for n, mood in enumerate(("Neutral", "Angry", "Happy"))
        ]
        c.write(f"ESD/{speaker}/{speaker}.txt", rows)


@layout()
def vctk_first(c: Corpus) -> None:
    for speaker in ("p225", "p226"):
        for n in range(3):
            c.write(
                f"VCTK-Corpus/txt/{speaker}/{speaker}_00{n}.txt",
                c.audio(f"VCTK-Corpus/wav48/{speaker}/{speaker}_00{n}.wav"),
            )
    c.write(
        "VCTK-Corpus/speaker-info.txt",
        ["ID  AGE  GENDER  ACCENTS  REGION", "225  23  F    English    Southern England"],
    )


@layout()
def audiofolder(c: Corpus) -> None:
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        rows.setdefault(part, []).append(f'clips/{n}.wav,"{c.audio(f"data/{part}/clips/{n}.wav", part)}, yes"')
        c.said[-1] = c.said[-1]._replace(txt=f"{c.said[-1].txt}, yes")
    tables(c, rows, "data/{}/metadata.csv", "file_name,transcription")


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
def librispeech_part(c: Corpus) -> None:
    for chapter in ("84-121123", "174-50561"):
        folder = f"LibriSpeech/dev-clean/{chapter.replace('-', '/')}"
        rows = [f"{chapter}-000{n} {c.audio(f'{folder}/{chapter}-000{n}.flac', 'dev')}" for n in range(3)]
        c.write(f"{folder}/{chapter}.trans.txt", rows)
    c.write("LibriSpeech/SPEAKERS.TXT", [";ID  |SEX| SUBSET", "84   | F | dev-clean | 8.02 | Christie Nowak"])


@layout()
def librispeech_bare(c: Corpus) -> None:
    for chapter in ("84-121123", "174-50561"):
        folder = chapter.replace("-", "/")
        c.write(
            f"{folder}/{chapter}.trans.txt",
            [f"{chapter}-000{n} {c.audio(f'{folder}/{chapter}-000{n}.flac')}" for n in range(3)],
        )


@layout()
def transcripts_beside_wavs(c: Corpus) -> None:
    c.write("transcripts.txt", [f"u{n} {c.audio(f'wavs/u{n}.wav')}" for n in range(4)])


@layout()
def folders_of_speakers(c: Corpus) -> None:
    """A table whose names of files lie in a folder for each speaker."""
    rows = [f"0{n}.wav\tspk{s}\t{c.audio(f'spk{s}/0{n}.wav')}" for s in (1, 2, 3) for n in (0, 1)]
    c.write("all.tsv", ["file\tspeaker\ttext", *rows])


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


@layout(KOREAN)
def pcm_of_cp949(c: Corpus) -> None:
    for n in range(4):
        c.write(f"Speech_01/S_000{n % 2}/S_00000{n}.txt", c.audio(f"Speech_01/S_000{n % 2}/S_00000{n}.pcm"), "cp949")


@layout()
def speech_commands(c: Corpus) -> None:
    for word in ("yes", "no", "seven"):
        for n in range(3):
            c.audio(f"{word}/0{n}a_nohash_{n}.wav", ("train", "dev", "test")[n], text=word)
    c.write("validation_list.txt", [f"{word}/01a_nohash_1.wav" for word in ("yes", "no", "seven")])
    c.write("testing_list.txt", [f"{word}/02a_nohash_2.wav" for word in ("yes", "no", "seven")])


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


@layout(CHINESE)
def ascend(c: Corpus) -> None:
    rows: dict[str, list[str]] = {}
    for part, n in c.parts():
        path = f"waves/ses{n}_{part}_L.wav"
        rows.setdefault({"dev": "validation"}.get(part, part), []).append(
            f"000{n},{path},{c.audio(path, part)},0.4,mixed,{n},1,education"
        )
    tables(
        c, rows, "{}_metadata.csv", "id,file_name,transcription,duration,language,original_speaker_id,session_id,topic"
    )


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
def split_column(c: Corpus) -> None:
    rows = [f"{n}{part},{part},audio/{n}{part}.wav,{c.audio(f'audio/{n}{part}.wav', part)}" for part, n in c.parts()]
    c.write("index.csv", ["utt,split,wav,sentence", *rows])


@layout()
def numbers_without_zeros(c: Corpus) -> None:
    c.write("texts.tsv", ["id\ttext", *(f"{n}\t{c.audio(f'clips/{n:05}.wav')}" for n in range(4))])


@layout()
def template_names(c: Corpus) -> None:
    c.write(
        "data.csv",
        ["speaker,number,text", *(f"s{s},{n},{c.audio(f'audio/s{s}_{n}.wav')}" for s in (1, 2) for n in (1, 2))],
    )


@layout()
def libritts_like(c: Corpus) -> None:
    for part, n in c.parts():
        base = f"Corp/{part}-clean/{n}1/{n}9/{n}1_{n}9_0000{n}_000000"
        said = c.audio(f"{base}.wav", part)
        c.write(f"{base}.normalized.txt", said)
        c.write(f"{base}.original.txt", said.title())


@layout()
def coraal(c: Corpus) -> None:
    """Tables of a recording each, with times by names of their own."""
    for name, some in calls(c, "DCA_audio/{}.wav").items():
        rows = [f"{n}\tspk\t{one.start:.3f}\t{one.txt}\t{one.end:.3f}" for n, one in enumerate(some)]
        c.write(f"DCA_textfiles/{name}.txt", ["Line\tSpkr\tStTime\tContent\tEnTime", *rows])


@layout()
def seame(c: Corpus) -> None:
    """Columns without names, times in milliseconds."""
    for name, some in calls(c, "audio/{}.flac", seconds=3.0).items():
        rows = [f"{name}\t{one.start * 1000:.0f}\t{one.end * 1000:.0f}\tCS\t{one.txt}" for one in some]
        c.write(f"transcript/phaseII/{name}.txt", rows)


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
def tedx_spanish(c: Corpus) -> None:
    rows = [f"{c.audio(f'speech/TEDX_F_00{n}.wav')} TEDX_F_00{n}" for n in range(4)]
    c.write("files/TEDx_Spanish.transcription", rows)


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
def arabic_speech(c: Corpus) -> None:
    rows = [f'"ARA NORM  000{n}.wav" "{c.audio(f"wav/ARA NORM  000{n}.wav")}"' for n in range(4)]
    c.write("orthographic-transcript.txt", rows)
    c.write("phonetic-transcript.txt", [row.replace("the", "th e0 ii1") for row in rows])


@layout(CHINESE)
def king_asr(c: Corpus) -> None:
    """Transcripts in UTF-16, each with a name that is nearly one of a recording."""
    for speaker in (0, 1):
        names = [f"0000{speaker}000{n}" for n in range(3)]
        rows = [f"{name}\t{c.audio(f'WAVE/SPEAKER000{speaker}/SESSION0/{name}.wav')}" for name in names]
        c.write(f"SCRIPT/0000{speaker}0.TXT", rows, "utf-16")


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
