"""Utterances to look at and to listen to: their audio, transcript and features, found again by shard and key."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import soundfile

from uio_pipes.base.errors import DataError, UioError
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Op, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT
from uio_pipes.stages.audio.decode import DecodeAudio
from uio_pipes.tools.reports.page import Media
from uio_pipes.tools.reports.worst import HurtUtterance

NOT_THERE = "not found in its shard any more"


def media_of(
    worst: Sequence[HurtUtterance], open_: Callable[[str], Pipeline], trained: Pipeline | None = None
) -> list[Sequence[object]]:
    """Return transcript, audio and features of each of the worst utterances, to look at and to listen to.

    Args:
        open_: gives the utterances of a shard. trained: the pipeline of the run, which makes the features; where it
            draws, it draws anew. Without it they are 80 filter banks.
    """
    by_shard: dict[str, set[str]] = {}
    for one in worst:
        by_shard.setdefault(one.shard, set()).add(one.key)
    seen = {shard: _cells(shard, keys, open_, trained) if shard else {} for shard, keys in by_shard.items()}
    return [seen[one.shard].get(one.key, (NOT_THERE, "", "")) for one in worst]


def _cells(
    shard: str, keys: set[str], open_: Callable[[str], Pipeline], trained: Pipeline | None
) -> dict[str, Sequence[object]]:
    """Return transcript, audio and features of utterances of a shard, by key."""
    found: dict[str, Sequence[object]] = {}
    try:
        opened = open_(shard)
        ops = [one for one in trained._before_batches.stages if isinstance(one, Op) and not one.of] if trained else []
        ops = [one for one in ops if {"wav", "feat"} & {*one.reads, *one.writes}]
        decoded = opened if any(isinstance(one, DecodeAudio) for one in ops) else opened.decode_audio()
        seen = reduce(Pipeline.then, ops, decoded)
        graph = seen if have_features(ops) else seen.fbank(num_mel_bins=80)
        for sample in items_of(graph.build(Lane(Ledger(LENIENT)))):
            if sample.key in keys and sample.key not in found:
                found[sample.key] = _cell(sample)
                if len(found) == len(keys):
                    break
    except UioError as error:
        return found | dict.fromkeys(keys - found.keys(), (f"cannot be read again: {error}", "", ""))
    return found


def _cell(sample: Sample) -> Sequence[object]:
    decoded = sample.copy()
    decoded.chain = Chain(decoded.chain.links[:1])  # decoded, and nothing else
    try:
        wav, rate = np.atleast_2d(np.asarray(decoded["wav"])), int(decoded["sample_rate"])
        features = np.asarray(sample["feat"])
    except (DataError, KeyError) as error:
        return sample.fields.get("txt", ""), f"no audio: {error}", ""
    buffer = io.BytesIO()
    soundfile.write(buffer, wav.T, rate, format="WAV", subtype="PCM_16")
    duration = f"{wav.shape[1] / rate:.2f} s"
    text = str(sample["txt"]) if "txt" in sample else ""
    return text, Media(duration, "audio", _data("audio/wav", buffer.getvalue())), _picture(features)


def _picture(features: Any) -> object:
    """Return features as a picture, low frequencies below. Without matplotlib, their shape."""
    shape = f"{features.shape[0]} × {features.shape[1]}"
    try:
        from matplotlib import image
    except ImportError:
        return f'{shape} (a picture needs pip install "uio_pipes[plot]")'
    buffer = io.BytesIO()
    image.imsave(buffer, features.T[::-1], cmap="magma", format="png")
    return Media(shape, "img", _data("image/png", buffer.getvalue()))


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"
