"""Global mean and variance of the features, from the pipeline itself: sums over all frames of a list.

The features are Kaldi's log-mel filterbanks without dither. Workers compute them, and the sums are merged in the
epoch's order: the bits are the same on any number of workers. The sums are saved with the loader's state every few
seconds; after a kill, the same call goes on from there. ``global_cmvn`` is WeNet's JSON: ``mean_stat`` (sums),
``var_stat`` (sums of squares), ``frame_num``.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead, UioError
from uio_pipes.core.capabilities import Connects, Upstream
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import COUNTED
from uio_pipes.core.roles import Flow
from uio_pipes.core.stage import Node, Trait
from uio_pipes.io.files import write_lines
from uio_pipes.sources.seen import GivenNames
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.reading import open_pipeline
from uio_pipes.tools.data.writing.features import with_features

LANES = 32  # fixed, so that sums are made in the same order on any number of workers
SAVE_EVERY = 10.0  # seconds
FBANK = {"fbank_conf": {"num_mel_bins": 80}}


class CmvnFailed(UioError):
    """The statistics cannot be computed; the message says why."""


@dataclass(frozen=True)
class NeedsNoText(Connects, Flow):
    """What comes before it may give utterances without a transcript."""

    name: ClassVar[str] = "needs_no_text"
    takes: ClassVar[tuple[str, ...]] = ("sample",)
    gives: ClassVar[str] = "sample"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return upstream(replace(lane, needs_text=False))


@dataclass
class Sums:
    """The sums so far, and the loader's state."""

    of: dict[str, Any]
    mean_stat: list[float]
    var_stat: list[float]
    frame_num: int = 0
    utterances: int = 0
    failures: int = 0
    done: bool = False
    loader: dict[str, str] = field(default_factory=dict)

    def add(self, batch: dict[str, Any]) -> int:
        """Add a batch of :func:`_summed`; return the number of its utterances."""
        self.mean_stat = np.add(self.mean_stat, batch["sums"][0]).tolist()
        self.var_stat = np.add(self.var_stat, batch["sums"][1]).tolist()
        self.frame_num += batch["frames"]
        self.utterances += batch["utterances"]
        return int(batch["utterances"])


def compute_cmvn(
    data_list: str | Path,
    out: Path,
    conf: Mapping[str, Any] = FBANK,
    num_workers: int = 0,
    fields: GivenNames = None,
) -> Sums:
    """Write the statistics of all utterances of ``data_list`` to ``out``, unless those of the same list are there.

    ``conf``: the features, by a WeNet ``dataset_conf`` (their type and its block, resampling, channel; never dither).
    ``fields``: names of fields in the data, by ours.

    Raises: ListError; CmvnFailed if nothing could be read.
    """
    journal = out.with_name(f"{out.name}.journal")
    source = open_pipeline(str(data_list), fields, needs_text=False)
    named = {"fields": dict(fields)} if fields else {}
    of: dict[str, Any] = {"list": source.digest, **named, "conf": dict(conf)}
    sums = Sums(of, [0.0], [0.0])
    with contextlib.suppress(OSError, ValueError, TypeError):
        before = Sums(**json.loads(journal.read_text(encoding="utf-8")))
        sums = before if before.of == of else sums  # those of an earlier run, of the same list and features
    if not sums.done:
        pipeline = with_features(uio.Pipeline((*source.pipeline.stages, NeedsNoText())), conf)
        why: object = "is its audio there?"
        try:
            for _ in follow(_sum(pipeline, sums, num_workers, journal), "cmvn", source.total):
                pass
        except NothingRead as error:
            why = error
        if not sums.frame_num:
            raise CmvnFailed(f"no utterance of {data_list} could be read: {why}")
        sums.done = True
        _save(journal, sums)
    write_lines(out, [json.dumps({name: getattr(sums, name) for name in ("mean_stat", "var_stat", "frame_num")})])
    return sums


def _save(journal: Path, sums: Sums) -> None:
    write_lines(journal, [json.dumps(asdict(sums))])


def _sum(features: uio.Pipeline, sums: Sums, num_workers: int, journal: Path) -> Iterator[tuple[None, int]]:
    pipeline = features.batch(32).pad().map(_summed)
    loader = uio.Loader(pipeline, num_workers=num_workers, lanes=LANES, rank=0, world_size=1, failures=COUNTED)
    if sums.loader:
        loader.load_state_dict(sums.loader)
    yield None, sums.utterances
    saved = time.monotonic()
    for batch in loader:
        yield None, sums.add(batch)
        sums.failures = loader.stats().failures
        if time.monotonic() - saved >= SAVE_EVERY:
            sums.loader, saved = loader.state_dict(), time.monotonic()
            _save(journal, sums)
    sums.failures, sums.loader = loader.stats().failures, {}


def _summed(batch: dict[str, Any]) -> dict[str, Any]:
    """Sum over frames in double precision; padding is 0 and adds nothing."""
    feats = batch["feats"].double()
    return {
        "sums": (feats.sum((0, 1)).numpy(), feats.square().sum((0, 1)).numpy()),
        "frames": int(batch["feats_lengths"].sum()),
        "utterances": len(batch["keys"]),
    }
