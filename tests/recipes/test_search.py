"""The four decoding modes against slow references: every alignment, every text, plain loops."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from recipes.common.config import ModelConfig
from recipes.common.decoder_steps import Cached, Recomputed
from recipes.common.model import BLANK, AsrModel
from recipes.common.search import (
    Hypothesis,
    Search,
    SearchError,
    attention,
    attention_rescoring,
    ctc_greedy_search,
    ctc_prefix_beam_search,
)

SOS = EOS = 3
VOCAB = 4  # blank, two labels, <sos/eos>
Scores = dict[tuple[int, ...], float]


def posteriors(seed: int, frames: int = 5, vocab: int = VOCAB, count: int = 3, peaked: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, frames, vocab, generator=generator, dtype=torch.float64) * peaked
    return logits.log_softmax(-1)


def every(length: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(VOCAB), repeat=length)


def collapse(alignment: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(alignment) if label != BLANK)


def every_alignment(log_probs: Tensor) -> Scores:
    """Log-probability of each label sequence, summed over all alignments (T, V)."""
    sums: dict[tuple[int, ...], float] = defaultdict(float)
    rows = log_probs.tolist()
    for alignment in itertools.product(range(log_probs.size(1)), repeat=len(rows)):
        sums[collapse(alignment)] += math.exp(sum(row[label] for row, label in zip(rows, alignment, strict=True)))
    return {labels: math.log(total) for labels, total in sums.items()}


def ranked(scores: Scores) -> list[Hypothesis]:
    return sorted((Hypothesis(*item) for item in scores.items()), key=lambda h: -h.score)


def assert_equal(found: list[Hypothesis], wanted: list[Hypothesis], tolerance: float = 1e-9) -> None:
    assert [h.labels for h in found] == [h.labels for h in wanted]
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=tolerance)


class TableDecoder:
    """Log-probabilities that depend on the whole text so far, and on the utterance, looked up one by one."""

    sos, eos = SOS, EOS

    def __init__(self, seed: int, vocab: int = VOCAB) -> None:
        self.seed, self.vocab = seed, vocab
        self.calls: list[int] = []

    def row(self, utterance: int, text: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, utterance, text)) % 2**31)
        return (torch.randn(self.vocab, generator=generator, dtype=torch.float64) * 1.5).log_softmax(-1)

    def decoder_log_probs(self, memory: Tensor, memory_lengths: Tensor, tokens: Tensor) -> Tensor:
        assert (tokens[:, 0] == SOS).all()
        self.calls.append(len(tokens))
        rows = zip(memory[:, 0, 0].int().tolist(), tokens.tolist(), strict=True)
        return torch.stack([torch.stack([self.row(u, tuple(t[: n + 1])) for n in range(len(t))]) for u, t in rows])


def memories(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Memory whose first value is the utterance's number."""
    memory = torch.zeros(len(lengths), max(lengths), 2)
    memory[:, :, 0] = torch.arange(len(lengths)).unsqueeze(1)
    return memory, torch.tensor(lengths)


def text_score(decoder: TableDecoder, utterance: int, labels: tuple[int, ...]) -> float:
    text, total = (SOS,), 0.0
    for label in (*labels, EOS):
        total += float(decoder.row(utterance, text)[label])
        text = (*text, label)
    return total


# Greedy


@pytest.mark.parametrize("seed", range(10))
def test_greedy_is_the_best_alignment(seed: int) -> None:
    log_probs = posteriors(seed)
    lengths = [5, 3, 4]
    for row, length, found in zip(log_probs, lengths, ctc_greedy_search(log_probs, torch.tensor(lengths)), strict=True):
        rows = row[:length].tolist()
        scored = {a: sum(r[c] for r, c in zip(rows, a, strict=True)) for a in every(length)}
        best = max(scored, key=scored.__getitem__)
        assert_equal(found, [Hypothesis(collapse(best), scored[best])])


# Prefix beam search


@pytest.mark.parametrize("seed", range(12))
def test_a_wide_beam_finds_every_sequence_with_its_sum_over_alignments(seed: int) -> None:
    log_probs = posteriors(seed, peaked=1.0 + seed % 4)
    lengths = torch.tensor([5, 2, 4])
    found = ctc_prefix_beam_search(log_probs, lengths, beam_size=400)
    for row, length, hypotheses in zip(log_probs, lengths.tolist(), found, strict=True):
        assert_equal(hypotheses, ranked(every_alignment(row[:length])))


def slow_prefix_beam(log_probs: Tensor, beam_size: int) -> list[Hypothesis]:
    """The textbook's loops over a dict of prefixes, with the same pruning."""
    inf = float("-inf")
    add = lambda a, b: float(np.logaddexp(a, b))  # noqa: E731
    beam = {(): (0.0, inf)}
    for frame in log_probs:
        best = (frame[1:].topk(min(beam_size, len(frame) - 1)).indices + 1).tolist()
        grown: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (inf, inf))
        for prefix, (blank, label) in beam.items():
            total = add(blank, label)
            mine = grown[prefix]
            again = label + float(frame[prefix[-1]]) if prefix else inf
            grown[prefix] = (add(mine[0], total + float(frame[BLANK])), add(mine[1], again))
            # a prefix that is in the beam gets what belongs to it, pruned or not
            there = {p[-1] for p in beam if p[:-1] == prefix and p}
            for c in {*best, *there}:
                longer = (*prefix, c)
                before = blank if prefix and prefix[-1] == c else total
                grown[longer] = (grown[longer][0], add(grown[longer][1], before + float(frame[c])))
        beam = dict(sorted(grown.items(), key=lambda item: -add(*item[1]))[:beam_size])
    return ranked({prefix: add(*both) for prefix, both in beam.items()})


@pytest.mark.parametrize(("seed", "beam_size"), [(s, b) for s in range(6) for b in (1, 2, 3, 5, 10)])
def test_a_narrow_beam_prunes_as_the_loops_do(seed: int, beam_size: int) -> None:
    log_probs = posteriors(seed, frames=20, vocab=9, count=2, peaked=1.5)
    lengths = [20, 13]
    found = ctc_prefix_beam_search(log_probs, torch.tensor(lengths), beam_size)
    for row, length, hypotheses in zip(log_probs, lengths, found, strict=True):
        wanted = [h for h in slow_prefix_beam(row[:length], beam_size) if h.score > float("-inf")]
        assert_equal(hypotheses, wanted)


def test_padding_and_neighbours_do_not_enter() -> None:
    log_probs = posteriors(3, frames=12, vocab=7, count=4)
    lengths = torch.tensor([12, 7, 9, 1])
    together = ctc_prefix_beam_search(log_probs, lengths, 5)
    noisy = log_probs.clone()
    noisy[1, 7:] = posteriors(9, frames=5, vocab=7, count=1)[0]
    assert ctc_prefix_beam_search(noisy, lengths, 5) == together
    alone = [ctc_prefix_beam_search(log_probs[i : i + 1, :n], lengths[i : i + 1], 5)[0] for i, n in enumerate(lengths)]
    assert together == alone


# Attention


@pytest.mark.parametrize("seed", range(6))
def test_attention_with_a_wide_beam_is_an_exhaustive_search(seed: int) -> None:
    decoder, lengths = TableDecoder(seed), [4, 2, 3, 1]
    found = attention(decoder, *memories(lengths), beam_size=40, nbest=3)
    for utterance, length in enumerate(lengths):
        texts = [t for n in range(length + 1) for t in itertools.product((1, 2), repeat=n)]
        wanted = ranked({text: text_score(decoder, utterance, text) for text in texts})
        assert_equal(found[utterance], wanted[:3], 1e-5)


def slow_attention(decoder: TableDecoder, utterance: int, length: int, beam_size: int) -> list[Hypothesis]:
    """One utterance, one hypothesis at a time, until all have ended."""
    beam = [((), 0.0, False)]
    for step in range(length + 1):
        grown = [h for h in beam if h[2]]
        for labels, score, _ in (h for h in beam if not h[2]):
            row = decoder.row(utterance, (SOS, *labels))
            for label in range(1, decoder.vocab) if step < length else (EOS,):
                over = label == EOS
                grown.append((labels if over else (*labels, label), score + float(row[label]), over))
        beam = sorted(grown, key=lambda h: -h[1])[:beam_size]
    return [Hypothesis(labels, score) for labels, score, _ in beam]


@pytest.mark.parametrize(("seed", "beam_size"), [(s, b) for s in range(4) for b in (1, 2, 4)])
def test_attention_with_a_narrow_beam_prunes_as_the_loops_do(seed: int, beam_size: int) -> None:
    decoder, lengths = TableDecoder(seed, vocab=7), [6, 3, 5]
    found = attention(decoder, *memories(lengths), beam_size=beam_size, nbest=beam_size)
    for utterance, length in enumerate(lengths):
        wanted = slow_attention(decoder, utterance, length, beam_size)
        assert_equal(found[utterance], wanted, 1e-5)


def test_utterances_that_are_ready_leave_the_batch() -> None:
    decoder = TableDecoder(0)
    attention(decoder, *memories([1, 6]), beam_size=4, nbest=4)
    assert decoder.calls[0] == 8
    assert decoder.calls[-1] == 4


def test_the_model_s_decoder_goes_on_from_what_it_has_computed(model: AsrModel) -> None:
    """Step by step, hypotheses changing places and utterances leaving, as the decoder computes whole texts."""
    model.double()
    generator = torch.Generator().manual_seed(5)
    memory = torch.randn(4, 9, 16, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([9, 4, 6, 1])
    cached, whole = Cached(model.decoder, memory, lengths), Recomputed(model, memory, lengths, 3)  # type: ignore[arg-type]
    count = 4
    for step in range(7):
        labels = torch.randint(1, 9, (count, 3), generator=generator) if step else torch.full((4, 3), model.sos)
        torch.testing.assert_close(cached.step(labels), whole.step(labels), rtol=0, atol=1e-5)
        places = torch.randint(0, 3, (count, 3), generator=generator)
        rows = torch.arange(count) != step
        for steps in (cached, whole):
            steps.keep(places)  # type: ignore[attr-defined]
            if step in (1, 2):
                steps.select(rows)  # type: ignore[attr-defined]
        count -= step in (1, 2)


# Rescoring


@pytest.mark.parametrize(("seed", "ctc_weight"), [(s, w) for s in range(5) for w in (0.0, 0.3, 0.5, 4.0)])
def test_rescoring_is_a_plain_loop(seed: int, ctc_weight: float) -> None:
    decoder, log_probs = TableDecoder(seed), posteriors(seed)
    memory, lengths = memories([5, 5, 2])
    found = ctc_prefix_beam_search(log_probs, lengths, 6)
    rescored = attention_rescoring(decoder, memory, lengths, found, ctc_weight)
    for utterance, hypotheses in enumerate(found):
        wanted = {h.labels: text_score(decoder, utterance, h.labels) + ctc_weight * h.score for h in hypotheses}
        assert_equal(rescored[utterance], ranked(wanted))
    assert len(decoder.calls) == 1  # for the whole batch


# With the model


@pytest.fixture
def model() -> AsrModel:
    torch.manual_seed(0)
    size = ModelConfig(
        num_mel_bins=8, channels=4, dim=16, heads=2, feed_forward=16, layers=1, kernel=3,
        decoder_layers=2, decoder_feed_forward=16, cmvn=False,
    )  # fmt: skip
    return AsrModel(size, vocab_size=9).eval()


@pytest.mark.parametrize("mode", ["ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring"])
def test_a_batch_gives_what_its_utterances_give_alone(model: AsrModel, mode: str) -> None:
    feats = torch.randn(3, 50, 8, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([50, 31, 8], dtype=torch.int32)
    search = Search(mode, beam_size=4, nbest=1 if "greedy" in mode else 3)  # type: ignore[arg-type]
    together = search(model, feats, lengths)
    for i, length in enumerate(lengths.tolist()):
        (alone,) = search(model, feats[i : i + 1, :length], lengths[i : i + 1])
        assert_equal(together[i], alone, 1e-3)
        assert 1 <= len(alone) <= search.nbest
        assert mode != "attention" or not any({BLANK, model.eos} & set(h.labels) for h in alone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "rescoring"}, "mode must be one of ctc_greedy_search, .*not 'rescoring'"),
        ({"beam_size": 0}, "beam_size must be 1 or more, not 0"),
        ({"ctc_weight": -1.0}, "ctc_weight must be 0 or more"),
        ({"ctc_weight": float("nan")}, "ctc_weight must be 0 or more"),
        ({"nbest": 11}, "nbest must be from 1 to 10, not 11; the beam holds no more"),
        ({"mode": "ctc_greedy_search", "nbest": 2}, "nbest must be from 1 to 1"),
    ],
)
def test_refuses_what_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        Search(**options)  # type: ignore[arg-type]
