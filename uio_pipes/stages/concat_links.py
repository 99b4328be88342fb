"""The links that compute the fields and the plan of a joined utterance from those of its parts."""

from __future__ import annotations

from typing import Any

import torch

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.chain import Chain
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.realize import compute
from uio_pipes.core.sample import Sample
from uio_pipes.stages.concat_sample import Joined

AUDIO = frozenset(["wav", "sample_rate", "feat"])
TEXT = frozenset(["txt"])
LABELS = frozenset(["tokens", "label"])
OWN = frozenset(["key", "start", "end", "duration"])  # they describe one recording
# Scripts written without blanks: Thai and Lao, Khmer, kana and CJK punctuation, ideographs, full-width forms
NO_BLANKS = (
    (0x0E00, 0x0EFF),
    (0x1780, 0x17FF),
    (0x3000, 0x30FF),
    (0x3400, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFFEF),
    (0x20000, 0x3FFFF),
)


def joining(names: frozenset[str], ledger: Ledger) -> Chain:
    """Return the chain of links that join utterances with these fields."""
    others = names - AUDIO - TEXT - LABELS - OWN
    links: list[_Join] = [_JoinAudio(names & AUDIO, names, ledger)]
    links += [_JoinText(TEXT, names, ledger)] if "txt" in names else []
    links += [_JoinLabels(names & LABELS, names, ledger)] if names & LABELS else []
    links += [_JoinOthers(others, names, ledger)] if others else []
    return Chain(tuple(links))


class _Join:
    name = "concat"
    of = ""
    reads: frozenset[str] = frozenset()

    def __init__(self, writes: frozenset[str], names: frozenset[str], ledger: Ledger) -> None:
        self.writes, self.names, self.ledger = writes, names, ledger

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        if not isinstance(sample, Joined):
            raise PipelineError("concat: only the utterance that came out of it can be computed, not a copy")
        self.join(sample)

    def join(self, sample: Joined) -> None:
        raise NotImplementedError


class _JoinText(_Join):
    def join(self, sample: Joined) -> None:
        sample.fields["txt"] = join_text(sample.gather(_text, self.ledger))


class _JoinLabels(_Join):
    def join(self, sample: Joined) -> None:
        labels = sample.gather(lambda part: {name: part[name] for name in self.writes}, self.ledger)
        for name in self.writes:
            sample.fields[name] = [item for part in labels for item in part[name]]


class _JoinOthers(_Join):
    """Keeps the fields that are equal in all parts (speaker, lang, …)."""

    decides = True

    def join(self, sample: Joined) -> None:
        values = sample.gather(lambda part: {n: part[n] for n in self.writes if n in part}, self.ledger)
        for name in self.writes:
            _keep_equal(sample, name, values)


class _JoinAudio(_Join):
    """Computes all fields of the parts, as :func:`~uio_pipes.core.realize.realize` would."""

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        if not isinstance(sample, Joined):
            return plan
        plans = [part.planned() for part in sample.parts]
        return total([p for p in plans if p is not None])

    def join(self, sample: Joined) -> None:
        first: dict[str, Any] = {}

        def get(part: Sample) -> dict[str, Any]:
            compute(part)
            _check(part.fields, first or part.fields, self.names)
            first.update({} if first else part.fields)
            return part.fields

        fields = sample.gather(get, self.ledger)
        if "feat" in first:
            sample.fields["feat"] = torch.cat([torch.as_tensor(f["feat"]) for f in fields])
        if _is_waveform(first):
            sample.fields["wav"] = torch.cat([torch.as_tensor(f["wav"]) for f in fields], dim=-1)
            sample.fields["sample_rate"] = first["sample_rate"]
        for name in first.keys() - self.names:  # written by functions that do not declare it
            _keep_equal(sample, name, fields)


def total(plans: list[Plan]) -> Plan:
    """Return the plan of joined utterances."""
    frames = sum(p.length for p in plans) if any(p.frames is not None for p in plans) else None
    if len({p.sample_rate for p in plans}) == 1:
        return Plan(sum(p.samples for p in plans), plans[0].sample_rate, frames)
    return Plan(sum(map(ticks, plans)), TICKS, frames)


def ticks(plan: Plan) -> int:
    """Return the planned microseconds, rounded up."""
    return -(-plan.samples * TICKS // plan.sample_rate)


def _text(part: Sample) -> str:
    if not isinstance(part.get("txt"), str):
        raise DataError("missing_text", "the utterance has no text, but the others that it is joined with have one")
    return str(part["txt"])


def join_text(texts: list[str]) -> str:
    """Join texts by a blank, or by nothing next to a script without blanks (Chinese, Japanese, Thai, …)."""
    out = ""
    for text in texts:
        blank = out and text and not (_no_blanks(out[-1]) or _no_blanks(text[0]))
        out += f" {text}" if blank else text
    return out


def _no_blanks(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in NO_BLANKS)


def _is_waveform(fields: dict[str, Any]) -> bool:
    return hasattr(fields.get("wav"), "shape")


def _keep_equal(sample: Sample, name: str, parts: list[dict[str, Any]]) -> None:
    values = [part.get(name) for part in parts]
    if isinstance(values[0], (str, int, float)) and all(v == values[0] for v in values):
        sample.fields[name] = values[0]
    else:
        sample.fields.pop(name, None)


def _check(fields: dict[str, Any], first: dict[str, Any], names: frozenset[str]) -> None:
    """Raises: DataError if ``fields`` cannot follow those of the ``first`` part, PipelineError if nothing can."""
    if "feat" not in fields and not _is_waveform(fields):
        raise PipelineError("concat: the audio is not decoded; put .decode_audio() before concat")
    for name in (TEXT | LABELS) & names - fields.keys():
        raise DataError(f"missing_{'text' if name == 'txt' else name}", f"the utterance has no {name}; the first has")
    if ("feat" in fields) != ("feat" in first) or _is_waveform(fields) != _is_waveform(first):
        raise DataError("mixed_features", "some utterances have features and some have not; they cannot be joined")
    if "feat" in fields and fields["feat"].shape[1] != first["feat"].shape[1]:
        bins = f"{fields['feat'].shape[1]} bins, those of the first {first['feat'].shape[1]}"
        raise DataError("mixed_features", f"features of {bins}; they cannot be joined")
    if _is_waveform(fields) and fields["sample_rate"] != first["sample_rate"]:
        rates = f"{fields['sample_rate']} Hz, the first {first['sample_rate']} Hz"
        raise DataError("mixed_sample_rates", f"the utterance has {rates}; put .resample(…) before concat")
    if _is_waveform(fields) and fields["wav"].shape[:-1] != first["wav"].shape[:-1]:
        raise DataError("mixed_channels", "the utterances have different numbers of channels; put .mono() before")
