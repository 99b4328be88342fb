"""Utterances to look at and to listen to: their audio, transcript and features, found again by shard and key."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import soundfile

from uio_pipes.base.errors import DataError, UioError
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.pipeline import Pipeline
from uio_pipes.reports.page import Media, PageTable
from uio_pipes.reports.worst import HurtUtterance, WorstUtterances
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.planning import LENIENT

BINS = 80  # of the features
NOT_THERE = "not found in its shard any more"


def page_table(worst: WorstUtterances, open_: Callable[[str], Pipeline]) -> PageTable:
    """Return the table of the worst utterances, to look at and to listen to. ``open_`` gives those of a shard."""
    by_shard: dict[str, list[HurtUtterance]] = {}
    for one in worst.found:
        by_shard.setdefault(one.shard, []).append(one)
    seen: dict[tuple[str, str], Sequence[object]] = {}
    for shard, wanted in by_shard.items():
        cells = _cells(shard, {one.key for one in wanted}, open_) if shard else {}
        seen |= {(shard, one.key): cells.get(one.key, (NOT_THERE, "", "")) for one in wanted}
    rows = [
        (one.key, f"{one.mean:.2f}", f"{one.last:.2f}", f"{one.behind:.2f}", *seen[one.shard, one.key], one.shard)
        for one in worst.found
    ]
    heads = ("key", f"mean {worst.number}", "last", "behind", "transcript", "audio", "features", "shard")
    return f"The worst {len(rows):,} of {worst.utterances:,}", heads, rows


def _cells(shard: str, keys: set[str], open_: Callable[[str], Pipeline]) -> dict[str, Sequence[object]]:
    """Return transcript, audio and features of utterances of a shard, by key."""
    found: dict[str, Sequence[object]] = {}
    try:
        graph = open_(shard).decode_audio().fbank(num_mel_bins=BINS)
        for sample in items_of(graph.build(Lane(Ledger(LENIENT)))):
            if sample.key in keys and sample.key not in found:
                found[sample.key] = _cell(sample)
                if len(found) == len(keys):
                    break
    except UioError as error:
        return found | dict.fromkeys(keys - found.keys(), (f"cannot be read again: {error}", "", ""))
    return found


def _cell(sample: Sample) -> Sequence[object]:
    try:
        wav, rate = np.atleast_2d(np.asarray(sample["wav"])), int(sample["sample_rate"])
        features = np.asarray(sample["feat"])
    except (DataError, KeyError) as error:
        return sample.fields.get("txt", ""), f"no audio: {error}", ""
    buffer = io.BytesIO()
    soundfile.write(buffer, wav.T, rate, format="WAV", subtype="PCM_16")
    told = f"{wav.shape[1] / rate:.2f} s"
    text = str(sample["txt"]) if "txt" in sample else ""
    return text, Media(told, "audio", _data("audio/wav", buffer.getvalue())), _picture(features)


def _picture(features: Any) -> object:
    """Return filter banks as a picture, low frequencies below. Without matplotlib, their shape."""
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
