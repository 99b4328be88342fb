"""``from_table`` on rows that are no lines of text: from the file to the samples, stopped and resumed anywhere."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

import uio_pipes as uio

RATE = 8000
TONES = 300 + 40 * np.arange(4)  # Hz, of each second of a recording
COUNT = 3


def recordings(root: Path, suffix: str, channels: int = 1, **how: str) -> None:
    """Recordings r0 … of 4 s, each second a tone of its own; further channels are the first one turned over."""
    for number in range(COUNT):
        t = np.arange(RATE) / RATE
        one = np.concatenate([0.3 * np.sin(2 * np.pi * (tone + 10 * number) * t) for tone in TONES])
        soundfile.write(root / f"r{number}{suffix}", np.stack([one, one[::-1]][:channels], 1), RATE, **how)


def tone_of(sample: uio.Sample) -> int:
    wav = np.asarray(sample["wav"][0])
    return round(float(np.abs(np.fft.rfft(wav)).argmax()) * RATE / len(wav))


def one_json(root: Path) -> uio.Pipeline:
    recordings(root, ".flac")
    audios = [
        {
            "aid": f"r{n}",
            "path": f"r{n}.flac",
            "segments": [{"sid": f"r{n}-{k}", "b": k, "e": k + 1, "text": f"t{k}"} for k in range(4)],
        }
        for n in range(COUNT)
    ]
    (root / "a.json").write_text(json.dumps({"dataset": "x", "audios": audios}))
    table = uio.Table(root / "a.json", expand="audios.segments")
    fields = {"key": "sid", "wav": "path", "txt": "text", "start": "b", "end": "e", "speaker": "aid"}
    return uio.from_table(table, fields=fields)


def stm_of_spheres(root: Path) -> uio.Pipeline:
    recordings(root, ".sph", format="NIST", subtype="PCM_16")
    for n in range(COUNT):
        lines = [f"r{n} 1 s{n} {k} {k + 1} <o,f0,male> t{k}\n" for k in range(4)]
        (root / f"r{n}.stm").write_text(";; a comment\n" + "".join(lines))
    fields = {"wav": "{recording}.sph", "txt": "text", "start": "start", "end": "end", "speaker": "speaker",
              "key": "{recording}-{start | m/\\d/}"}  # fmt: skip
    return uio.from_table(root / "*.stm", fields=fields)


def textgrids_in_a_tar(root: Path) -> uio.Pipeline:
    recordings(root, ".wav", channels=2)
    with tarfile.open(root / "grids.tar.gz", "w:gz") as tar:
        for n in range(COUNT):
            intervals = "".join(f'{k}\n{k + 1}\n"t{k}"\n' for k in range(4))
            text = f'"ooTextFile"\n"TextGrid"\n0\n4\n<exists>\n1\n"IntervalTier"\n"r{n}"\n0\n4\n4\n{intervals}'
            (root / "grid").write_text(text)
            tar.add(root / "grid", f"TextGrid/r{n}.TextGrid")
    table = uio.Table("*.TextGrid", within=root / "grids.tar.gz")
    fields = {"wav": "{recording}.wav", "txt": "text", "start": "start", "end": "end", "speaker": "tier",
              "key": "{recording}-{start | m/\\d/}", "channel": "'0'"}  # fmt: skip
    return uio.from_table(table, fields=fields, root=root)


def headerless(root: Path) -> uio.Pipeline:
    recordings(root, ".pcm", format="RAW", subtype="PCM_16")
    lines = [f"r{n}-{k}\tr{n}.pcm\t{k * RATE}\t{(k + 1) * RATE}\tt{k}\n" for n in range(COUNT) for k in range(4)]
    (root / "a.tsv").write_text("key\tpath\tfirst\tlast\ttext\n" + "".join(lines))
    fields = {"key": "key", "wav": "path", "txt": "text", "start": f"first | / {RATE}", "end": f"last | / {RATE}",
              "encoding": "'s16le'", "sample_rate": f"'{RATE}'", "speaker": "path | stem"}  # fmt: skip
    return uio.from_table(root / "a.tsv", fields=fields)


def parquet(root: Path) -> uio.Pipeline:
    import pyarrow as pa
    import pyarrow.parquet as pq

    recordings(root, ".ogg", format="OGG", subtype="OPUS")
    rows = [
        {"id": f"r{n}-{k}", "ms": [k * 1000, k * 1000 + 1000], "text": f"t{k}"} for n in range(COUNT) for k in range(4)
    ]
    pq.write_table(pa.Table.from_pylist(rows), root / "a.parquet")
    fields = {"key": "id", "wav": "{id | m/(.*)-/}.ogg", "txt": "text", "start": "ms.0 | ms", "end": "ms.1 | ms",
              "speaker": "id | [:2]"}  # fmt: skip
    return uio.from_table(root / "a.parquet", fields=fields)


CORPORA: dict[str, Callable[[Path], uio.Pipeline]] = {
    "one JSON": one_json,
    "stm": stm_of_spheres,
    "TextGrid": textgrids_in_a_tar,
    "headerless": headerless,
    "Parquet": parquet,
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_rows_lead_to_their_samples(tmp_path: Path, corpus: str) -> None:
    pipeline = CORPORA[corpus](tmp_path).decode_audio()
    got = [(s["key"], s["txt"], s["speaker"], tone_of(s)) for s in uio.Loader(pipeline)]
    assert got == [(f"r{n}-{k}", f"t{k}", f"r{n}" if corpus != "stm" else f"s{n}", TONES[k] + 10 * n)
                   for n in range(COUNT) for k in range(4)]  # fmt: skip


def test_intervals_are_one_utterance_and_planned_by_their_sum(tmp_path: Path) -> None:
    recordings(tmp_path, ".flac")
    rows = [
        {"key": f"r{n}", "wav": str(tmp_path / f"r{n}.flac"), "vad": "[[0.0, 0.5], [0.75, 1.0]]"} for n in range(COUNT)
    ]
    graph = uio.from_table(rows, fields={"key": "key", "wav": "wav", "intervals": "vad"})
    planned = graph.filter(min_frames=75, max_frames=76)
    assert [s["wav"].shape[1] for s in uio.Loader(planned.decode_audio())] == [RATE * 3 // 4] * COUNT
