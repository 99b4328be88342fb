"""Claim: one process makes batches faster than WeNet's datapipes, webdataset and Lhotse from the same corpus.

tar → 80-bin fbank with dither 0.1 → spec-augment → shuffle 1,500 → sort 500 → 12,000 padded frames a batch, shards in
random order, ``num_workers=0``. Before measuring, each loader's features are compared with torchaudio's, and after it
the utterances that it delivered with those in the corpus: ``python -m benchmarks.throughput``.
"""

from __future__ import annotations

import hashlib
import io
import random
import resource
import tarfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, child, in_child, median, parser, ratio, rounds, spread
from benchmarks.corpus import Corpus, prepare
from benchmarks.peers import BUDGET, PEERS, batches_of

MODULE = "benchmarks.throughput"
SEED = 777
TOLERANCE = 1e-3
CHECKED = 60  # utterances


def measure(data: str, peer: str, check: bool = False) -> dict[str, Any]:
    """One epoch of one loader, or the comparison of its features."""
    corpus = prepare(Path(data))
    random.seed(SEED)
    batches = batches_of(peer)
    return _difference(corpus, peer) if check else _epoch(corpus, batches)


def _epoch(corpus: Corpus, batches: Any) -> dict[str, Any]:
    keys: list[str] = []
    frames = padded = count = over = 0
    first = 0.0
    began, cpu = time.perf_counter(), time.process_time()
    for batch in batches(corpus, SEED, False):
        first = first or time.perf_counter() - began
        keys += batch.keys
        size = batch.feats.shape[0] * batch.feats.shape[1]
        frames, padded, count = frames + int(batch.lengths.sum()), padded + size, count + 1
        over += size > BUDGET
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "speed": corpus.seconds / took,
        "cpu_speed": corpus.seconds / cpu,
        "first": first,
        "utterances": len(keys),
        "unique": len(set(keys)),
        "digest": _digest(keys),
        "frames": frames,
        "padding": 100 * (1 - frames / padded),
        "batches": count,
        "over": over,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _digest(keys: list[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(keys)).encode(), digest_size=8).hexdigest()


def _difference(corpus: Corpus, peer: str) -> dict[str, Any]:
    """The largest difference from torchaudio's features, of the first utterances that the loader gives."""
    import torch
    from torchaudio.compliance import kaldi

    from benchmarks.peers.wenet import tar_utterances

    found: dict[str, torch.Tensor] = {}
    for batch in batches_of(peer)(corpus, SEED, True):
        for row, (key, frames) in enumerate(zip(batch.keys, batch.lengths.tolist(), strict=True)):
            found[key] = batch.feats[row, :frames].clone()
        if len(found) >= CHECKED:
            break
    worst = 0.0
    import soundfile

    for utterance in tar_utterances(corpus.shards("tar")):
        mine = found.pop(utterance["key"], None)
        if mine is None:
            continue
        samples, rate = soundfile.read(io.BytesIO(utterance["wav"]), dtype="float32")
        wave = torch.from_numpy(samples).unsqueeze(0)
        # Lhotse takes samples in [-1, 1] and frames beyond the edges: so does what it is compared with.
        scale, edges = (1.0, False) if peer == "lhotse_shar" else (32768.0, True)
        theirs = kaldi.fbank(
            wave * scale, num_mel_bins=80, energy_floor=0.0, sample_frequency=rate, snip_edges=edges, dither=0.0
        )
        if peer == "lhotse_shar":  # its batch is padded with silence where torchaudio mirrors: leave out the ends
            mine, theirs = (part[3:-3].clamp(min=-15.9) for part in (mine, theirs))
        worst = max(worst, float((mine - theirs).abs().max()))
    return {"difference": worst}


def expected(corpus: Corpus) -> str:
    """Digest of the keys in the corpus."""
    keys = []
    for shard in corpus.shards("tar"):
        with tarfile.open(shard) as tar:
            keys += [name.removesuffix(".wav") for name in tar.getnames() if name.endswith(".wav")]
    return _digest(keys)


def main() -> None:
    """Measure all and write results/throughput.md."""
    arguments = parser(__doc__, repeats=3).parse_args()
    if in_child(arguments, measure):
        return
    corpus = prepare(arguments.data)
    report = Report("throughput", "Batches from tar shards, single process")
    report.text(
        f"{corpus.utterances:,} utterances, {corpus.seconds / 3600:.2f} h ({corpus.speech}), 6 plain tars: "
        f"80-bin fbank with dither 0.1, spec-augment, shuffle 1,500, sort 500, {BUDGET:,} padded frames a batch, "
        "`num_workers=0`. torchaudio and Lhotse draw dither for each frame, uio_pipes once for the waveform."
    )
    checks = {name: child(MODULE, data=arguments.data, peer=peer, check=True) for name, peer in PEERS.items()}
    jobs = {name: {"data": arguments.data, "peer": peer} for name, peer in PEERS.items()}
    results = rounds(MODULE, jobs, arguments.repeats)
    best = {field: median(results["uio_pipes"], field) for field in ("speed", "cpu_speed")}
    rows = []
    for name, runs in results.items():
        if "error" in runs[-1]:
            report.text(f"- {name} did not run: {runs[-1]['error']}")
            continue
        row = [name]
        for field in ("speed", "cpu_speed"):
            row += [spread(runs, field, ",.0f"), ratio(best[field], median(runs, field))]
        rows.append([*row, spread(runs, "first"), f"{median(runs, 'memory'):.0f}"])
    columns = ["loader", "s of audio per s", "uio is", "per s of CPU", "uio is", "first batch (s)", "peak MiB"]
    report.table("Speed", columns, rows)
    right, rows = expected(corpus), []
    for name, runs in results.items():
        last, check = runs[-1], checks[name]
        if "error" in last:
            continue
        whole = "yes" if last["digest"] == right and last["unique"] == last["utterances"] else "NO"
        difference = f"{check['difference']:.1e}" if "difference" in check else check["error"]
        shape = [f"{last['frames']:,}", str(last["batches"]), f"{last['padding']:.1f} %", str(last["over"])]
        rows.append([name, f"{last['utterances']:,}", whole, *shape, difference])
    columns = ["loader", "utterances", "all, once", "frames", "batches", "padding", "over budget", "features off by"]
    report.table("Equal work", columns, rows)
    peers = {name: median(runs, "cpu_speed") for name, runs in results.items() if name != "uio_pipes"}
    known = {name: speed for name, speed in peers.items() if speed == speed}
    fastest = max(known, key=lambda name: known[name])
    found = f"{ratio(best['cpu_speed'], known[fastest])} the fastest of them ({fastest}), by CPU time"
    report.target("faster than every peer", best["cpu_speed"] > known[fastest], found)
    worst = max((check.get("difference", 0.0) for check in checks.values()), default=0.0)
    report.target("features within 1e-3 of torchaudio's (no dither)", worst <= TOLERANCE, f"{worst:.1e} at most")
    report.write()


if __name__ == "__main__":
    main()
