"""Graphs whose states were saved once and for all: what a later version must load.

``PYTHONPATH=VERSION:tests:tests/helpers python -c "from golden import graphs; graphs.main()"`` writes ``NAME.json``, by
the version in that folder: the loader's state after some batches, and what came after it. The corpora are made anew in
the working directory from seeds, under relative paths, so that a state fits wherever the test runs. The digest is
written here once more, and not taken from ``contract``, because that imports modules which an earlier version does not
have.
"""

import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import kaldi_data
import shar_corpus
import touchdataset

import uio_pipes as uio

FOLDER = Path(__file__).parent
OPTIONS: dict[str, Any] = {"seed": 5, "lanes": 3, "rank": 0, "world_size": 1}
EPOCH, AT = 1, 4  # the state is of this epoch, after so many batches


def make_data() -> None:
    """All corpora, in the working directory."""
    corpus.shards(Path("tar"), [5, 3, 6, 4, 2, 5] * 2, seconds=(0.3, 1.5), damage=tuple(corpus.DAMAGE))
    corpus.shards(Path("gz"), [4, 7, 3, 5], seconds=(0.3, 1.5), compress="gz")
    corpus.raw_list(Path("raw"), 31)
    kaldi_data.recordings(Path("kaldi"), 14, segments=True)
    shar_corpus.shar(Path("shar"), [5, 3, 6, 2, 4])
    utterances = touchdataset.speech(27)
    for i in range(3):
        touchdataset.write(Path("touch") / str(i), utterances[9 * i : 9 * i + 9])
    symbols = ["<blank>", "<unk>", "<sos/eos>", "文", *"0123456789"]
    rows = [f"{key}\t{key}.wav\t文{number}\n" for number, key in enumerate(_keys_of("gz"))]
    Path("rows.tsv").write_text("".join(["key\tpath\ttext\n", *rows]))
    Path("dict.txt").write_text("".join(f"{symbol} {i}\n" for i, symbol in enumerate(symbols)))


def _keys_of(folder: str) -> list[str]:
    names: list[str] = []
    for path in sorted(Path(folder).glob("*.tar.gz")):
        with tarfile.open(path) as tar:
            names += tar.getnames()
    return [name.removesuffix(".wav") for name in names if name.endswith(".wav")]


def long_enough(sample: uio.Sample) -> bool:
    return len(sample["txt"]) > 1


def halves(sample: uio.Sample) -> list[dict[str, Any]]:
    return [dict(sample) | {"key": f"{sample['key']}-{part}"} for part in (0, 1)]


def _trained() -> uio.Pipeline:
    graph = uio.from_shard_list("tar/shards.list", shuffle=True).decode_audio().resample(16_000)
    graph = graph.speed_perturb([0.9, 1.0, 1.1]).tokenize(uio.CharTokenizer("dict.txt")).filter(min_frames=10)
    graph = graph.filter(long_enough).fbank(num_mel_bins=40, dither=0.1).spec_aug()
    return graph.shuffle(9).sort(5).dynamic_batch(max_frames=400).pad()


def _mixed() -> uio.Pipeline:
    tar = uio.from_shard_list("gz/shards.list", shuffle=True).shuffle(4)
    raw = uio.from_raw_list("raw/raw.list", shuffle=True)
    mixed = uio.mix({"tar": tar, "raw": raw}, {"tar": 2, "raw": 1}, stop="cycle")
    return mixed.decode_audio().volume_perturb().bucket_batch(max_frames=300, window=12).pad()


def _touch() -> uio.Pipeline:
    folders = [f"touch/{i}" for i in range(3)]
    return uio.from_indexed(folders, shuffle=True).flat_map(halves).decode_audio().shuffle(7).batch(3).pad()


def _kaldi() -> uio.Pipeline:
    return (
        uio.from_kaldi("kaldi", shuffle=True)
        .decode_audio()
        .mfcc(num_mel_bins=23, num_ceps=13)
        .repeat(2)
        .shuffle(6)
        .batch(3)
        .pad()
    )


def _shar() -> uio.Pipeline:
    return uio.from_lhotse_shar("shar", shuffle=True).decode_audio().concat(1.0).batch(1)


def _rows() -> uio.Pipeline:
    table = uio.from_table("rows.tsv", archives="gz/*.tar.gz", stream=True, fields={"wav": "path", "txt": "text"})
    graph = table.decode_audio().tokenize(uio.CharTokenizer("dict.txt")).filter(min_frames=uio.by_step({0: 10, 2: 40}))
    return graph.fbank(num_mel_bins=23).shuffle(5).pack(max_tokens=150, rows=2, window=6, length="frames")


GRAPHS: dict[str, Callable[[], uio.Pipeline]] = {
    "trained": _trained,
    "mixed": _mixed,
    "touch": _touch,
    "flat_map": _touch,  # saved by 166ae09: since then the state of flat_map says how many it has passed
    "kaldi": _kaldi,
    "shar": _shar,
    "rows": _rows,
}


def digest(value: Any) -> str:
    """Every bit of a batch."""
    sha = hashlib.sha1()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, dict):
        for key in sorted(value):
            sha.update(f"{key}:".encode())
            _feed(sha, value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _feed(sha, item)
    else:
        sha.update(f"{value!r};".encode())


def keys_of(batch: Any) -> list[str]:
    return list(batch["keys"]) if isinstance(batch, dict) else [sample["key"] for sample in batch]


def described(batch: Any) -> dict[str, Any]:
    """What is the same on every machine, and a digest of the bits, which is so on machines of one kind."""
    lengths = (
        [name for name in batch if name.endswith("length") or name.endswith("lengths")]
        if isinstance(batch, dict)
        else []
    )
    return {"keys": keys_of(batch), "lengths": {n: batch[n].tolist() for n in lengths}, "bits": digest(batch)}


def machine() -> str:
    """A digest of what the numeric libraries make of fixed numbers: where it is the same, batches have the same bits.

    The libraries choose their code by the processor, which its name does not tell.
    """
    import numpy as np
    import torch

    torch.set_num_threads(1)
    array = (np.arange(1 << 15, dtype=np.int64) * 7919 % 65_521 / 65_521 - 0.5).astype(np.float32).reshape(64, 512)
    tensor = torch.from_numpy(array)
    made = [array[:8] @ array[:8].T, np.log(array + 1)]  # so small that it takes one thread
    made += [torch.fft.rfft(tensor).abs(), tensor @ tensor.T, torch.sin(tensor), tensor.sum(1), np.cos(array * 9)]
    made += [torch.nn.functional.conv1d(tensor[None, :1], tensor[:4, None, :31])]
    audio, filters = tensor.reshape(1, 1, -1), tensor[:, None, :]
    for new, old, width in ((10, 9, 147), (10, 11, 180), (2, 1, 29), (1, 2, 58)):  # as in changes of speed and rate
        filter_ = filters[:new, :, :width].contiguous()
        made += [torch.nn.functional.conv1d(audio[..., :n], filter_, stride=old) for n in range(4_800, 24_000, 1_777)]
    for frames, bins in ((17, 40), (61, 40), (98, 23), (150, 80)):  # as in a mel bank
        made += [np.resize(array, (frames, 257)) @ np.resize(array, (257, bins))]
    made += [np.random.default_rng(3).standard_normal(5000, np.float32), np.sqrt(array + 1), np.exp(array)]
    return f"{digest(made)} torch {torch.__version__} numpy {np.__version__}"


def main(*names: str) -> None:
    """Write the states of these graphs (of all), by the version that is installed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_data()
        for name, graph in GRAPHS.items():
            if names and name not in names:
                continue
            loader = uio.Loader(graph(), **OPTIONS)
            loader.set_epoch(EPOCH)
            batches = iter(loader)
            for _ in range(AT):
                next(batches)
            state = loader.state_dict()
            rest = [described(batch) for batch in batches]
            assert len(rest) >= 3, name
            made = {"machine": machine(), "state": state, "rest": rest}
            (FOLDER / f"{name}.json").write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")
            print(name, len(rest))
