"""Shards that the real Lhotse wrote."""

import io
import tarfile
import warnings
from pathlib import Path
from typing import Any

import corpus
import pytest

lhotse = pytest.importorskip("lhotse")


def cut_set(root: Path, count: int, *, features: bool = False) -> Any:
    """Cuts of a part of a recording each, with text, speaker, language, and a field of their own."""
    root.mkdir(parents=True, exist_ok=True)
    cuts = []
    for i in range(count):
        (root / f"a{i}.wav").write_bytes(corpus.wav_bytes(i, seconds=(0.8, 1.5)))
        recording = lhotse.Recording.from_file(root / f"a{i}.wav", recording_id=f"rec{i}")
        said = lhotse.SupervisionSegment(
            id=f"s{i}",
            recording_id=f"rec{i}",
            start=0,
            duration=0.4,
            text=f"文 {i}",
            speaker=f"S{i % 3}",
            language="zh",
        )
        cut = lhotse.MonoCut(
            id=f"c{i:03d}",
            start=0.25,
            duration=0.5,
            channel=0,
            recording=recording,
            supervisions=[said],
            custom={"snr": i / 2},
        )
        cuts.append(cut)
    found = lhotse.CutSet.from_cuts(cuts)
    if features:
        extractor = lhotse.Fbank(lhotse.FbankConfig(sampling_rate=8000))
        found = found.compute_and_store_features(extractor, root / "feats", storage_type=lhotse.NumpyFilesWriter)
    return found


def write_shar(folder: Path, cuts: Any, size: int | None = 4, **fields: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cuts.to_shar(folder, fields=fields or {"recording": "flac"}, shard_size=size)
    return folder


def rewrite(path: Path, keep: Any) -> None:
    """The tar with those members for which ``keep(name)`` holds."""
    buffer = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old:
            if keep(member.name):
                new.addfile(member, old.extractfile(member))
    path.write_bytes(buffer.getvalue())
