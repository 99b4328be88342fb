"""Claim: batches are made several times as fast as by the best of the peers in ``peers/``.

Shards (tar, tar.gz, FLAC in tar) → 80-bin fbank with dither 0.1 → spec-augment → shuffle 1,500 → sort 500 → 12,000
padded frames a batch, shards in random order, in one process and in two workers; and padded waveforms without features.
Before the measurement, the features of each loader are compared with those that torchaudio computes in float64; after
it, the delivered utterances with those of the corpus: ``python -m benchmarks.throughput``.
"""

from __future__ import annotations

import gc
import hashlib
import io
import random
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Report, begin, child, median, older, parser, ratio, rounds, settle, spread
from benchmarks.corpus import Corpus, prepare, wav_members
from benchmarks.peers import BUDGET, LIMIT, PEERS, WORKS, Batch, Work, batches_of
from benchmarks.peers.stages import SHIFT

MODULE = "benchmarks.throughput"
SEED = 777
TOLERANCE = 1e-4  # torchaudio's own features, in float32, are 5e-5 off
CHECKED = 60  # utterances
FIELDS = ("speed", "cpu_speed")
SHARES = (50, 95, 99)  # percent of the batches, for how long they are waited for
KINDS = ("tar", "tar.gz", "flac")
OWN = "uio_pipes"
OF_LIMIT = 0.7
_WHOSE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Task(NamedTuple):
    """Fields of ``Work``, and how many times as fast as the best peer uio_pipes should be."""

    target: float
    what: dict[str, Any]


TASKS = {
    "tar, one process": Task(6.0, {"kind": "tar", "workers": 0, "features": True}),
    "tar, two workers": Task(6.0, {"kind": "tar", "workers": 2, "features": True}),
    "waveforms, one process": Task(3.3, {"kind": "tar", "workers": 0, "features": False}),
    "FLAC, one process": Task(4.0, {"kind": "flac", "workers": 0, "features": True}),
    "tar.gz, one process": Task(4.0, {"kind": "tar.gz", "workers": 0, "features": True}),
}


def measure(data: str, peer: str, check: bool = False, **what: Any) -> dict[str, Any]:
    """Measure one epoch of one loader, or compare its features."""
    work = Work(prepare(Path(data)), SEED, check=check, **what)
    random.seed(SEED)
    return _difference(work, peer) if check else epoch(work, batches_of(peer))


def epoch(work: Work, batches: Callable[[Work], Iterable[Batch]]) -> dict[str, Any]:
    keys: list[str] = []
    waits: list[float] = []  # from next to batch
    frames = padded = count = over = opening = 0
    budget = BUDGET if work.features else BUDGET * SHIFT
    settle()
    began, cpu = time.perf_counter(), _cpu_seconds()
    running, asked = batches(work), began
    for batch in running:
        waits.append(time.perf_counter() - asked)
        keys += batch.keys
        size = batch.feats.shape[0] * batch.feats.shape[1]
        frames, padded, count = frames + int(batch.lengths.sum()), padded + size, count + 1
        opening = opening or frames
        over += size > budget
        asked = time.perf_counter()
    took = time.perf_counter() - began
    del running, batch
    gc.collect()  # ends the workers, so that their time is known
    cpu = _cpu_seconds() - cpu
    return {
        "speed": work.corpus.seconds / took,
        "steady": work.corpus.seconds * (1 - opening / frames) / (took - waits[0]),  # from the first batch on
        "cpu_speed": work.corpus.seconds / cpu,
        "first": waits[0],
        **{f"p{share}": 1e3 * float(np.percentile(waits, share)) for share in SHARES},
        "utterances": len(keys),
        "unique": len(set(keys)),
        "digest": _digest(keys),
        "frames": frames,
        "padding": 100 * (1 - frames / padded),
        "batches": count,
        "over": over,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _cpu_seconds() -> float:
    """Return the CPU time of this process, and of its children that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _WHOSE))


def _digest(keys: list[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(keys)).encode(), digest_size=8).hexdigest()


def _difference(work: Work, peer: str) -> dict[str, Any]:
    """Return how far features are off those in float64, as root mean square over the loader's first utterances."""
    import torch
    from torchaudio.compliance import kaldi

    from benchmarks.peers.wenet import tar_utterances

    found: dict[str, torch.Tensor] = {}
    for batch in batches_of(peer)(work):
        for row, (key, frames) in enumerate(zip(batch.keys, batch.lengths.tolist(), strict=True)):
            found[key] = batch.feats[row, :frames].clone()
        if len(found) >= CHECKED:
            break
    errors = []
    import soundfile

    for utterance in tar_utterances(work.corpus.shards("tar")):
        mine = found.pop(utterance["key"], None)
        if mine is None:
            continue
        samples, rate = soundfile.read(io.BytesIO(utterance["wav"]), dtype="float64")
        wave = torch.from_numpy(samples).unsqueeze(0)
        # Lhotse takes samples in [-1, 1] and frames beyond the edges, so torchaudio must do the same here.
        scale, edges = (1.0, False) if peer.startswith("lhotse") else (32768.0, True)
        exact = kaldi.fbank(
            wave * scale, num_mel_bins=80, energy_floor=0.0, sample_frequency=rate, snip_edges=edges, dither=0.0
        )
        if peer.startswith("lhotse"):  # it pads with silence where torchaudio mirrors: leave out the ends
            mine, exact = (part[3:-3].clamp(min=-15.9) for part in (mine, exact))
        errors.append((mine - exact).square().flatten())
    return {"difference": float(torch.cat(errors).mean().sqrt())}


def expected(corpus: Corpus) -> str:
    """Return the digest of the keys in the corpus."""
    shards = corpus.shards("tar")
    return _digest([member.name.removesuffix(".wav") for shard in shards for member in wav_members(shard)])


def main() -> None:
    """Measure all and write results/throughput.md."""
    arguments = begin(measure, parser(__doc__, repeats=3, only=TASKS))
    corpus = prepare(arguments.data)
    report = Report("throughput", "Batches from shards, one process and two workers")
    report.text(
        f"{corpus.utterances:,} utterances, {corpus.seconds / 3600:.2f} h ({corpus.speech}), 6 shards: 80-bin fbank "
        f"with dither 0.1, spec-augment, shuffle 1,500, sort 500, {BUDGET:,} padded frames a batch. The peers draw "
        "dither for each frame, uio_pipes takes it for the waveform from tables of normals."
    )
    checks = {name: child(MODULE, data=arguments.data, peer=peer, check=True) for name, peer in PEERS.items()}
    worst = max((check.get("difference", 0.0) for check in checks.values()), default=0.0)
    report.target("features within 1e-4 of those in float64 (no dither)", worst <= TOLERANCE, f"{worst:.1e} at most")
    right = expected(corpus)
    for title in arguments.only:
        _show(report, title, arguments, checks, right)
        report.write()


def _show(report: Report, title: str, arguments: Any, checks: dict[str, Any], right: str) -> None:
    task = TASKS[title]
    jobs = {
        name: {"peer": peer, **task.what}
        for name, peer in (PEERS if task.what["features"] else PEERS | LIMIT).items()
        if task.what["kind"] in WORKS.get(name, KINDS)
    }
    jobs |= older({OWN: jobs[OWN]}, arguments.old)
    found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data), f"{title}: ")
    mine = {field: median(found.get(OWN, []), field) for field in FIELDS}
    rows = []
    for name, runs in found.items():
        row = [name]
        for field in FIELDS:
            row += [spread(runs, field, ",.0f"), ratio(mine[field], median(runs, field))]
        waits = " / ".join(f"{median(runs, f'p{share}'):.1f}" for share in SHARES)
        rows.append([*row, spread(runs, "first"), waits, f"{median(runs, 'memory'):.0f}"])
    columns = ["loader", "s of audio per s", "uio is", "per s of CPU", "uio is", "first batch (s)"]
    columns += ["ms from next to batch: p50 / p95 / p99", "peak MiB of the main process"]
    report.table(title, columns, rows, plot=[1, 3])
    _show_work(report, title, found, checks if task.what["features"] else {}, right)
    for field, clock in zip(FIELDS, ("wall time", "CPU time"), strict=True):
        peers = {peer: median(runs, field) for peer, runs in found.items() if peer in PEERS and peer != OWN}
        fastest = max(peers, key=lambda peer: peers[peer], default="no peer")
        times = mine[field] / peers.get(fastest, float("nan"))
        claim = f"{title}: {task.target} × the best peer, {clock}"
        report.target(claim, times >= task.target, f"{times:.2f}× {fastest}")
        for limit in LIMIT.keys() & found.keys():
            share = mine[field] / median(found[limit], field)
            report.target(f"{title}: {OF_LIMIT} of {limit}, {clock}", share >= OF_LIMIT, f"{share:.2f}")


def _show_work(report: Report, title: str, found: dict[str, Any], checks: dict[str, Any], right: str) -> None:
    rows = []
    for name, runs in found.items():
        last, check = runs[-1], checks.get(name, {})
        whole = "yes" if last["digest"] == right and last["unique"] == last["utterances"] else "NO"
        difference = f"{check['difference']:.1e}" if "difference" in check else check.get("error", "")
        shape = [f"{last['frames']:,}", str(last["batches"]), f"{last['padding']:.1f} %", str(last["over"])]
        rows.append([name, f"{last['utterances']:,}", whole, *shape, difference])
    columns = ["loader", "utterances", "all, once", "length", "batches", "padding", "over budget", "features off by"]
    report.table(f"Equal work: {title}", columns, rows)


if __name__ == "__main__":
    main()
