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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import uio_pipes as uio
from uio_pipes.base.errors import ListError, NothingRead, UioError
from uio_pipes.core.ledger import COUNTED
from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.reading.data_list import DataType, GivenNames, count_utterances, digest_of_list, utterances_of
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.writing.features import with_features

LANES = 32  # fixed, so that sums are made in the same order on any number of workers
SAVE_EVERY = 10.0  # seconds


class CmvnFailed(UioError):
    """The statistics cannot be computed; the message says why."""


@dataclass(frozen=True)
class CmvnSettings:
    """The features: filter banks of ``num_mel_bins`` at ``sample_rate``, or, with ``conf``, those of a WeNet
    ``dataset_conf`` (feature type and its block, resampling, channel; never dither)."""

    num_mel_bins: int = 80
    sample_rate: int = 16_000
    conf: Mapping[str, Any] | None = None

    def features(self, pipeline: uio.Pipeline) -> uio.Pipeline:
        """Return ``pipeline`` with the stages from decoding to features. Raises: PipelineError."""
        if self.conf is None:
            plain = pipeline.decode_audio().resample(self.sample_rate)
            return plain.fbank(num_mel_bins=self.num_mel_bins, dither=0.0)
        return with_features(pipeline, self.conf)


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
    settings: CmvnSettings | None = None,
    num_workers: int = 0,
    save_every: float = SAVE_EVERY,
    data_type: DataType | None = "raw",
    fields: GivenNames = None,
) -> Sums:
    """Write the statistics of all utterances of ``data_list`` to ``out``, unless those of the same list are there.

    ``data_type``: None for data of another kind than WeNet's lists; ``fields``: names of fields there, by ours.

    Raises: ListError; CmvnFailed if nothing could be read.
    """
    settings, data_list = settings or CmvnSettings(), str(data_list)
    journal = out.with_name(f"{out.name}.journal")
    source, digest, total = _opened(data_list, data_type, fields)
    named = {"fields": dict(fields)} if fields else {}
    sums = _resume(journal, {"list": digest, "data_type": data_type, **named, **asdict(settings)})
    if not sums.done:
        pipeline = settings.features(source)
        why: object = "is its audio there?"
        try:
            for _ in follow(_sum(pipeline, sums, num_workers, journal, save_every), "cmvn", total):
                pass
        except NothingRead as error:
            why = error
        if not sums.frame_num:
            raise CmvnFailed(f"no utterance of {data_list} could be read: {why}")
        sums.done = True
        _save(journal, sums)
    write_lines(out, [json.dumps({name: getattr(sums, name) for name in ("mean_stat", "var_stat", "frame_num")})])
    return sums


def _opened(data_list: str, data_type: DataType | None, fields: GivenNames) -> tuple[uio.Pipeline, str, int | None]:
    """Return the pipeline, a hash of what is in the list, and the number of utterances, if known. Raises: ListError."""
    if data_type is not None and not fields:
        source, digest = utterances_of(data_list, data_type), digest_of_list(data_list)
        return source, digest, count_utterances(data_list, data_type)
    known = recognize(data_list, fields=fields)
    if known.lacks:
        raise ListError(f"{data_list} has {known.lacks}: it is {known.kind}")
    return known.pipeline, repr(known.pipeline._list_fingerprint()), next(iter(known.pipeline._count(1) or ()), None)


def _resume(journal: Path, of: dict[str, Any]) -> Sums:
    """Return the sums of an earlier run, if it was of the same list and features."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        sums = Sums(**json.loads(journal.read_text(encoding="utf-8")))
        if sums.of == of:
            return sums
    return Sums(of, [0.0], [0.0])


def _save(journal: Path, sums: Sums) -> None:
    write_lines(journal, [json.dumps(asdict(sums))])


def _sum(
    features: uio.Pipeline, sums: Sums, num_workers: int, journal: Path, save_every: float
) -> Iterator[tuple[None, int]]:
    pipeline = features.batch(32).pad().map(_summed)
    loader = uio.Loader(pipeline, num_workers=num_workers, lanes=LANES, rank=0, world_size=1, failures=COUNTED)
    if sums.loader:
        loader.load_state_dict(sums.loader)
    yield None, sums.utterances
    saved = time.monotonic()
    for batch in loader:
        yield None, sums.add(batch)
        sums.failures = loader.stats().failures
        if time.monotonic() - saved >= save_every:
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
