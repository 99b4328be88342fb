"""Claims: chunks of dialogues with cached codes and aligned text equal those of a plain script; a run goes on exactly
within a dialogue. How fast both are is shown, and no target: most of the time goes into reading the JSON of the words.

300 stereo dialogues of a minute, with a word every 0.4 s, in the form of moshi-finetune; chunks of 20 s; 8 codes a
channel at 12.5 frames a second, made once by a stand-in for a codec. The script does what moshi-finetune does after its
codec, with torch's ``IterableDataset``: for each chunk it reads the JSON, tokenizes each word, makes the text stream
frame by frame and puts the codes, which it reads from a file of NumPy's, below it: ``python -m benchmarks.dialogues``.

And ``chunks`` of long dialogues takes as much memory for an hour as for ten minutes, and goes on at once within one:
features of two stereo FLAC files of noise at 16 kHz, side by side, in parts of 30 s, beside decoding them as a whole.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, rounds, sized, spread

MODULE = "benchmarks.dialogues"
DIALOGUES, SECONDS, CHUNK, BATCH = sized(300, 6), 60, 20, 8
RATE, HOP, K = 1_000, 80, 8  # Hz; what the codec hears does not matter here
OURS, PLAIN = "uio_pipes", "a plain script"
MINUTES, ROWS = sized((10, 60), (1, 2)), 2  # of long dialogues


def tokens_of(word: str) -> list[int]:
    """Return a token for each byte."""
    return [100 + byte for byte in word.encode()]


def codec(pcm: Any, lengths: Any) -> tuple[Any, Any]:
    """Return K numbers for each frame of channels (N, S)."""
    whole = pcm[:, : pcm.shape[1] // HOP * HOP].unflatten(1, (-1, K, HOP // K))
    return (whole.abs().amax(3) * 2047).short(), lengths // HOP


def dialogues(data: Path) -> Path:
    """Make the dialogues unless they are there; return their folder."""
    import numpy as np
    import soundfile
    import torch

    folder = data / f"dialogues-{DIALOGUES}"
    if (folder / "data.jsonl").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    words = ["yes", "nono", "wellwellwell", "then", "II", "seeseesee", "what", "aboutabout", "ititit", "fine"]
    for number in range(DIALOGUES):
        draws = np.random.default_rng(number)
        wav = draws.integers(-20_000, 20_000, (SECONDS * RATE, 2)).astype(np.int16)
        soundfile.write(folder / f"{number}.wav", wav, RATE)
        starts = np.arange(0.1, SECONDS - 1, 0.4) + draws.uniform(0, 0.2, len(np.arange(0.1, SECONDS - 1, 0.4)))
        said = [
            [words[draws.integers(10)], [round(at, 2), round(at + 0.3, 2)], ["SPEAKER_MAIN", "other"][n // 8 % 2]]
            for n, at in enumerate(starts.tolist())
        ]
        (folder / f"{number}.json").write_text(json.dumps({"alignments": said}))
        pcm = torch.from_numpy(wav.T.astype(np.float32) / 32768)
        codes, _ = codec(pcm, torch.tensor([pcm.shape[1]]))
        np.save(folder / f"{number}.npy", codes.transpose(1, 2).flatten(0, 1).numpy())  # (2K, T)
    rows = (json.dumps({"path": f"{number}.wav", "duration": float(SECONDS)}) for number in range(DIALOGUES))
    (folder / "data.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return folder


def graph(folder: Path) -> Any:
    """Return the pipeline up to the codes."""
    import uio_pipes as uio

    chunks = uio.from_moshi(str(folder / "data.jsonl")).segments(of="recording", cut_seconds=CHUNK, texts=None)
    return chunks.decode_audio(channel=[0, 1]).encoded(folder / "codes", ["feat"], by="stand-in")


def loader(folder: Path) -> Any:
    """Return the loader of whole batches."""
    import uio_pipes as uio

    batches = graph(folder).align(tokens_of).batch(BATCH)
    return uio.Loader(batches.pad(names={"feats": "codes"}, transpose=["feats"], order="kept"))


def plainly(folder: Path) -> Iterator[Any]:
    """Yield batches of codes (B, 1 + 2K, T) as a script makes them."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    frames = math.ceil(CHUNK * RATE / HOP)

    class Chunks(IterableDataset[Any]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for line in (folder / "data.jsonl").read_text().splitlines():
                row = json.loads(line)
                for start in range(0, int(row["duration"]), CHUNK):
                    codes = np.load(folder / row["path"].replace(".wav", ".npy"))
                    first = round(start * RATE / HOP)
                    codes = torch.from_numpy(codes[:, first : first + frames]).long()
                    said = json.loads((folder / row["path"].replace(".wav", ".json")).read_text())["alignments"]
                    text = torch.tensor(text_of(said, start, codes.shape[1]))
                    both = torch.cat([text[None], codes])
                    yield torch.nn.functional.pad(both, (0, frames - both.shape[1]), value=-1)

    yield from DataLoader(Chunks(), batch_size=BATCH)


def text_of(said: list[Any], start: float, frames: int) -> list[int]:
    """Return the token of each frame of a chunk, frame by frame."""
    words = [
        (tokens_of(word.strip()), begin - start, end - start)
        for word, (begin, end), speaker in said
        if start <= begin < start + CHUNK and begin < end and speaker == "SPEAKER_MAIN"
    ]
    row, waiting, number = [3] * frames, list[int](), 0
    for frame in range(frames):
        while number < len(words) and words[number][1] * 12.5 < frame + 1:
            waiting, number = list(words[number][0]), number + 1
        if waiting:
            if frame and row[frame - 1] == 3:
                row[frame - 1] = 0
            row[frame] = waiting.pop(0)
    return row


def long_dialogues(data: Path, minutes: int) -> list[dict[str, Any]]:
    """Make long dialogues unless they are there; return their rows."""
    import numpy as np
    import soundfile

    paths = [data / f"{minutes}-minutes-{number}.flac" for number in range(ROWS)]
    for number, path in enumerate(paths):
        draws = np.random.default_rng(number)
        if not path.exists():
            with soundfile.SoundFile(path, "w", 16_000, 2) as file:
                for _ in range(minutes):
                    file.write(draws.normal(0, 1_000, (60 * 16_000, 2)).astype(np.int16))
    return [{"key": path.stem, "wav": str(path)} for path in paths]


def _long(data: Path, minutes: int, whole: bool) -> dict[str, Any]:
    """Take an epoch of chunks of a second, and a batch from the state in its middle."""
    import torch

    import uio_pipes as uio
    from uio_pipes.stages.batches import chunk_rows, chunks

    if whole:
        chunks.PART = chunk_rows.PART = 1e9
    rows = uio.from_iterable(long_dialogues(data, minutes)).sharding_filter().decode_audio()
    graph = rows.fbank(80).chunks(1.0, 0.5, 0.5, rows=ROWS).pad()
    loader, before = uio.Loader(graph), _peak()
    cpu, total, middle, state = time.process_time(), 0, dict[str, Any](), {}
    for number, batch in enumerate(loader, 1):
        total += int(batch["feats"].view(torch.int32).sum())
        if number == 30 * minutes:
            state = loader.state_dict()
        elif number == 30 * minutes + 1:
            middle = batch
    cpu, peak = time.process_time() - cpu, _peak() - before
    loader, began = uio.Loader(graph), time.perf_counter()
    loader.load_state_dict(state)
    again = next(iter(loader))
    took = time.perf_counter() - began
    same = torch.equal(again["feats"], middle["feats"]) and again["keys"] == middle["keys"]
    speed = ROWS * 60 * minutes / cpu
    return {"cpu_speed": speed, "memory": peak, "resumed": took, "exact": float(same), "sum": str(total)}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def measure(data: str, way: str, minutes: int = 0) -> dict[str, Any]:
    """Make an epoch of batches in one way, or resume in the middle of it."""
    import torch

    if minutes:
        return _long(Path(data), minutes, way == "whole")

    import uio_pipes as uio

    folder = dialogues(Path(data))
    if way == "resume":
        return _resumed(folder)
    if way == OURS:
        uio.encode(uio.Loader(graph(folder).batch(BATCH).pad()), codec)
    run = (batch["codes"] for batch in loader(folder)) if way == OURS else plainly(folder)
    began, cpu, total, chunks = time.perf_counter(), time.process_time(), 0, 0
    for codes in run:
        chunks += len(codes)
        total += int(torch.hash_tensor(codes)) if hasattr(torch, "hash_tensor") else int(codes.sum())
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"chunks": chunks, "speed": chunks / took, "cpu_speed": chunks / cpu, "peak": _peak(), "sum": str(total)}


def _resumed(folder: Path) -> dict[str, Any]:
    """Stop after a batch that ends within a dialogue, and go on from its state."""
    import torch

    import uio_pipes as uio

    uio.encode(uio.Loader(graph(folder).batch(BATCH).pad()), codec)
    first = loader(folder)
    stop, rest, state = DIALOGUES * SECONDS // CHUNK // BATCH // 2, list[Any](), {}
    for number, batch in enumerate(first, 1):
        if number == stop:
            state = first.state_dict()
            last = batch["keys"][-1]
        elif number > stop:
            rest.append(batch["codes"])
    began = time.perf_counter()
    second = loader(folder)
    second.load_state_dict(state)
    batches = iter(second)
    found = [next(batches)["codes"]]
    took = time.perf_counter() - began
    found += [batch["codes"] for batch in batches]
    same = len(found) == len(rest) and all(map(torch.equal, found, rest))
    return {"exact": float(same), "batches": len(rest), "first": took, "after": last}


def main() -> None:
    """Measure all and write results/dialogues.md."""
    arguments = begin(measure, parser(__doc__, 3))
    dialogues(arguments.data)
    report = Report("dialogues", "Dialogues with aligned text")
    ways = {name: {"way": name} for name in (OURS, PLAIN)}
    made = report.ran(rounds(MODULE, ways, arguments.repeats, data=arguments.data))
    table = [
        [name, spread(one, "speed", ",.0f"), spread(one, "cpu_speed", ",.0f"), spread(one, "peak", ",.0f")]
        for name, one in made.items()
    ]
    heads = ["", f"chunks of {CHUNK} s a second", "a CPU second", "MB at most"]
    report.table(f"{DIALOGUES} dialogues of {SECONDS} s", heads, table, plot=[2])
    (resumed,) = rounds(MODULE, {"resume": {"way": "resume"}}, 1, data=arguments.data).values()
    seconds = f"{median(resumed, 'first'):.2f} s to the first batch"
    report.table("Resumed within a dialogue", ["batches left", ""], [[f"{median(resumed, 'batches'):.0f}", seconds]])
    report.target("a resume within a dialogue is exact", median(resumed, "exact") == 1, seconds)
    if len(made) == len(ways):
        same = {one["sum"] for several in made.values() for one in several}
        report.target("the codes are the same", len(same) == 1, f"{len(same)} checksum")
    for minutes in MINUTES:
        long_dialogues(arguments.data, minutes)
    ways = {
        f"{minutes} minutes, {'in parts' if way == 'parts' else 'as a whole'}": {"way": way, "minutes": minutes}
        for minutes in MINUTES
        for way in ("parts", "whole")
    }
    made = report.ran(rounds(MODULE, ways, arguments.repeats, data=arguments.data))
    table = [
        [name, spread(one, "cpu_speed", ",.0f"), spread(one, "memory", ",.0f"), spread(one, "resumed")]
        for name, one in made.items()
    ]
    heads = ["", "chunks of 1 s a CPU second", "MB for it", "s to the first batch, resumed in the middle"]
    report.table(f"Features of {ROWS} long dialogues side by side, in chunks", heads, table)
    if len(made) == len(ways):
        each = [{one["sum"] for way in ways if ways[way]["minutes"] == n for one in made[way]} for n in MINUTES]
        exact = all(one["exact"] for several in made.values() for one in several)
        report.target(
            "parts give the bits of the whole, and resume exactly",
            exact and {*map(len, each)} == {1},
            f"{len(made)} ways",
        )
        short, long = (median(made[name], "memory") for name, way in ways.items() if way["way"] == "parts")
        report.target(
            "an hour takes at most 1.5 × the memory of ten minutes", long <= 1.5 * short + 8, f"{long:.0f} MB"
        )
    report.write()


if __name__ == "__main__":
    main()
