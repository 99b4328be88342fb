"""Group A of published corpora: a transcript for a part or a folder, audio in files."""

from __future__ import annotations

from corpora_small.making import Build, Making, pcm, spoken


def aishell1(c: Making) -> None:
    lines = []
    for part, speakers in {"train": ("S0002", "S0003"), "dev": ("S0724",), "test": ("S0764",)}.items():
        for speaker in speakers:
            for number in (122, 123):
                key = f"BAC009{speaker}W{number:04d}"
                said = c.say(part, key, "而对楼市成交抑制作用ｂ", speaker)
                lines.append(f"{key} 而 对 楼市 成交 抑制 作用 ｂ")
                c.put(
                    f"data_aishell/wav/{speaker}.tar.gz",
                    f"{part}/{speaker}/{key}.wav",
                    spoken(said),
                    at="data_aishell/wav",
                )
    extra = c.say("train", "BAC009S0002W0999", None)
    c.said.remove(extra)
    for speaker in ("S0002", "S0999"):
        member = f"train/{speaker}/BAC009{speaker}W0999.wav"
        c.put(f"data_aishell/wav/{speaker}.tar.gz", member, spoken(extra), at="data_aishell/wav")
        c.lose("train", "no_row")
    lines += ["BAC009S0901W0123 没 有 录音", "BAC009S0002W0998 也 没 有"]
    for part in ("train", "dev", "test"):
        c.lose(part, "not_kept", len(lines) - sum(said.part == part for said in c.said))
    c.write("data_aishell/transcript/aishell_transcript_v0.8.txt", lines)


def aishell2(c: Making) -> None:
    for part, folder in {"train": "data", "dev": "dev", "test": "test"}.items():
        scp, texts = [], []
        for number in range(1, 4):
            key = f"IC0936W{number:04d}" if part == "train" else f"IT0011W{number:04d}"
            said = c.say(part, key, "打开Ａ Ｔ Ｍ let's go", key[1:6])
            path = f"wav/{key[1:6]}/{key}.wav"
            scp.append(f"{key}\t{path}")
            texts.append(f"{key}\t打开Ａ Ｔ Ｍ let's go")
            c.write(f"AISHELL-2/iOS/{folder}/{path}", spoken(said))
        texts.append(f"{key[:-1]}9\t没有")
        c.lose(part, "no_audio")
        c.write(f"AISHELL-2/iOS/{folder}/wav.scp", scp)
        c.write(f"AISHELL-2/iOS/{folder}/trans.txt", "".join(f"{text}\r\n" for text in texts))


def aishell3(c: Making) -> None:
    archive = "data_aishell3.tgz"
    c.put(
        archive,
        "spk-info.txt",
        ["# speaker\tage\tgender\taccent", "SSB0005\tB\tfemale\tnorth", "SSB0009\tB\tmale\tsouth"],
    )
    for part in ("train", "test"):
        lines = []
        for speaker in ("SSB0005", "SSB0009") if part == "train" else ("SSB0629",):
            for number in range(1, 3):
                key = f"{speaker}{number:04d}"
                said = c.say(part, key, "广州女大学生", speaker)
                lines.append(f"{key}.wav\t广 guang3 州 zhou1 女 nv3 大 da4 学 xue2 生 sheng1")
                c.put(archive, f"{part}/wav/{speaker}/{key}.wav", spoken(said, 44_100))
        c.put(archive, f"{part}/content.txt", lines)


def librispeech(c: Making) -> None:
    for part in ("train-clean-100", "dev-clean"):
        for speaker, chapter in ((84, 121123), (84, 121550), (174, 50561)):
            name, texts = f"LibriSpeech/{part}/{speaker}/{chapter}", []
            for number in range(2):
                key = f"{speaker}-{chapter}-{number:04d}"
                said = c.say(part, key, f"GO {number} DO YOU HEAR", str(speaker))
                texts.append(f"{key} GO {number} DO YOU HEAR")
                c.put(f"{part}.tar.gz", f"{name}/{key}.flac", spoken(said, form="FLAC"))
            c.put(f"{part}.tar.gz", f"{name}/{speaker}-{chapter}.trans.txt", texts)


def libritts(c: Making, root: str = "LibriTTS") -> None:
    for part in ("train-clean-100", "dev-clean"):
        archive = f"{part if root == 'LibriTTS' else part.replace('-', '_')}.tar.gz"
        for speaker, chapter in ((84, 121123), (1092, 134562)):
            name, rows = f"{root}/{part}/{speaker}/{chapter}", []
            for number in range(2):
                key = f"{speaker}_{chapter}_{number:06d}_{number:06d}"
                said = c.say(part, key, f'Go {number}, "do you hear?', str(speaker))
                rows.append(f'{key}\tGo {number}, "Do you Hear?\tGo {number}, "do you hear?')
                c.put(archive, f"{name}/{key}.wav", spoken(said, 24_000))
                c.put(archive, f"{name}/{key}.normalized.txt", f'Go {number}, "do you hear?')
                c.put(archive, f"{name}/{key}.original.txt", f'Go {number}, "Do you Hear?')
            c.put(archive, f"{name}/._{speaker}_{chapter}.trans.tsv", b"\0\5\x16\7 made by macOS")
            c.put(archive, f"{name}/._{key}.wav", b"\0\5\x16\7 made by macOS")
            c.put(archive, f"{name}/{speaker}_{chapter}.trans.tsv", rows)
            c.put(archive, f"{name}/{speaker}_{chapter}.book.tsv", [f"{key}9\tNo\tno\t1\t2\t30.5"])


def mls(c: Making, kind: str = "_opus", form: str = "OPUS") -> None:
    root = f"mls_polish{kind}"
    archive = f"{root}.tar.gz"
    c.put(archive, f"{root}/metainfo.txt", ["SPEAKER   |   GENDER   | PARTITION", " 6892     |  M         | train"])
    for at, part in enumerate(("train", "dev", "test")):
        texts, segments = [], []
        for speaker, book in ((6892, 10049 + at), (8758, 8340 + at)):
            for number in range(2):
                key = f"{speaker}_{book}_{number:06d}"
                said = c.say(part, key, "nie ma go żadna", str(speaker), "polish")
                texts.append(f"{key}\tnie ma go żadna")
                segments.append(f"{key}\thttp://archive.org/{book}.mp3\t401.76\t417.57")
                c.put(archive, f"{root}/{part}/audio/{speaker}/{book}/{key}.{form.lower()}", spoken(said, form=form))
        c.put(archive, f"{root}/{part}/transcripts.txt", texts)
        c.put(archive, f"{root}/{part}/segments.txt", segments)
        limited = f"{root}/train/limited_supervision"
        for name, keys in (
            {"9hr": texts[:2], "1hr/0": texts[2:3], "1hr/1": texts[3:]}.items() if part == "train" else ()
        ):
            c.put(archive, f"{limited}/{name}/handles.txt", [text.partition("\t")[0] for text in keys])


def ljspeech(c: Making) -> None:
    lines = []
    for number, quote in enumerate(('"open', "with", 'closed"'), start=1):
        key = f"LJ001-{number:04d}"
        said = c.say("train", key, f"Printing {quote} nineteen hundred")
        lines.append(f"{key}|Printing {quote} 1900|Printing {quote} nineteen hundred")
        c.put("LJSpeech-1.1.tar.bz2", f"LJSpeech-1.1/wavs/{key}.wav", spoken(said, 22_050))
    c.put("LJSpeech-1.1.tar.bz2", "LJSpeech-1.1/metadata.csv", lines)


def spgispeech(c: Making) -> None:
    for part in ("train", "val"):
        rows = ["wav_filename|wav_filesize|transcript"]
        for call in ("5e1f", "97ab"):
            for number in (1, 12):
                said = c.say(part, f"{call}/{number}", 'Revenue was "up 5%, Tim.', call)
                audio = spoken(said)
                rows.append(f'{call}/{number}.wav|{len(audio)}|Revenue was "up 5%, Tim.')
                c.write(f"spgispeech/{part}/{call}/{number}.wav", audio)
        c.write(f"{part}.csv", rows)


def ksponspeech(c: Making) -> None:
    rows: dict[str, list[str]] = {"train": [], "dev": [], "eval_clean": [], "eval_other": []}
    for number, part in enumerate(rows):
        for index in range(2):
            key = f"KsponSpeech_{number * 10 + index:06d}" if number < 2 else f"KsponSpeech_E{number * 10 + index:05d}"
            folder = "KsponSpeech_01/KsponSpeech_0001" if number < 2 else part
            raw = "o/ 그/ 일단 (70%)/(칠십 퍼센트) 네+ 나는* 갔다 b/"
            said = c.say(part, key, "그 일단 70% 네 나는 갔다")
            listed = f"{folder}/{key}.pcm" if number < 2 else f"KsponSpeech_eval/{folder}/{key}.pcm"
            rows[part].append(f"{listed} :: {raw}")
            c.write(f"{folder}/{key}.pcm", pcm(said))
            c.write(f"{folder}/{key}.txt", raw, encoding="cp949")
        silent = f"{folder}/{key[:-1]}9.pcm"
        rows[part].append(f"{silent if number < 2 else f'KsponSpeech_eval/{silent}'} :: b/")
        c.lose(part, "dropped")
        c.write(silent, bytes(3200))
        c.write(f"{part}.trn", rows[part])


def kespeech(c: Making) -> None:
    for part in ("train_phase1", "dev_phase1", "test"):
        tables: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": [], "utt2subdialect": []}
        for number in range(3):
            key = f"1000001_{part[:3]}{number:06d}"
            said = c.say(part, key, "在教室里面", "1000001")
            path = f"Audio/1000001/{part}/{key}.wav"
            tables["wav.scp"].append(f"{key} {path}")
            tables["text"].append(f"{key} 在教室<SPOKEN_NOISE>里面")
            tables["utt2spk"].append(f"{key} 1000001")
            tables["utt2subdialect"].append(f"{key} Zhongyuan")
            c.write(path, spoken(said))
        tables["text"].append(f"{key}9 <SPOKEN_NOISE>")
        c.lose(part, "dropped")
        for name, lines in tables.items():
            c.write(f"Tasks/ASR/{part}/{name}", lines)


CORPORA: dict[str, Build] = {
    "aishell1": aishell1, "aishell2": aishell2, "aishell3": aishell3, "librispeech": librispeech, "libritts": libritts,
    "libritts/r": lambda c: libritts(c, "LibriTTS_R"),
    "mls": mls, "mls/flac": lambda c: mls(c, "", "FLAC"),
    "ljspeech": ljspeech, "spgispeech": spgispeech, "ksponspeech": ksponspeech, "kespeech": kespeech,
}  # fmt: skip
