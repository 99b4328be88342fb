"""The files of the example folder, listed in ``example``. They are written to ``data`` in the working directory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from uio_pipes.prep.dictionary import characters, write_table
from uio_pipes.prep.examples.sentences import RATE, SENTENCES, Samples, SpokenSentence, noises, rooms
from uio_pipes.prep.pack import PackSettings, pack
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio
from uio_pipes.prep.writing.encoding import encode
from uio_pipes.prep.writing.files import write_lines
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.shard_writer import open_unit

PER_SHARD = 4  # twelve shards: something for each of twelve lanes


def write_all(spoken: list[SpokenSentence], seed: int) -> None:
    """Write everything: recordings, lists, tables, shards, dictionary, features."""
    _write_recordings(spoken)
    _write_sounds("noise", noises(seed))
    _write_sounds("rooms", rooms(seed))
    write_lines(Path("data/texts.txt"), SENTENCES)
    write_lines(Path("data/texts.list"), ["data/texts.txt"])
    write_table(Path("data/lang_char.txt"), characters(one.txt for one in spoken))
    as_uio_pack = PackSettings(PER_SHARD, form="as-is", sample_rate=None, name="shards_{:09d}.tar")
    pack("data/raw.list", "data/shards", "data/shards.list", as_uio_pack)
    _write_features(spoken)


def _write_recordings(spoken: list[SpokenSentence]) -> None:
    """Write the recordings, the raw list, and Kaldi's tables."""
    paths = _write_wavs("data/wav", {one.key: one.samples for one in spoken})
    lines = [{"key": u.key, "wav": p, "txt": u.txt, "speaker": u.speaker} for u, p in zip(spoken, paths, strict=True)]
    write_lines(Path("data/raw.list"), (json.dumps(line, ensure_ascii=False) for line in lines))
    for table, field in (("wav.scp", "wav"), ("text", "txt"), ("utt2spk", "speaker")):
        write_lines(Path("data/kaldi", table), (f"{line['key']} {line[field]}" for line in lines))


def _write_sounds(name: str, sounds: Iterable[Samples]) -> None:
    """Write recordings without texts, and their list."""
    paths = _write_wavs(f"data/{name}", {f"{name}{number}": samples for number, samples in enumerate(sounds)})
    write_lines(Path(f"data/{name}.list"), paths)


def _write_wavs(folder: str, sounds: dict[str, Samples]) -> list[str]:
    Path(folder).mkdir(parents=True)
    for key, samples in sounds.items():
        Path(folder, f"{key}.wav").write_bytes(encode(samples, RATE, "wav"))
    return [f"{folder}/{key}.wav" for key in sounds]


def _write_features(spoken: list[SpokenSentence]) -> None:
    """Write filter banks in shards, and their mean and variance."""
    import uio_pipes as uio
    from uio_pipes.prep.cmvn import CmvnSettings, compute_cmvn

    settings, raw = CmvnSettings(), "data/raw.list"
    compute_cmvn(raw, Path("data/global_cmvn"), settings)
    loader = uio.Loader(settings.features(uio.from_raw_list(raw)), rank=0, world_size=1)
    features = {sample["key"]: sample["feat"].numpy() for sample in loader}
    folder, shards = Folder("data/features"), list[str]()
    for begin in range(0, len(spoken), PER_SHARD):
        shards.append(f"features_{len(shards):09d}.tar")
        unit = open_unit(folder, shards[-1], mark="")
        for one in spoken[begin : begin + PER_SHARD]:
            unit.add(Utterance(one.key, "", one.txt, speaker=one.speaker), _array(features[one.key]))
        unit.finish()
    write_lines(Path("data/feature_shards.list"), map(folder.join, shards))


def _array(features: npt.NDArray[np.float32]) -> Audio:
    """Return features as the member ``KEY.npy`` of an utterance, in place of audio."""
    buffer = io.BytesIO()
    np.save(buffer, features)
    return Audio(buffer.getvalue(), "npy", len(features))
