"""Groups B and C of published corpora: a TSV with a path column; files of the same stem."""

from __future__ import annotations

from corpora_small.making import Build, Making, line, sphere, spoken

_COLUMNS = (
    "client_id path sentence_id sentence sentence_domain up_votes down_votes age gender accents variant locale segment"
)


def commonvoice(c: Making) -> None:
    for lang in ("pl", "zh-CN"):
        _language(c, lang, f"{_RELEASE}-{lang}.tar.gz")


def commonvoice_newer(c: Making) -> None:
    """As downloaded from Mozilla Data Collective."""
    _language(c, "pl", "common-voice-scripted-speech-25-0-polish-0254cce0.tar.gz")


def commonvoice_older(c: Making) -> None:
    """Without durations."""
    _language(c, "pl", "", durations=False)


_RELEASE = "cv-corpus-17.0-2024-03-15"


def _language(c: Making, lang: str, archive: str, durations: bool = True) -> None:
    def put(path: str, content: bytes | list[str]) -> None:
        if archive:
            c.put(archive, path, content)
        else:
            c.write(path, content)

    root, clips = f"{_RELEASE}/{lang}", ["clip\tduration[ms]"]
    number = 20547774
    for part in ("train", "dev", "test"):
        rows = [_COLUMNS.replace(" ", "\t")]
        for rate in (32_000, 48_000, 48_000):
            number += 1
            clip = f"common_voice_{lang}_{number}.mp3"
            said = c.say(part, clip[:-4], 'Powiedział: "Nie.', f"{part}{rate:x}cafe", lang, seconds=0.504)
            rows.append(f'{said.speaker}\t{clip}\t{number:x}\tPowiedział: "Nie.\t\t2\t0\t\t\t\t\t{lang}\t')
            put(f"{root}/clips/{clip}", spoken(said, rate, "MP3"))
            clips.append(f"{clip}\t504")
        if part == "train":
            rows.append(f"abc\tcommon_voice_{lang}_1.mp3\t1\tBrak nagrania\t\t2\t0\t\t\t\t\t{lang}\t")
            c.lose(part, "no_audio")
        put(f"{root}/{part}.tsv", rows)
    if durations:
        put(f"{root}/clip_durations.tsv", clips)
    unlisted = c.say("train", f"common_voice_{lang}_7", None)
    c.said.remove(unlisted)
    put(f"{root}/clips/common_voice_{lang}_7.mp3", spoken(unlisted, 48_000, "MP3"))


def covost2(c: Making) -> None:
    for source, target in (("en", "de"), ("sv-SE", "en")):
        validated, translated = ["client_id\tpath\tsentence\tup_votes"], ["path\ttranslation\tsplit"]
        for number, split in enumerate(["train", "train", "train_covost", "dev", "test", "train"]):
            clip = f"common_voice_{source}_{100 + number}.mp3"
            part = "train" if split.startswith("train") else split
            said = c.say(part, clip[:-4], f'"Number {number}, he said.', f"{number:x}beef", source)
            translated.append(f'{clip}\t\\"Nummer {number}, sagte er.\t{split}')
            if number == 5:
                c.said.remove(said)  # it is no validated sentence any more
                continue
            validated.append(f'{said.speaker}\t{clip}\t"Number {number}, he said.\t2')
            c.write(f"{source}/clips/{clip}", spoken(said, 48_000, "MP3"))
        c.write(f"{source}/validated.tsv", validated)
        c.put(f"covost_v2.{source}_{target}.tsv.tar.gz", f"covost_v2.{source}_{target}.tsv", translated)
    for part in ("train", "dev", "test"):
        c.lose(part, "not_kept", 12 - sum(said.part == part for said in c.said))


def vctk(c: Making) -> None:
    archive = "VCTK-Corpus-0.92.zip"
    for speaker in ("p225", "p226", "p280", "p315"):
        for number in (1, 2):
            key = f"{speaker}_{number:03d}"
            said = c.say("train", key, "Please call Stella.", speaker)
            if speaker == "p315":
                c.said.remove(said)
                c.lose("train", "no_row")
            else:
                c.put(archive, f"txt/{speaker}/{key}.txt", "Please call Stella.\n")
            for mic in ("mic1",) if speaker == "p280" else ("mic1", "mic2"):
                c.put(archive, f"wav48_silence_trimmed/{speaker}/{key}_{mic}.flac", spoken(said, 48_000, "FLAC"))
    c.put(archive, "txt/p226/p226_009.txt", "Nobody said this.\n")
    c.lose("train", "no_audio")
    c.put(
        archive, "speaker-info.txt", ["ID  AGE  GENDER  ACCENTS  REGION", "p225  23  F    English    Southern  England"]
    )


def timit(c: Making) -> None:
    for part, folder in {"train": "TRAIN", "test": "TEST"}.items():
        for speaker in ("FCJF0", "MDAB0"):
            for sentence in ("SA1", "SI648"):
                said = c.say(part, f"{speaker}-{sentence}", "She had your dark suit.", speaker)
                samples = said.wave(16_000)
                base = f"data/{folder}/DR1/{speaker}/{sentence}"
                c.write(f"{base}.WAV", sphere(samples))
                c.write(f"{base}.TXT", f"0 {len(samples)} She had your dark suit.\n")
                c.write(f"{base}.WRD", ["3050 5723 she", "5723 6400 had"])
                c.write(f"{base}.PHN", ["0 3050 h#", "3050 4559 sh"])


def librilight(c: Making) -> None:
    for part in ("small", "medium"):
        for speaker, book in ((100, "sea_fairies_0812"), (1049, "emma_64kb")):
            for chapter in ("01_baum", "02_baum"):
                key = f"{part}/{speaker}/{book}/{chapter}"
                said = c.say(part, key, None, str(speaker), seconds=0.8)
                activity = [[0.1, 0.3], [0.4, 0.7]]
                c.put(f"{part}.tar", f"{key}.flac", spoken(said, form="FLAC"))
                about = {"speaker": str(speaker), "voice_activity": activity, "book_meta": {"id": "0812"}, "snr": 11.5}
                c.put(f"{part}.tar", f"{key}.json", line(about))


CORPORA: dict[str, Build] = {
    "commonvoice": commonvoice, "commonvoice/newer": commonvoice_newer, "commonvoice/older": commonvoice_older,
    "covost2": covost2, "vctk": vctk, "timit": timit, "librilight": librilight,
}  # fmt: skip
