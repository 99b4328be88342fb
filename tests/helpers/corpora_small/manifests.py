"""Groups F, G and H of published corpora: Parquet with the audio in it; one JSON with segments; manifests."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpora_small.making import SECONDS, Build, Making, encoded, line, recorded, spoken


def parquet(c: Making, path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a file, two a row group."""
    target = c.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), target, row_group_size=2)


def mls_parquet(c: Making) -> None:
    """MLS as on Hugging Face's hub."""
    for lang, speaker in (("polish", "6892"), ("german", "1757")):
        for part in ("train", "dev", "test"):
            rows = []
            for number in range(3):
                key = f"{speaker}_10049_{number:06d}"
                said = c.say(part, key, "nie ma go żadna", speaker, lang, seconds=0.5)
                audio = {"bytes": spoken(said, 48_000, "OPUS"), "path": f"{key}.opus"}
                rows.append({
                    "audio": audio, "original_path": "http://archive.org/10049.mp3", "begin_time": 401.7,
                    "end_time": 402.2, "transcript": "nie ma go żadna", "audio_duration": 0.5, "speaker_id": speaker,
                    "chapter_id": "10049", "file": f"{key}.opus", "id": key,
                })  # fmt: skip
            parquet(c, f"{lang}/{part}-00000-of-00001.parquet", rows)


def peoples_speech(c: Making) -> None:
    for part in ("clean", "dirty", "validation", "test"):
        rows = []
        for number in range(3):
            key = f"07282016HFUUforum_SLASH_07282016HFUUforum_DOT_mp3_{number:05d}.flac"
            said = c.say(part, key, "i wanted to share a few things")
            audio = {"bytes": spoken(said, form="FLAC"), "path": key}
            rows.append({"id": key, "audio": audio, "duration_ms": 400, "text": "i wanted to share a few things"})
        parquet(c, f"{part}/{part}-00000-of-00001.parquet", rows)


def loquacious(c: Making) -> None:
    for subset, parts in {"small": ("train",), "large": ("train", "dev", "test")}.items():
        for part in parts:
            rows = []
            for number in range(3):
                key = f"{subset}_{part}_{number}"
                speaker = None if number == 1 else f"spk{number}"
                said = c.say(f"{subset}/{part}", key, "GOOD MORNING", speaker)
                audio = {"bytes": spoken(said), "path": f"{key}.wav"}
                about = {"spk_id": speaker, "sex": None, "text": "GOOD MORNING"}
                rows.append({"ID": key, "duration": SECONDS, "wav": audio, **about})
            parquet(c, f"{subset}/{part}-00000-of-00001.parquet", rows)


def yodas_granary(c: Making) -> None:
    for lang, code in (("it000", "it"), ("de100", "de")):
        for task in ("asr_only", "ast"):
            rows = []
            for number in range(3):
                key = f"{lang}_{task}_{number}"
                said = c.say(task, key, "Buongiorno a tutti.", None, code)
                translation = None if task == "asr_only" else "Good morning."
                rows.append({
                    "utt_id": key, "audio": {"bytes": spoken(said), "path": f"{key}.wav"},
                    "duration": SECONDS, "lang": f"<{code}>",
                    "task": task, "text": "Buongiorno a tutti.", "translation_en": translation,
                    "original_audio_id": "abc", "original_audio_offset": 1.5,
                })  # fmt: skip
            parquet(c, f"data/{lang}/{task}/00000000.parquet", rows)


def gigaspeech(c: Making) -> None:
    audios = []
    wanted = {"{XL}": "XL", "{L}": "L", "{XS}": "XS"}
    recordings = [
        ("P0001/POD0000000025", "podcast", ["{XL}", "{L}"]),
        ("P0001/POD0000000026", "podcast", ["{XL}", "{L}", "{XS}"]),
        ("Y0001/YOU0000000007", "youtube", ["{DEV}"]),
    ]  # fmt: skip
    for path, kind, subsets in recordings:
        aid, segments, placed = path.rpartition("/")[2], [], []
        for number in range(3):
            start = round(0.15 + 0.6 * number, 3)
            garbage = subsets == ["{DEV}"] and number == 1
            part = "DEV" if subsets == ["{DEV}"] else "XL"
            said = c.say(part, f"{aid}_S{number:07d}", "AS IT'S CALLED REALLY", None, start=start)
            placed.append(said)
            text = "<MUSIC>" if garbage else "AS IT'S CALLED <COMMA> REALLY <QUESTIONMARK>"
            if garbage:
                c.said.remove(said)
                c.lose(part, "dropped")
            segments.append({
                "sid": said.key, "speaker": "N/A", "begin_time": start, "end_time": round(said.end, 3), "text_tn": text,
                "subsets": subsets, "words": [],
            })  # fmt: skip
            for other in subsets[1:]:
                c.said.append(said._replace(part=wanted[other]))
        audio = recorded(placed, 16_000, "OPUS")
        c.write(f"audio/{kind}/{path}.opus", audio)
        audios.append({
            "aid": aid, "path": f"audio/{kind}/{path}.opus", "title": 'N/A "', "source": kind, "duration": 1.95,
            "sample_rate": 16_000, "channels": 1, "md5": "0", "subsets": subsets, "segments": segments,
        })  # fmt: skip
    c.write("GigaSpeech.json", line({"dataset": "GigaSpeech", "language": "EN", "version": "v1.0.0", "audios": audios}))


def wenetspeech(c: Making) -> None:
    audios = []
    recordings = {"Y0000000001_aaaa": ("train", ["L", "M", "S"], 1.0), "Y0000000002_bbbb": ("train", ["W"], 0.8),
                  "Y0000000003_cccc": ("dev", ["DEV"], 1.0)}  # fmt: skip
    for aid, (folder, subsets, confidence) in recordings.items():
        segments, placed = [], []
        for number in range(3):
            start = round(0.12 + 0.55 * number, 3)
            said = c.say(subsets[0], f"{aid}_S{number:05d}", "怎么样这些日子", None, start=start)
            c.said.extend(said._replace(part=other) for other in subsets[1:])
            placed.append(said)
            segments.append({
                "sid": said.key, "begin_time": start, "end_time": round(said.end, 3), "text": "怎么样这些日子",
                "confidence": confidence, "subsets": subsets,
            })  # fmt: skip
        path = f"audio/{folder}/youtube/B00000/{aid}.opus"
        c.write(path, recorded(placed, 16_000, "OPUS"))
        audios.append({"aid": aid, "duration": 1.8, "md5": "0", "path": path, "source": "youtube", "tags": ["drama"],
                       "url": "https://example.org/x", "segments": segments})  # fmt: skip
    c.write("WenetSpeech.json", line({"audios": audios}))


def libriheavy(c: Making) -> None:
    for part in ("small", "dev"):
        cuts = []
        for book in (f"100/sea_fairies_{part}/01_baum", f"1049/emma_{part}/02_austen"):
            placed = []
            for number in range(3):
                start = round(0.1 + 0.6 * number, 3)
                key = f"small/{book}_{number}"
                text = f'"Ruth, was it {number}?" inquired she.'
                said = c.say(part, key, text, book.partition("/")[0], "English", start=start)
                placed.append(said)
                custom = {"texts": [text, "RUTH WAS IT INQUIRED SHE"], "pre_texts": ["before it", "BEFORE IT"]}
                supervision = {
                    "id": key, "recording_id": f"small/{book}", "start": 0.0, "duration": SECONDS, "channel": 0,
                    "language": "English",
                    "speaker": said.speaker, "custom": custom,
                }  # fmt: skip
                source = {"type": "file", "channels": [0], "source": f"download/librilight/small/{book}.flac"}
                recording = {
                    "id": f"small/{book}", "sources": [source], "sampling_rate": 16_000, "num_samples": 29_600,
                    "duration": 1.85,
                    "channel_ids": [0],
                }  # fmt: skip
                cuts.append(line({
                    "id": key, "start": start, "duration": SECONDS, "channel": 0, "supervisions": [supervision],
                    "recording": recording, "type": "MonoCut",
                }))  # fmt: skip
            audio = recorded(placed, 16_000, "FLAC", seconds=1.85)
            c.write(f"download/librilight/small/{book}.flac", audio)
        c.write(f"libriheavy_cuts_{part}.jsonl.gz", gzip.compress("\n".join(cuts).encode()))


def granary(c: Making) -> None:
    for source in ("voxpopuli", "ytc"):
        rows, translated = [], []
        for number in range(3):
            key = f"{source}_{number}"
            said = c.say(source, key, "Guten Morgen zusammen.", None, "de")
            path = f"audio/{source}/{number:03d}.wav"
            c.write(path, encoded(said.wave(16_000), 16_000))
            about = {
                "utt_id": key, "audio_filepath": path, "duration": SECONDS, "offset": 0.0, "original_source_id": "x",
                "dataset_source": source, "source_lang": "de", "taskname": "asr",
            }  # fmt: skip
            rows.append(line({**about, "text": "Guten Morgen zusammen.", "target_lang": "de"}))
            translated.append(
                line({**about, "text": "Guten Morgen zusammen.", "answer": "Good morning.", "target_lang": "en"})
            )
        rows.append(
            line(
                {
                    "utt_id": "gone",
                    "audio_filepath": "audio/none.wav",
                    "duration": 1.0,
                    "text": "Weg.",
                    "source_lang": "de",
                }
            )
        )
        c.lose(source, "missing_file")
        c.write(f"de/{source}/de_asr.jsonl", rows)
        c.write(f"de/{source}/de_ast-en.jsonl", translated)


CORPORA: dict[str, Build] = {
    "mls/parquet": mls_parquet, "peoples_speech": peoples_speech, "loquacious": loquacious,
    "yodas_granary": yodas_granary, "gigaspeech": gigaspeech, "wenetspeech": wenetspeech, "libriheavy": libriheavy,
    "granary": granary,
}  # fmt: skip
