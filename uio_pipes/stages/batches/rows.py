"""The rows of a batch, padded, ragged or nested, at one sample rate, and the form in which a model gets them: names,
padding, masks, lengths and axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.containers import Pcm16
from uio_pipes.base.checks import in_words, is_number, nearest, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hints import answer
from uio_pipes.core import realize as batch_memory
from uio_pipes.core.chain import audio_names, recordings
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.frames import put_pcm

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
        f"its audio has {rate} Hz, but {like!r} and others in its batch have {kept} Hz; they cannot share a batch: put "
        ".resample(16_000) before the features",
    )


def odd_ones(samples: Sequence[Sample], lane: Lane, stage: str) -> frozenset[int]:
    """Fail the utterances of a batch whose rate differs from that of most, in any stream; return their numbers."""
    found: dict[int, tuple[int, int, str]] = {}
    for of in ("", *dict.fromkeys(of for sample in samples for of in sample.chain.streams)):
        rates = [(i, rate) for i, sample in enumerate(samples) for rate in rates_of(sample.fields, of)]
        kept, odd = odd_rates([rate for _, rate in rates])
        if not odd:
            continue
        others = [i for i, rate in rates if rate == kept]
        for at in odd:
            i, rate = rates[at]
            found[i] = rate, kept, samples[next((other for other in others if other != i), i)].key
    for i, (rate, kept, like) in sorted(found.items()):
        lane.ledger.handle(samples[i].failure(mixed_rates(rate, kept, like), stage), stage)
    if not found:
        lane.ledger.succeeded(stage)
    return frozenset(found)


AudioRow = torch.Tensor | npt.NDArray[np.int16]
PADDED = "padded"
LAYOUTS = (PADDED, "ragged", "nested")


def put_row(row: AudioRow, place: npt.NDArray[Any], padding: float) -> None:
    """Copy ``row`` to the beginning of its place in a batch, and fill the rest of that."""
    if isinstance(row, torch.Tensor):
        place[: len(row)] = row.to(getattr(torch, place.dtype.name)).numpy(force=True)
        place[len(row) :] = padding
    else:
        put_pcm(row, place, padding)


class PaddedRows:
    """Rows in the memory of the batch. They have ``ndim`` or more dimensions, of which the first may differ; it is
    padded to ``width`` at least."""

    def __init__(self, most: int, ndim: int, padding: float, dtype: torch.dtype, width: int = 0) -> None:
        self.most, self.ndim, self.padding, self.dtype, self.width = most, ndim, padding, dtype, width
        self.lengths: list[int] = []
        self.tail: tuple[int, ...] = ()  # the dimensions of a row except for the first
        self.out = torch.empty(0, 0)
        self._places: npt.NDArray[Any] = self.out.numpy()  # NumPy copies past the cache, in two thirds of torch's time

    def add(self, row: AudioRow) -> None:
        at, length = len(self.lengths), row.shape[0]
        if not at or length > self.out.shape[1]:
            narrow, shape = self.out, tuple(row.shape[1:])
            self.out = batch_memory.empty((self.most, max(length, self.width), *shape), self.dtype)
            if at:
                self.out[:at, : narrow.shape[1]] = narrow[:at]
                self.out[:at, narrow.shape[1] :] = self.padding
            self.tail, self._places = shape, self.out.numpy()
        put_row(row, self._places[at], self.padding)
        self.lengths.append(length)

    def made(self, order: Sequence[int], layout: str) -> tuple[Any, torch.Tensor]:
        """Return the rows in ``order``, and their lengths (B,) int32."""
        lengths = [self.lengths[i] for i in order]
        if layout != PADDED:
            rows = [self.out[i, :length] for i, length in zip(order, lengths, strict=True)]
            ragged = layout == "ragged"
            made = [row.clone() for row in rows] if ragged else torch.nested.nested_tensor(rows, layout=torch.jagged)
            return made, torch.tensor(lengths, dtype=torch.int32)
        out = self.out[: len(order)]
        if list(order) != list(range(len(order))):
            out = self.out[order]
        if len(order) < len(self.lengths):
            out = out[:, : max(lengths)].contiguous()
        return out, torch.tensor(lengths, dtype=torch.int32)


def together(name: str, values: list[Any], layout: str, padding: tuple[float, float], width: int = 0) -> dict[str, Any]:
    """Return a batch's fields for these values: numbers as a tensor, arrays as rows with lengths, others as a list.

    ``padding``: of floats, and of whole numbers; ``width``: of rows, at least.
    """
    rows = _arrays(values)
    if rows is None:
        return {name: _plain(values)}
    floats = rows[0].is_floating_point()
    made = PaddedRows(len(rows), 1, padding[not floats], torch.float32 if floats else torch.int64, width)
    for row in rows:
        made.add(row)
    out, lengths = made.made(range(len(rows)), layout)
    return {name: out, f"{name}_lengths": lengths}


def joined(name: str, values: list[Any]) -> dict[str, Any]:
    """Like :func:`together`, but with arrays concatenated."""
    rows = _arrays(values)
    if rows is None:
        return {name: _plain(values)}
    return {name: torch.cat(rows), f"{name}_lengths": torch.tensor([len(row) for row in rows], dtype=torch.int32)}


def check_kept(stage: str, name: str, batch: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Raises: PipelineError if a field that is kept would replace a tensor of the batch."""
    if taken := batch.keys() & kept.keys():
        raise PipelineError(
            f"{stage}: keep has {name!r}, but {', '.join(sorted(taken))} is always in the batch: give the field "
            "another name, or remove it"
        )


def _plain(values: list[Any]) -> Any:
    plain = [value.item() if getattr(value, "ndim", 1) == 0 else value for value in values]
    numbers = all(isinstance(value, bool) or is_number(value) for value in plain)
    return torch.tensor(plain) if numbers else values


def _arrays(values: list[Any]) -> list[torch.Tensor] | None:
    """Return values that are arrays which differ in their first dimension only; None if they are something else."""
    rows = [row for row in map(_array, values) if row is not None]
    tails = {row.shape[1:] for row in rows if row.numel()} or {row.shape[1:] for row in rows[:1]}
    if not rows or len(rows) < len(values) or len(tails) > 1:
        return None
    (tail,) = tails
    rows = [row if row.shape[1:] == tail else row.new_zeros((0, *tail)) for row in rows]  # [] has no width
    floats = any(row.is_floating_point() and row.numel() for row in rows)
    return [row.to(torch.float32 if floats else torch.int64) for row in rows]


def _array(value: Any) -> torch.Tensor | None:
    """Return an array or a list of numbers, or of such lists, as a tensor; None for anything else."""
    if not _are_numbers(value) and not isinstance(value, (torch.Tensor, np.ndarray)):
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        return None
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # numbers that no tensor holds
        return None
    if tensor.is_complex():
        return None
    return tensor if tensor.ndim in (1, 2) else None  # frames of a video are no sequence of numbers


def _are_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(is_number(one) or _are_numbers(one) for one in value)


# The rows of ``pack``: parts one after the other


def numbers_of(fields: dict[str, Any], name: str, least: int = 0) -> npt.NDArray[np.int64]:
    """Return a field of whole numbers; ``least`` 1: or of one, a class. Raises: DataError ``bad_label``."""
    try:
        numbers = np.array(fields[name], ndmin=least)
        if numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not len(numbers)):
            return numbers.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError("bad_label", f"its {name} is not a list of whole numbers")


def places_of(parts: list[tuple[Sample, int, int]], of: str, count: int) -> torch.Tensor:
    """Return the first place, of all rows, and the number of places of each of ``count`` recordings in a stream.

    Those of the usual stream are the free ones before the tokens, unless the utterance says where in its tokens they
    are.
    """
    places = []
    for sample, first, free in parts:
        spans = sample.fields.get(f"{of or 'wav'}_places")
        if spans is None:
            places.append((first, 0 if of else free))
        else:
            places += [(first + free + int(at), int(many)) for at, many in spans]
    if len(places) != count:
        raise PipelineError(
            f"pack: there are {count} recordings of {of or 'wav'!r} and {len(places)} places; each needs one"
        )
    return torch.tensor(places).reshape(-1, 2)


def audio_of(samples: list[Sample], of: str) -> dict[str, torch.Tensor]:
    """Return ``feats``, the features of all recordings one after the other, or else ``pcm``, their waveforms, and the
    lengths of each; {} if there are none.

    Raises: PipelineError if they cannot be put together.
    """
    found = [(sample.key, *one) for sample in samples for one in _recordings(sample.fields, of)]
    if all(feat is None for _, feat, _ in found):
        name, rows = "pcm", [None if wav is None else mono("pack", key, wav) for key, _, wav in found]
    else:
        name, rows = "feats", [None if feat is None else torch.as_tensor(feat) for _, feat, _ in found]
        for key, feat, wav in found:
            if feat is None and wav is not None:
                raise PipelineError(f"pack: {key} has audio without features, but others in its batch have features")
    there = [row for row in rows if row is not None]
    if len({row.shape[1:] for row in there}) > 1:
        widths = sorted({row.shape[-1] for row in there})
        raise PipelineError(f"pack: features of {in_words(map(str, widths))} bins cannot share a batch")
    if not there:
        return {}
    name, lengths = f"{of}_{name}" if of else name, [0 if row is None else len(row) for row in rows]
    return {name: torch.cat(there), f"{name}_lengths": torch.tensor(lengths, dtype=torch.int32)}


def target_of(samples: list[Sample], of: str) -> dict[str, Any]:
    """Return the labels of a stream one after the other, and how many each utterance has; {} if none has any."""
    name, label = (f"{of}_target", f"{of}_label") if of else ("target", "label")
    found = [sample.fields.get(label) for sample in samples]
    return joined(name, [[] if one is None else one for one in found]) if any(one is not None for one in found) else {}


def with_kept(batch: dict[str, Any], samples: list[Sample], stage: str, keep: Sequence[str]) -> dict[str, Any]:
    """Return the batch with the fields to ``keep``. Raises: PipelineError if one is in it already."""
    for name in keep:
        kept = joined(name, [sample.fields.get(name) for sample in samples])
        check_kept(stage, name, batch, kept)
        batch |= kept
    return batch


def _recordings(fields: dict[str, Any], of: str) -> list[tuple[Any, Any]]:
    """Return features and waveform of each recording in the stream, or None where there is none."""
    names = audio_names(of) if of else {"wav": "wav", "feat": "feat"}
    count = recordings(fields, names)
    feats, waves = (fields.get(names[name]) for name in ("feat", "wav"))
    if count is None:
        none = feats is None and waves is None and f"{of or 'wav'}_places" in fields  # of a conversation without audio
        count, feats, waves = (0, [], []) if none else (1, [feats], [waves])
    nothing = [None] * count
    if of and names["sample_rate"] not in fields:  # arrays without a rate are no audio: codes, an embedding
        waves = nothing
    waves = [wav if isinstance(wav, (torch.Tensor, np.ndarray)) else None for wav in waves or nothing]
    return list(zip(feats or nothing, waves, strict=True))


def mono(stage: str, key: str, audio: Any, of: str = "") -> Any:
    """Return decoded audio of one channel as (S,), 16-bit samples as they are. Raises: PipelineError."""
    wav = waveform(stage, key, audio, of)
    if wav.ndim == 2:
        raise PipelineError(f"{stage}: {key} has {wav.shape[1]} channels; choose one, or put .mono() before")
    return wav


def waveform(stage: str, key: str, audio: Any, of: str = "") -> Any:
    """Return decoded audio as (S,), or as (S, C) if it has several channels. Raises: PipelineError."""
    if not isinstance(audio, (torch.Tensor, np.ndarray)):
        decoding = f".decode_audio({f'of={of!r}' if of else ''})"
        raise PipelineError(f"{stage}: the audio of {key} is not decoded; put {decoding} before batching")
    wav = audio if isinstance(audio, Pcm16) else torch.as_tensor(audio)
    return wav.T if wav.ndim == 2 and wav.shape[0] != 1 else wav.reshape(-1)


FEATS = "feats"
LENGTHS = {"int32": torch.int32, "int64": torch.int64}
PADDED_OUTPUTS = ("feats", "pcm", "target")  # also those of streams, as prompt_feats


def check_outputs(stage: str, value: Any, names: Any, lengths: Any, keep: Sequence[str]) -> None:
    """Raises: PipelineError if an argument of ``pad`` that only says how the batch looks breaks a rule."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    rule = "value must be a number for the features, or numbers by the outputs that they pad"
    require(all(map(is_number, values)), stage, rule, value, 'as in {"feats": 0.0, "target": -100}')
    for name in value if isinstance(value, Mapping) else ():
        unpadded = name not in keep and name.rpartition("_")[2] not in PADDED_OUTPUTS
        sentence = f"value has {name!r}, but what is padded is {in_words(PADDED_OUTPUTS)}, also of streams, and keep"
        refuse(unpadded, stage, sentence, _meant(name, PADDED_OUTPUTS) or "leave it out")
    ok, remedy = isinstance(lengths, str) and lengths in LENGTHS, "models of Hugging Face take int64"
    require(ok, stage, "lengths must be int32 or int64", lengths, remedy)
    if names is None:
        return
    rule = "names must be new names by the outputs that get them, or None for outputs to leave out"
    ok = isinstance(names, Mapping) and all(isinstance(one, str) and one for one in names)
    ok = ok and all(new is None or (isinstance(new, str) and new) for new in names.values())
    require(ok, stage, rule, names, 'as in {"feats": "input_features", "keys": None}')
    new = [name for name in names.values() if name is not None]
    require(len(set(new)) == len(new), stage, "names must give each output a name of its own", names, "change one")


@dataclass(frozen=True)
class Outputs:
    """What ``pad`` does to the outputs of a batch once they are made; arguments as those of ``Pad``. ``widths``: of
    whole rows, by the fields of utterances, if they are to have the same width in all batches."""

    value: float | Mapping[str, float] = 0.0
    mask: bool = False
    names: Mapping[str, str | None] | None = None
    lengths: str = "int32"
    transpose: bool | Sequence[str] = False
    widths: Mapping[str, int] = field(default_factory=dict)

    def padding(self, name: str, usual: float) -> float:
        """Return the padding of the output ``name``; ``usual`` is its default."""
        if isinstance(self.value, Mapping):
            return self.value.get(name, usual)
        return self.value if _are_features(name) else usual

    def paddings(self, name: str, whole: float) -> tuple[float, float]:
        """Return what an output is padded with if it has floats, and if it has whole numbers; ``whole``: usually."""
        if _are_features(name) and not isinstance(self.value, Mapping):
            return self.value, self.value or whole
        return self.padding(name, 0.0), self.padding(name, whole)

    def of(self, batch: dict[str, Any], lengths_of: Mapping[str, str]) -> dict[str, Any]:
        """Return the batch for the model. ``lengths_of``: names of lengths by the outputs that have them.

        Raises: PipelineError if ``names`` or ``value`` has an output that the batch lacks, or two have one name.
        """
        if isinstance(self.value, Mapping):
            _check_there("value", self.value, batch)
        for name, lengths in lengths_of.items():
            batch[lengths] = batch[lengths].to(LENGTHS[self.lengths])
            if self.mask:
                places = torch.arange(batch[name].shape[1])
                batch[f"{name}_mask"] = places < batch[lengths][:, None]
            turned = (
                name in self.transpose if isinstance(self.transpose, tuple) else self.transpose and _are_features(name)
            )
            if turned or (name.endswith("pcm") and getattr(batch[name], "ndim", 0) == 3 and not batch[name].is_nested):
                batch[name] = batch[name].transpose(1, 2).contiguous()
        if self.names is None:
            return batch
        _check_there("names", self.names, batch)
        named = {name: self.names.get(name, name) for name in batch}
        made = {new: batch[name] for name, new in named.items() if new is not None}
        if len(made) < sum(new is not None for new in named.values()):
            raise PipelineError(
                f"pad: names={dict(self.names)!r} gives two outputs of {', '.join(batch)} the same name"
            )
        return made


def _are_features(name: str) -> bool:
    return name == FEATS or name.endswith(f"_{FEATS}")


def _check_there(argument: str, given: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    for name in given:
        if name not in batch:
            hint = _meant(name, batch)
            problem = f"{argument} has {name!r}, but the batch has {', '.join(batch)}"
            raise PipelineError(f"pad: {problem}{'; ' if hint else ''}{hint}")


def _meant(name: str, outputs: Iterable[str]) -> str:
    """Return what to say of an output ``name`` that is not among ``outputs``; "" if no other seems to be meant."""
    near = nearest(name, outputs)
    return answer("output", name) or (f"did you mean {near!r}?" if near else "")
