"""Every later version reads states of version 1.0.0 (docs/versions.md): they load, and what follows is what followed.

``python tests/test_golden_state.py`` makes them again, in ``tests/golden/states.json``. That is right only as long as
1.0.0 is not published: from then on, a state that does not load any more is a fault of the code.
"""

import io
import json
import os
import tarfile
import tempfile
import wave
from pathlib import Path

import numpy as np
import pytest

import uio_pipes as uio
from uio_pipes.run.state import SCHEMA

GOLDEN = Path(__file__).with_name("golden") / "states.json"
TAKEN = 4  # batches before a state


def tone(number: int) -> bytes:
    """A wav file of 0.25 to 0.7 s at 16 kHz."""
    samples = np.sin(np.arange(4_000 + 700 * (number * 7 % 11)) * (0.05 + 0.01 * number)) * 8_000
    with wave.open(content := io.BytesIO(), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return content.getvalue()


def write_corpus() -> None:
    """Write 24 tones in two shards, 12 in files, and their lists to the working directory: alike on all machines."""
    os.mkdir("wav")
    rows = []
    with tarfile.open("0.tar", "w") as first, tarfile.open("1.tar", "w") as second:
        for number in range(36):
            key, audio = f"T{number:02d}", tone(number)
            if number % 3 == 0:
                Path(f"wav/{key}.wav").write_bytes(audio)
                rows.append(json.dumps({"key": key, "wav": f"wav/{key}.wav", "txt": key}))
                continue
            for suffix, content in (("txt", key.encode()), ("wav", audio)):
                member = tarfile.TarInfo(f"{key}.{suffix}")
                member.size = len(content)
                (first, second)[number % 2].addfile(member, io.BytesIO(content))
    Path("shards.list").write_text("0.tar\n1.tar\n")
    Path("raw.list").write_text("".join(f"{row}\n" for row in rows))


def loaders(num_workers: int = 0) -> dict[str, uio.Loader]:
    """A loader for each kind of buffer: with shuffle, sort and dynamic batches, and with ``bucket_batch``."""
    sources = {
        "shards": uio.from_shard_list("shards.list", shuffle=True),
        "raw": uio.from_raw_list("raw.list", shuffle=True),
    }
    features = uio.mix(sources, {"shards": 2, "raw": 1}).decode_audio().cache("cache").speed_perturb().fbank(80)
    pipelines = {
        "sorted": features.shuffle(8).sort(4).dynamic_batch(max_frames=200),
        "bucketed": features.bucket_batch(max_frames=200, window=10),
    }
    return {
        name: uio.Loader(pipeline.pad(), seed=777, lanes=2, num_workers=num_workers)
        for name, pipeline in pipelines.items()
    }


def made() -> dict[str, dict[str, object]]:
    """Return each loader's state, saved soon after weights and utterances were changed, and the rest of the epoch."""
    golden: dict[str, dict[str, object]] = {}
    for name, loader in loaders().items():
        batches = iter(loader)
        for _ in range(TAKEN - 1):
            next(batches)
        loader.reweight({"raw": 3})
        loader.exclude(["T07", "T30"])
        next(batches)
        golden[name] = {"state": loader.state_dict(), "rest": [batch["keys"] for batch in batches]}
    return golden


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", ["sorted", "bucketed"])
def test_a_state_of_1_0_0_goes_on_as_it_did(
    name: str, num_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus()
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert json.loads(golden["state"]["meta"])["schema"] == SCHEMA == 1
    assert len(golden["rest"]) > TAKEN
    loader = loaders(num_workers)[name]
    loader.load_state_dict(golden["state"])
    assert [batch["keys"] for batch in loader] == golden["rest"]
    assert loader.stats().utterances + loader.stats().skipped["excluded"] == 36


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    write_corpus()
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(made(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}, {GOLDEN.stat().st_size} bytes")
