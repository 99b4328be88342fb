"""The sample rate of a batch. Features and samples of different rates must not be in one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample

MIXED = "mixed_rates"


def rates_of(fields: Mapping[str, Any], of: str = "") -> list[int]:
    """Return the rate in Hz of each recording in a stream, or of the audio of its features; 0 if unknown."""
    rates = fields.get(f"{of}_sample_rate" if of else "sample_rate")
    return [rate if isinstance(rate, int) else 0 for rate in (rates if isinstance(rates, list) else [rates])]


def odd_rates(rates: Sequence[int]) -> tuple[int, frozenset[int]]:
    """Return the rate that most of a batch have (in a tie the lowest), and the numbers of those with another rate.

    It depends only on the batch, neither on its order nor on other batches.
    """
    if not rates or rates.count(rates[0]) == len(rates):
        return (rates[0] if rates else 0), frozenset()
    counts = Counter(rate for rate in rates if rate)
    kept = max(counts, key=lambda rate: (counts[rate], -rate))
    return kept, frozenset(i for i, rate in enumerate(rates) if rate not in (0, kept))


def mixed_rates(rate: int, kept: int, like: str) -> DataError:
    """Return the failure of an utterance of another rate; ``like``: the key of one that stays."""
    return DataError(
        MIXED,
        f"its audio has {rate} Hz, that of {like!r} and others in its batch {kept} Hz; they cannot share one: put "
        ".resample(16_000) before the features",
    )


def odd_ones(samples: Sequence[Sample], lane: Lane, stage: str) -> frozenset[int]:
    """Fail the utterances of a batch whose rate differs from that of most, in any stream; return their numbers."""
    found: dict[int, tuple[int, int, str]] = {}
    for of in ("", *dict.fromkeys(of for sample in samples for of in sample.chain.streams)):
        rates = [(i, rate) for i, sample in enumerate(samples) for rate in rates_of(sample.fields, of)]
        kept, odd = odd_rates([rate for _, rate in rates])
        others = [i for i, rate in rates if rate == kept]
        for at in odd:
            i, rate = rates[at]
            found[i] = rate, kept, samples[next((other for other in others if other != i), i)].key
    for i, (rate, kept, like) in sorted(found.items()):
        lane.ledger.handle(samples[i].failure(mixed_rates(rate, kept, like), stage), stage)
    if not found:
        lane.ledger.fine(stage)
    return frozenset(found)
