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
from uio_pipes.tools.reports.page import Media, PageTable
from uio_pipes.tools.reports.worst import HurtUtterance, WorstUtterances

NOT_THERE = "not found in its shard any more"


def page_table(worst: WorstUtterances, open_: Callable[[str], Pipeline], trained: Pipeline | None = None) -> PageTable:
    """Return the table of the worst utterances, to look at and to listen to.

    Args:
        open_: gives the utterances of a shard. trained: the pipeline of the run, which makes the features of the page;
            where it draws, it draws anew. Without it they are 80 filter banks.
    """
    by_shard: dict[str, list[HurtUtterance]] = {}
    for one in worst.found:
        by_shard.setdefault(one.shard, []).append(one)
    seen: dict[tuple[str, str], Sequence[object]] = {}
    for shard, wanted in by_shard.items():
        cells = _cells(shard, {one.key for one in wanted}, open_, trained) if shard else {}
        seen |= {(shard, one.key): cells.get(one.key, (NOT_THERE, "", "")) for one in wanted}
    rows = [
        (
            one.key,
            f"{one.mean:.2f}",
            f"{one.last:.2f}",
            f"{one.behind:.2f}",
            *seen[one.shard, one.key],
            _short(one.shard),
        )
        for one in worst.found
    ]
    heads = ("key", f"mean {worst.number}", "last", "behind", "transcript", "audio", "features", "shard")
    return f"The worst {len(rows):,} of {worst.utterances:,}", heads, rows


def _short(shard: str) -> str:
    parts = shard.rsplit("/", 2)
    return f"…/{parts[1]}/{parts[2]}" if len(parts) == 3 and parts[0] else shard


def _seen(opened: Pipeline, trained: Pipeline | None) -> Pipeline:
    """Return the utterances as the model sees them: with the stages of ``trained`` that work on audio or features."""
    ops = [one for one in trained._before_batches.stages if isinstance(one, Op) and not one.of] if trained else []
    ops = [one for one in ops if {"wav", "feat"} & (one.reads | one.writes)]
    decoded = opened if any(isinstance(one, DecodeAudio) for one in ops) else opened.decode_audio()
    seen = reduce(Pipeline._then, ops, decoded)
    return seen if have_features(ops) else seen.fbank(num_mel_bins=80)


def _cells(
    shard: str, keys: set[str], open_: Callable[[str], Pipeline], trained: Pipeline | None
) -> dict[str, Sequence[object]]:
    """Return transcript, audio and features of utterances of a shard, by key."""
    found: dict[str, Sequence[object]] = {}
    try:
        graph = _seen(open_(shard), trained)
        for sample in items_of(graph.build(Lane(Ledger(LENIENT)))):
            if sample.key in keys and sample.key not in found:
                found[sample.key] = _cell(sample)
                if len(found) == len(keys):
                    break
    except UioError as error:
        return found | dict.fromkeys(keys - found.keys(), (f"cannot be read again: {error}", "", ""))
    return found


def _cell(sample: Sample) -> Sequence[object]:
    heard = sample.copy()
    heard.chain = Chain(heard.chain.links[:1])  # decoded, and nothing else
    try:
        wav, rate = np.atleast_2d(np.asarray(heard["wav"])), int(heard["sample_rate"])
        features = np.asarray(sample["feat"])
    except (DataError, KeyError) as error:
        return sample.fields.get("txt", ""), f"no audio: {error}", ""
    buffer = io.BytesIO()
    soundfile.write(buffer, wav.T, rate, format="WAV", subtype="PCM_16")
    told = f"{wav.shape[1] / rate:.2f} s"
    text = str(sample["txt"]) if "txt" in sample else ""
    return text, Media(told, "audio", _data("audio/wav", buffer.getvalue())), _picture(features)


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
