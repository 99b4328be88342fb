"""Groups I and J of published corpora: stm, TextGrid and NXT, which describe recordings; labels without audio."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from corpora_small.making import PAUSE, Build, Making, Said, encoded, line, recorded, sphere, spoken


def tedlium3(c: Making) -> None:
    archive, root = "TEDLIUM_release-3.tgz", "TEDLIUM_release-3/legacy"
    for part in ("train", "dev", "test"):
        for talk in (f"911Mothers_2010W_{part}", f"AaronHuey_2010X_{part}"):
            lines, placed = [f"{talk} 1 {talk} 0.00 0.09 <o,f0,male> {{NOISE}}"], []
            c.lose(part, "dropped")
            for number in range(4):
                start = round(0.1 + 0.6 * number, 2)
                key = f"{talk}-{round(start * 1000):08d}"
                said = c.say(part, key, "it's the thing", talk, start=start)
                placed.append(said)
                text = "it 's {NOISE} the <unk> thing"
                if number == 2:
                    c.said.remove(said)
                    c.lose(part, "dropped")
                    text = "ignore_time_segment_in_scoring"
                lines.append(f"{talk} 1 {talk} {start:.2f} {said.end:.2f} <o,f0,male> {text}")
            samples = np.zeros(round((placed[-1].end + PAUSE) * 16_000), np.float32)
            for said in placed:
                begin = round((said.start or 0) * 16_000)
                samples[begin : begin + round(said.seconds * 16_000)] = said.wave(16_000)
            c.put(archive, f"{root}/{part}/sph/{talk}.sph", sphere(samples))
            c.put(archive, f"{root}/{part}/stm/{talk}.stm", lines)


def textgrid(seconds: float, tiers: dict[str, list[tuple[float, float, str]]]) -> str:
    """A TextGrid in Praat's long form: intervals by the names of tiers."""
    out = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {seconds}",
        "tiers? <exists>",
    ]
    out += [f"size = {len(tiers)}", "item []:"]
    for number, (name, spans) in enumerate(tiers.items(), start=1):
        out += [
            f"    item [{number}]:",
            '        class = "IntervalTier"',
            f'        name = "{name}"',
            "        xmin = 0",
        ]
        out += [f"        xmax = {seconds}", f"        intervals: size = {len(spans)}"]
        for at, (start, end, text) in enumerate(spans, start=1):
            quoted = text.replace('"', '""')
            out += [f"        intervals [{at}]:", f"            xmin = {start}", f"            xmax = {end}"]
            out += [f'            text = "{quoted}"']
    return "\n".join(out) + "\n"


def aishell4(c: Making) -> None:
    for part in ("train_S", "test"):
        for number in range(2):
            name = f"2020062{number}_{part[0].upper()}_R001S0{number}C01"
            tiers: dict[str, list[tuple[float, float, str]]] = {}
            placed = []
            for turn in range(3):
                start, speaker = round(0.1 + 0.6 * turn, 2), f"{turn % 2 + 1:03d}-M"
                key = f"{name}-{speaker}-{start}"
                placed.append(c.say(part, key, "对我们开始", f"{name}-{speaker}", start=start))
                tiers.setdefault(speaker, []).append((start, round(placed[-1].end, 2), "<sil>对<%>我们<_>开始<$>"))
            length = round(placed[-1].end + PAUSE, 2)
            tiers["001-M"].insert(0, (0.0, 0.08, "<sil>"))
            c.lose(part, "dropped")
            filled = {speaker: _filled(spans, length) for speaker, spans in tiers.items()}
            c.put(f"{part}.tar.gz", f"{part}/TextGrid/{name}.TextGrid", textgrid(length, filled))
            c.put(f"{part}.tar.gz", f"{part}/wav/{name}.flac", _eight_channels(placed))
    c.put(
        "train_S.tar.gz",
        "train_S/TextGrid/20200623_S_R001S08C01.TextGrid",
        textgrid(1.0, {"001-M": [(0.0, 1.0, "x")]})[:-60],
    )
    c.put("train_S.tar.gz", "train_S/wav/20200623_S_R001S08C01.flac", _eight_channels(placed))
    c.lose("train_S", "bad_table")


def _filled(spans: list[tuple[float, float, str]], length: float) -> list[tuple[float, float, str]]:
    """Spans with the empty ones between them, as Praat wants a tier."""
    out, at = [], 0.0
    for span in spans:
        out += [(at, span[0], ""), span]
        at = span[1]
    return [*out, (at, length, "")]


def _eight_channels(said: list[Said]) -> bytes:
    """A recording of which only the first channel is loud."""
    samples = np.zeros((round((said[-1].end + PAUSE) * 16_000), 8), np.float32)
    for one in said:
        begin = round((one.start or 0) * 16_000)
        wave = one.wave(16_000)
        samples[begin : begin + len(wave), 0] = wave
        samples[begin : begin + len(wave), 1:] = np.roll(wave, 4)[:, None] * 0.25
    return encoded(samples, 16_000, "FLAC")


_NITE = 'xmlns:nite="http://nite.sourceforge.net/"'
_XML = '<?xml version="1.0" encoding="ISO-8859-1" standalone="yes"?>'


def ami(c: Making) -> None:
    archive, observations = "ami_public_manual_1.6.2.zip", []
    for meeting, part in {"ES2002a": "train", "ES2011a": "dev", "ES2004a": "test"}.items():
        speakers = []
        for channel, agent in enumerate("AB"):
            name = f"{'FM'[channel]}EE{channel + 5:03d}"
            speakers.append(
                f'<speaker nite:id="{meeting}.{agent}" nxt_agent="{agent}" global_name="{name}" channel="{channel}"/>'
            )
            segments, words, placed = [], [], []
            for number in range(2):
                start = round(0.2 + 1.2 * number + 0.6 * channel, 2)
                key = f"{meeting}-{name}-{start}"
                placed.append(c.say(part, key, "Okay, café right.", name, start=start))
                first, end = number * 4, round(placed[-1].end, 2)
                times = f'transcriber_start="{start}" transcriber_end="{end}"'
                segments.append(
                    f'<segment nite:id="{meeting}.sync.{agent}{number}" {times}>'
                    f'<nite:child href="{meeting}.{agent}.words.xml#id({meeting}.{agent}.words{first})..'
                    f'id({meeting}.{agent}.words{first + 3})"/></segment>'
                )
                spoken_words = [("Okay", ""), (",", 'punc="true" '), ("café", ""), ("right.", "")]
                for at, (word, more) in enumerate(spoken_words):
                    begins = round(start + 0.1 * at, 2)
                    words.append(
                        f'<w nite:id="{meeting}.{agent}.words{first + at}" starttime="{begins}" '
                        f'endtime="{round(begins + 0.1, 2)}" {more}>{word}</w>'
                    )
            words.append(f'<vocalsound nite:id="{meeting}.{agent}.words8" starttime="0" endtime="0.1" type="laugh"/>')
            segments.append(
                f'<segment nite:id="{meeting}.sync.{agent}9" transcriber_start="0" transcriber_end="0.1">'
                f'<nite:child href="{meeting}.{agent}.words.xml#id({meeting}.{agent}.words8)"/></segment>'
            )
            c.lose(part, "dropped")
            for kind, lines in (("segments", segments), ("words", words)):
                text = [_XML, f'<nite:root nite:id="{meeting}.{agent}.{kind}" {_NITE}>', *lines, "</nite:root>"]
                c.put(
                    archive,
                    f"{kind}/{meeting}.{agent}.{kind}.xml",
                    text,
                    encoding="iso-8859-1",
                    at="ami_public_manual_1.6.2",
                )
            audio = recorded(placed, 16_000, seconds=3.0)
            if channel:  # a few files are stereo
                samples = soundfile.read(io.BytesIO(audio), dtype="float32")[0]
                audio = encoded(np.stack([samples, np.roll(samples, 4000)], axis=1), 16_000)
            c.write(f"amicorpus/{meeting}/audio/{meeting}.Headset-{channel}.wav", audio)
        observations.append(
            f'<meeting nite:id="m{meeting}" observation="{meeting}" type="scenario">{"".join(speakers)}</meeting>'
        )
    text = [_XML, f'<nite:root nite:id="meetings" {_NITE}>', *observations, "</nite:root>"]
    c.put(archive, "corpusResources/meetings.xml", text, encoding="iso-8859-1", at="ami_public_manual_1.6.2")


def wsc_train(c: Making) -> None:
    archive = "WenetSpeech-Chuan.zip"
    for part in ("data1", "data2"):
        about = []
        for recording in range(2):
            name, rows = f"{part}_{recording:04d}", []
            for number in range(2):
                key = f"{name}_{number * 500}_{number * 500 + 400}"
                said = c.say("train", key, "要得嘛", f"{name}-1")
                path = f"{part}/{name}/{key}.wav"
                rows.append(line({
                    "wav_utt_id_timestamp": key, "wav_utt_id_timestamp_path": path, "audio_clip_id": number,
                    "timestamp": [number * 0.5, number * 0.5 + 0.4], "text": "要得嘛", "text_punc": "要得嘛。",
                    "confidence": 0.9, "spk_num": 1, "emotion": "neutral", "age": "ADULT", "gender": "Male",
                    "wvmos_score": 3.1,
                }))  # fmt: skip
                if (recording, number) == (1, 1):
                    c.said.remove(said)
                    c.lose("train", "no_audio")
                else:
                    c.write(f"clips/{path}", spoken(said))
            c.put(archive, f"{part}/audio_labels/{name}.jsonl", rows)
            about.append(line({
                "utt_id": name, "wav_utt_id": name, "source_audio_path": f"{name}.m4a", "audio_labels": f"{name}.jsonl",
                "url": "https://example.org/v",
            }))  # fmt: skip
        c.put(archive, f"{part}/metadata.jsonl", about)


CORPORA: dict[str, Build] = {"tedlium3": tedlium3, "aishell4": aishell4, "ami": ami, "wsc_train": wsc_train}
