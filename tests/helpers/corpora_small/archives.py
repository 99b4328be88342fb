"""Groups D and E of published corpora: tars of audio with their table elsewhere, or with a JSON for each utterance."""

from __future__ import annotations

from corpora_small.making import PAUSE, Build, Making, Said, encoded, line, recorded, spoken, tarred


def gigaspeech2(c: Making) -> None:
    for lang in ("th", "vi"):
        raw, refined = list[str](), list[str]()
        for shard in ("0", "1"):
            for video in (0, 1):
                for number in (0, 1):
                    key = f"{shard}-{video}-{number}"
                    said = c.say("raw", key, "สวัสดี ครับ", None, lang)
                    raw.append(f"{key}\tสวัสดี ครับ")
                    if number == 0:
                        c.said.append(said._replace(part="refined", txt="สวัสดีครับ"))
                        refined.append(f"{key}\tสวัสดีครับ")
                    c.put(
                        f"data/{lang}/train/{shard}.tar.gz",
                        f"{shard}/{video}/{key}.wav",
                        spoken(said),
                        at=f"data/{lang}/train",
                    )
        if c.downloaded:
            c.lose("refined", "no_row", 4)
        refined.append("1-9-9\tไม่มี")
        c.lose("refined", "no_audio")
        c.write(f"data/{lang}/train_raw.tsv", raw)
        c.write(f"data/{lang}/train_refined.tsv", refined)
        for part in ("dev", "test"):
            said = c.say(part, "0-0-1", "ทดสอบ", None, lang)
            c.put(f"data/{lang}/{part}.tar.gz", "0/0/0-0-1.wav", spoken(said), at=f"data/{lang}/{part}")
            c.write(f"data/{lang}/{part}.tsv", ["0-0-1\tทดสอบ"])


def fleurs(c: Making) -> None:
    for lang in ("en_us", "pl_pl"):
        for part in ("train", "dev", "test"):
            rows = []
            for number in range(3):
                file = f"{lang.encode().hex()}{part}{number:04d}".replace("_", "")
                said = c.say(part, file, "a tornado is a spinning column", None, lang)
                subtype = "FLOAT" if number == 2 else "PCM_16"
                wave = said.wave(16_000)
                audio = encoded(wave, 16_000, subtype=subtype)
                rows.append(
                    f'{903 + number // 2}\t{file}.wav\tA "tornado is a spinning column.\ta tornado is a spinning column'
                    f"\ta | t o r n a d o |\t{len(wave)}\tFEMALE"
                )
                c.put(f"data/{lang}/audio/{part}.tar.gz", f"{part}/{file}.wav", audio, at=f"data/{lang}/audio")
            c.write(f"data/{lang}/{part}.tsv", rows)


def voxpopuli(c: Making) -> None:
    """The form on Hugging Face's hub."""
    for hour, part in enumerate(("train", "dev", "test"), start=16):
        rows = ["id\traw_text\tnormalized_text\tspeaker_id\tsplit\tgender\tis_gold_transcript\taccent"]
        for number in range(4):
            key = f"20090202-0900-PLENARY-3-en_20090202-{hour}:{number:02d}:11_{number}"
            said = c.say(part, key, "thank you mister president", f"{2800 + number}", "en")
            text = "thank you mister president"
            if number == 3:
                c.said.remove(said)
                c.lose(part, "not_kept")
                text = ""
            rows.append(f"{key}\tThank you, Mr President.\t{text}\t{2800 + number}\t{part}\tmale\tTrue\tNone")
            c.put(
                f"data/en/{part}/{part}_part_{number % 2}.tar.gz",
                f"{part}_part_{number % 2}/{key}.wav",
                spoken(said),
                at=f"data/en/{part}",
            )
        c.write(f"data/en/asr_{part}.tsv", rows)


def voxpopuli_original(c: Making) -> None:
    """The form of the corpus's own tools: sessions, and utterances that are made of the intervals with voice."""
    import gzip

    header = "session_id|id_|original_text|normed_text|speaker_id|split|gender|start_time|end_time|vad"
    rows, session = [header], "20090112-0900-PLENARY-3-en"
    at, placed = 0.0, []
    for number, part in enumerate(("train", "train", "dev", "test")):
        said = c.say(part, f"{session}-20090112-16:{number:02d}", "we resume", f"{900 + number}", "en")
        first = said._replace(seconds=0.2, start=round(at + 0.1, 3))
        second = said._replace(seconds=0.2, start=round(at + 0.5, 3))
        placed += [first, second]
        vad = [[first.start, round(first.end, 3)], [second.start, round(second.end, 3)]]
        rows.append(
            f"{session}|20090112-16:{number:02d}|We resume.|we resume|{900 + number}|{part}|male|{at}|{at + 0.8}|{vad}"
        )
        at = round(at + 1.0, 3)
    c.write(f"raw_audios/original/2009/{session}_original.ogg", recorded(placed, 16_000, "OGG"))
    c.write("annotations/asr/asr_en.tsv.gz", gzip.compress("".join(f"{row}\n" for row in rows).encode()))


def reazonspeech(c: Making) -> None:
    rows: dict[str, list[str]] = {"tiny": [], "small": []}
    for tar in range(2):
        for number in range(3):
            path = f"{tar:03x}/{number:014x}.flac"
            said = c.say("small", path.rpartition("/")[2][:-5] + f"{tar:x}", "こんにちは")
            path = f"{tar:03x}/{said.key}.flac"
            rows["small"].append(f"{path}\tこんにちは")
            if tar == 0:
                c.said.append(said._replace(part="tiny"))
                rows["tiny"].append(f"{path}\tこんにちは")
            c.put(f"v2/{tar:03x}.tar", path, spoken(said, form="FLAC"), at="v2")
    for size, lines in rows.items():
        c.write(f"v2-tsv/{size}.tsv", lines)


def yodas2(c: Making) -> None:
    for lang in ("en000", "en100"):
        for shard in range(2):
            entries, durations = [], []
            for number in range(2):
                video = f"ab_{shard}{number}"  # in both languages
                texts, placed = {}, []
                for place in range(2):
                    start = round(0.1 + 0.6 * place, 2)
                    key = f"{video}-{place:05d}-{round(start * 100):08d}-{round((start + 0.4) * 100):08d}"
                    placed.append(c.say("train", key, f"so line {place}", None, lang, start=start))
                    texts[key] = f"so line {place}"
                entries.append({"audio_id": video, "text": texts})
                durations.append(f"{video} {placed[-1].end + PAUSE:.3f}")
                audio = recorded(placed, 24_000)
                c.put(f"data/{lang}/audio/{shard:08d}.tar.gz", f"./{video}.wav", audio, at=f"data/{lang}/audio")
            c.write(f"data/{lang}/text/{shard:08d}.json", line(entries))
            c.write(f"data/{lang}/duration/{shard:08d}.txt", durations)


def duplexconv(c: Making) -> None:
    for part, count in (("Edu", 2), ("edu", 2), ("none_Edu", 3)):
        jsons, audios = {}, {}
        for number in range(1, 3):
            name = f"{part}--{number:06d}"
            tracks: list[list[dict[str, object]]] = [[] for _ in range(count)]
            placed, channels, at = list[Said](), list[int](), 0.1
            for turn in range(3):
                channel = turn % count
                start = round(at, 3)
                end_ms = round((start + 0.4) * 1000)
                entry: dict[str, object] = {
                    "startInMs": round(start * 1000),
                    "endInMs": end_ms,
                    "LID": "zh",
                    "speaker": f"S{channel}",
                }
                key = f"{name}-{channel}-{round(start * 1000)}"
                said = c.say(part, key, f"你好{turn}", f"{name}-{channel}", "zh", start=start)
                if turn == 2 and number == 2:
                    entry["sensitiveRedacted"] = True
                    c.said.remove(said)
                    c.lose(part, "not_kept")
                else:
                    entry |= {"labels": {"txt": f"你好{turn}"}, "state": "complete"}
                placed.append(said)
                channels.append(channel)
                tracks[channel].append(entry)
                at = said.end + PAUSE
            length = placed[-1].end
            audio = recorded(placed, 48_000, channels=channels, pause=-0.016)  # it ends before its last turn does
            jsons[f"{name}.json"] = line(
                {"nTrack": count, "timeLenInSec": length, "fs": 48_000, "asr": tracks}
            ).encode()
            audios[f"{name}.wav"] = audio
        for member, text in jsons.items():
            c.put(f"{part}/jsons.tar.gz", member, text, at=f"{part}/jsons")
        for member, audio in audios.items():
            c.put(f"{part}/audios/{part}_0001.tar", member, audio, at=f"{part}/audios")


def emilia(c: Making) -> None:
    for part, digits in (("Emilia", 5), ("Emilia-YODAS", 6)):
        for lang in ("EN", "DE"):
            members = {}
            for number in range(3):
                key = f"{lang}_B{0:0{digits}d}_S{0:0{digits}d}_W{number:06d}"
                said = c.say(
                    part,
                    key,
                    "You can help my mother",
                    f"{lang}_B{0:0{digits}d}_S{0:0{digits}d}",
                    lang.lower(),
                    seconds=0.504,
                )
                members[f"{key}.mp3"] = spoken(said, 32_000 if number == 2 else 24_000, "MP3")
                about = {
                    "id": key, "wav": f"{lang}/{key}.mp3", "text": " You can help my mother", "duration": 0.504,
                    "speaker": said.speaker, "language": lang.lower(), "dnsmos": 3.2,
                }  # fmt: skip
                members[f"{key}.json"] = line(about).encode()
            path = c.folder / part / lang / f"{lang}-B000000.tar"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tarred(members))


def emilia_first(c: Making) -> None:
    """The first release: a JSON a line beside each archive."""
    for lang in ("EN", "DE"):
        rows = []
        for number in range(3):
            speaker = f"{lang}_B00000_S{number // 2:05d}"
            key = f"{speaker}_W{number:06d}"
            said = c.say("Emilia", key, "You can help my mother", speaker, lang.lower(), seconds=0.504)
            path = f"{lang}_B00000/{speaker}/mp3/{key}.mp3"
            c.put(f"{lang}/{lang}_B00000.tar.gz", path, spoken(said, 24_000, "MP3"), at=lang)
            rows.append(line({
                "id": key, "wav": path, "text": " You can help my mother", "duration": 0.504, "speaker": speaker,
                "language": lang.lower(), "dnsmos": 3.37,
            }))  # fmt: skip
        c.write(f"{lang}/{lang}_B00000.jsonl", rows)


CORPORA: dict[str, Build] = {
    "gigaspeech2": gigaspeech2, "fleurs": fleurs, "voxpopuli": voxpopuli, "voxpopuli/original": voxpopuli_original,
    "reazonspeech": reazonspeech, "yodas2": yodas2, "duplexconv": duplexconv, "emilia": emilia,
    "emilia/first": emilia_first,
}  # fmt: skip
