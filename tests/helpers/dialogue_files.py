"""Long dialogues in small files: of two channels at 1 kHz, with a word in each second."""

import json
from pathlib import Path

import numpy as np
import soundfile

RATE = 1_000


def listed(folder: Path, seconds: list[float], form: str = "flac") -> Path:
    """Write recordings of so many seconds, each with a word in each second, and the list of moshi-finetune's form."""
    rows = []
    for number, length in enumerate(seconds):
        noise = np.random.default_rng(number).normal(0, 3_000, (round(length * RATE), 2)).astype(np.int16)
        soundfile.write(folder / f"R{number}.{form}", noise, RATE)
        words = [[f"{at}", [at + 0.2, at + 0.5], "ab"[at // 4 % 2]] for at in range(int(length))]
        (folder / f"R{number}.json").write_text(json.dumps({"alignments": words}))
        rows.append({"path": f"R{number}.{form}", "duration": round(length, 3)})
    path = folder / "list.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
