"""``pack``: rows of tokens, or frames of audio without padding, of whole utterances, for variable-length attention."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
import torch

from uio_pipes.base.checks import check_names, in_words, refuse, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.capabilities import MakesBatches
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import Length, check_measure, measure_of, realize
from uio_pipes.core.roles import Flow, check_labels
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, least, name_node, one_of
from uio_pipes.stages.batches.packed_audio import PackedAudioNode
from uio_pipes.stages.batches.rows import audio_of, numbers_of, odd_ones, places_of, target_of, with_kept
from uio_pipes.stages.utterances.flat_map import Expanding

LAYOUTS = ("segments", "touchnet")
_OF_ROWS = ("tokens", "labels", "position_ids", "segment_ids", "cu_seqlens", "max_seqlen", "input_ids", "sentence_lens")
MADE = frozenset([*_OF_ROWS, "keys", "feats", "pcm", "wav", "feat", "label"])  # names that ``keep`` cannot have
OVERFLOWS = ("drop", "split", "alone")
_OF_TOKENS = ("rows", "length", "pad", "ignore", "layout")
_OF_FRAMES = ("multiple_of", "fixed")


@dataclass(frozen=True)
class Pack(MakesBatches, Flow):
    """Make rows of exactly ``max_tokens`` tokens, or batches of up to ``max_frames`` frames of audio, of whole
    utterances with hardly any padding. It makes the batch.

    A row begins with the utterance that has waited longest. The next ones follow as they came until less than a
    quarter of the row is left; then come those that fill it best, of all in the window.

    Of ``max_tokens``: a dict of ``keys`` (list of str, in the order of the parts); ``tokens`` and ``labels`` (R,
    ``max_tokens``) int64; ``position_ids``, which begin at 0 in each part, and ``segment_ids``, the number of the part
    in its row from 1 on, 0 for padding, both of the same shape; and for variable-length attention over the rows one
    after the other ``cu_seqlens`` (int32, from 0 on; the padding at a row's end is a segment of its own) and
    ``max_seqlen`` (int). ``labels`` are the tokens, not shifted, with ``ignore`` where no loss is; an utterance with a
    field ``labels`` of its own has these.

    If ``length`` counts more than tokens, such as frames of audio, the places of a part that its tokens do not fill
    come first, for what the model puts there; ``feats`` (ΣT, F) has the features of all parts one after the other,
    ``feats_lengths`` (N,) int32 how many frames each has, and ``feats_places`` (N, 2) int64 where they belong: the
    first place of the part in the rows one after the other, and how many there are. Without features it is ``pcm``.
    Streams (``of="prompt"``) come one after the other in the same way, as ``prompt_feats``, ``prompt_pcm`` or
    ``prompt_target`` with their lengths. Where utterances say at which of their tokens a recording belongs, as those of
    ``chat`` do (``wav_places``, ``prompt_places``: the first place and how many there are), there is
    ``prompt_feats_places``, too. The audio of a batch has one rate, as with ``pad``.

    Of ``max_frames``, where a batch is one row: ``keys``; ``feats`` (ΣT, F) float32, the features of all utterances one
    after the other, or ``pcm`` (ΣS,), their waveforms; ``feats_lengths`` (N,) int32; ``cu_seqlens`` (N + 1,) int32,
    where each begins, and the end; ``max_seqlen`` (int), the longest of these segments; and if there are labels,
    ``target`` (ΣU,) int64 and ``target_lengths`` (N,) int32. Streams come as above.

    An utterance that is longer than a row is the failure ``over_budget``, or what ``overflow`` says.

    Args:
        max_tokens: tokens of a row. Default: None; give this or ``max_frames``.
        rows: how many rows are a batch; the last one of a lane may have fewer. Default: 1.
        window: how many utterances to hold and choose from. Default: 1,000.
        overflow: "drop": leave out utterances that are longer than a row, counted as ``overflow``; "split": cut
            tokens into parts; "alone": make a batch of such an utterance, whose only row is as long as it is. Default:
            None.
        length: what counts: another length than "tokens", or a function of all planned lengths, as in
            ``lambda n: n.frames // 4 + n.tokens``. Default: None, tokens.
        keep: names of other fields: numbers become a tensor (N,), arrays are put one after the other and have
            ``NAME_lengths``, everything else is a list. Default: (), none.
        pad: the token of padding and of places that are not tokens. Default: 0.
        ignore: the label there. Default: -100, torch's.
        layout: "touchnet" gives ``input_ids``, ``labels``, ``position_ids`` and ``sentence_lens`` (the length of
            the part that a place belongs to) instead of the above. Default: "segments".
        max_frames: frames of a batch at most: feature frames, or 10 ms of audio without features. Default: None.
        multiple_of: with ``max_frames``: each utterance begins at a multiple of so many frames, and the batch ends at
            one; zeros are in between, and belong to the segment before them. Default: None, there is nothing between.
        fixed: with ``max_frames``: whether every batch has exactly so many frames. The zeros at its end are further
            segments, none longer than the longest utterance. Default: False.
    """

    name: ClassVar[str] = "pack"
    gives: ClassVar[str] = "padded batch"
    note: ClassVar[str] = "by the plan; makes the batch"
    reasons = ("overflow",)
    traits: ClassVar[Trait] = Trait.ONE_RATE

    max_tokens: int | None = least(1, None, "try 4_096")
    rows: int = least(1, 1, "1 is usual")
    window: int = least(1, 1_000, "try 1_000")
    overflow: str | None = one_of((None, *OVERFLOWS), None, "None makes it a failure")
    length: Length | None = None
    keep: Sequence[str] = ()
    pad: int = 0
    ignore: int = -100
    layout: str = one_of(LAYOUTS, LAYOUTS[0], "segments is the default")
    max_frames: int | None = least(1, None, "try 12_000")
    multiple_of: int | None = least(1, None, "8 is usual")
    fixed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "it needs either max_tokens, for rows of tokens, or max_frames, for audio without padding"
        refuse(bool(self.max_tokens) == bool(self.max_frames), self.name, rule, "as in max_frames=12_000")
        unit, of_other = ("max_frames", _OF_TOKENS) if self.max_frames else ("max_tokens", _OF_FRAMES)
        given = [name for name in of_other if getattr(self, name) != getattr(Pack, name)]
        refuse(given, self.name, f"{in_words(given)} cannot be combined with {unit}", "leave one of them out")
        cut = self.overflow == "split"
        rule = f"overflow={self.overflow!r} cannot be combined with {'max_frames' if cut else 'fixed'}"
        refuse(self.max_frames and (cut or (self.fixed and self.overflow == "alone")), self.name, rule, 'try "drop"')
        rule, step = f"max_frames must be a multiple of multiple_of={self.multiple_of}", self.multiple_of or 1
        require(self.most % step == 0, self.name, rule, self.most, f"try {-(-self.most // step) * step:_}")
        check_measure(self.name, self.length)
        if self.keep != ():
            check_names(self.name, "keep", self.keep)
        rule = "keep must not name fields that are always in the batch"
        require(MADE.isdisjoint(self.keep), self.name, rule, self.keep, 'try ["txt"]')
        object.__setattr__(self, "keep", tuple(self.keep))

    @property
    def sized_by(self) -> Length:
        return self.length or ("frames" if self.max_frames else "tokens")

    @property
    def most(self) -> int:
        """The places of a row."""
        return self.max_frames or self.max_tokens or 0

    def room(self, size: int) -> int:
        """Return the places that an utterance of this size takes."""
        return size if self.multiple_of is None else -(-size // self.multiple_of) * self.multiple_of

    def padded(self, lengths: Sequence[int], batch: Any) -> int:
        if self.max_frames and not self.fixed:
            return sum(map(self.room, lengths))
        return len(batch.ends) * max(self.most, *lengths) if lengths else 0

    def check(self, before: Sequence[Stage]) -> None:
        check_labels(self.name, self.sized_by, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        if self.overflow == "split":
            source = name_node(SplitNode(source, lane, site, self.most, self.sized_by), lane, site)
        packed = name_node(_PackNode(source, lane, self, site), lane, site)
        return (PackedAudioNode if self.max_frames else RowsNode)(packed, lane, self)


class _PackNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Pack, site: Site) -> None:
        super().__init__(source, lane, site.name, None if stage.max_frames else stage.sized_by)
        self.stage = stage

    def order(self) -> list[int]:
        return sorted(self.held)

    def rebuild(self, order: list[int]) -> None:
        self.sizes, self.alone = dict[int, int](), deque[int]()
        self.fitting, self.waiting = list[tuple[int, int]](), deque[int]()
        for number in order:
            self._put(number, self.length_of(self.held[number]))

    def _put(self, number: int, size: int) -> None:
        size = self.stage.room(size)
        if size > self.stage.most:
            self.alone.append(number)
            return
        self.sizes[number] = size
        insort(self.fitting, (size, number))
        self.waiting.append(number)

    def next(self) -> PackedRows:
        while len(self.held) < self.stage.window and self._arrival():
            pass
        if self.alone and not (self.waiting and self.waiting[0] < self.alone[0]):
            return PackedRows([[self.release(self.alone.popleft())]])
        rows: list[list[Sample]] = []
        while self.fitting and len(rows) < self.stage.rows:
            row: list[Sample] = []
            space = self.stage.most
            while (number := self._choice(space)) is not None:
                size = self.sizes.pop(number)
                del self.fitting[bisect_left(self.fitting, (size, number))]
                row.append(self.release(number))
                space -= size
                while self.waiting and self.waiting[0] not in self.sizes:
                    self.waiting.popleft()
            rows.append(row)
        if not rows:
            raise StopIteration
        return PackedRows(rows)

    def _arrival(self) -> bool:
        """Hold the next utterance, if there is one."""
        try:
            number, item = self.pull()
        except StopIteration:
            return False
        size = self.length(item)
        if size is None or (size > self.stage.most and self._left_out(item, size)):
            return True
        self.hold(number, item)
        self._put(number, size)
        return True

    def _left_out(self, item: Sample, size: int) -> bool:
        if self.stage.overflow == "alone":
            return False
        if self.stage.overflow == "drop":
            self.lane.ledger.count("overflow")
        else:
            unit, choices = ("frames", '"drop"') if self.stage.max_frames else ("tokens", '"drop", "split"')
            rule = f"{size} {unit} are more than fit into a row ({self.stage.most})"
            remedy = f'raise max_{unit}, or choose what to do with it: overflow={choices} or "alone"'
            self.lane.ledger.handle(item.failure(DataError("over_budget", f"{rule}; {remedy}"), self.name), self.name)
        return True

    def _choice(self, space: int) -> int | None:
        """Return the utterance to go on with: the oldest while there is much space, and then the longest that fits."""
        if self.waiting and 4 * space >= self.stage.most and self.sizes[self.waiting[0]] <= space:
            return self.waiting[0]
        at = bisect_right(self.fitting, (space, inf))
        return self.fitting[at - 1][1] if at else None


_CUT = ("label", "labels", "tokens")


class SplitNode(Expanding):
    """Gives an utterance that is longer than ``most`` in parts of that many tokens; others pass unchanged."""

    def __init__(self, source: Node, lane: Lane, site: Site, most: int, length: Length) -> None:
        super().__init__(source, lane, site)
        self.most, self.measured = most, measure_of(length)

    def expand(self) -> Iterator[Sample]:
        sample: Sample = self.item
        if self.measured(sample) <= self.most:
            yield sample
            return
        tokens = sample["label"]
        has_audio = not sample.text_only or any(sample.recordings(of) for of in sample.chain.streams)
        if self.measured(sample) > len(tokens) or has_audio:
            message = 'it is longer than a row, and only tokens can be split: drop it with overflow="drop"'
            raise DataError("over_budget", message)
        for first in range(0, len(tokens), self.most):
            part = sample.copy()
            for name in _CUT:
                value: Any = part.fields.get(name)
                if hasattr(value, "__len__") and len(value) == len(tokens):
                    part.fields[name] = value[first : first + self.most]
            yield part


# The batch: here everything deferred is computed


class PackedRows(list[Sample]):
    """The utterances of a batch, row after row. ``ends``: how many there are up to the end of each row."""

    def __init__(self, rows: Iterable[list[Sample]]) -> None:
        super().__init__()
        self.ends: list[int] = []
        for row in rows:
            self.extend(row)
            self.ends.append(len(self))


class RowsNode(Node):
    """Makes the tensors of rows."""

    def __init__(self, source: Node, lane: Lane, stage: Pack) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.measured = measure_of(stage.sized_by)

    def next(self) -> Any:
        rows: PackedRows = self.source.next()
        if self.lane.mode.skimming:
            return rows
        copies = [sample.copy() for sample in rows]  # because a node of the user's may give the same samples again
        planned = {id(sample): self.measured(sample) for sample in copies}
        row_of = {id(sample): bisect_right(rows.ends, i) for i, sample in enumerate(copies)}
        batch = _GrowingRows(self.stage, len(rows.ends), max(self.stage.most, *planned.values()))
        realized = list(realize(copies, self.lane, read=self.stage.keep))
        made = [sample for sample, _ in realized]
        odd = odd_ones(made, self.lane, self.stage.name)
        frames, sizes = [], []
        for sample, length in (one for i, one in enumerate(realized) if i not in odd):
            try:
                size = self.measured(sample.finished())
                batch.add(sample, row_of[id(sample)], size, planned[id(sample)])
            except DataError as error:
                self.lane.ledger.handle(sample.failure(error, self.stage.name), self.stage.name)
            else:
                frames.append(length)
                sizes.append(size)
        self.lane.ledger.delivered(frames, sizes, padded=0, padded_tokens=batch.tokens.size)
        return batch.made() if sizes else {}


class _GrowingRows:
    """Rows to which the parts of a batch are added one after the other."""

    def __init__(self, stage: Pack, rows: int, width: int) -> None:
        self.stage, self.width = stage, width
        self.tokens = np.full((rows, width), stage.pad, np.int64)
        self.labels = np.full((rows, width), stage.ignore, np.int64)
        self.positions, self.segments = (np.zeros((rows, width), np.int64) for _ in range(2))
        self.filled = [0] * rows
        self.bounds: list[list[int]] = [[] for _ in range(rows)]  # where parts end, in each row
        self.parts: list[tuple[Sample, int, int]] = []  # the utterance, first place, places that are not tokens

    def add(self, sample: Sample, row: int, size: int, planned: int) -> None:
        """Add a part of ``size`` places, of which it was planned that there are ``planned``. Raises: DataError."""
        tokens = numbers_of(sample.fields, "label") if "label" in sample.fields else np.empty(0, np.int64)
        if size > planned or len(tokens) > size:
            raise DataError(
                "length_mismatch", f"it has {size} places with {len(tokens)} tokens, planned were {planned}"
            )
        labels = numbers_of(sample.fields, "labels") if "labels" in sample.fields else tokens
        if len(labels) != len(tokens):
            raise DataError("length_mismatch", f"it has {len(labels)} labels and {len(tokens)} tokens")
        first, end = self.filled[row], self.filled[row] + size
        text = end - len(tokens)
        self.tokens[row, text:end], self.labels[row, text:end] = tokens, labels
        self.positions[row, first:end] = np.arange(size)
        self.bounds[row].append(end)
        self.segments[row, first:end] = len(self.bounds[row])
        self.filled[row] = end
        self.parts.append((sample, row * self.width + first, text - first))

    def made(self) -> dict[str, Any]:
        """Return the batch (see :class:`Pack`)."""
        order = sorted(range(len(self.parts)), key=lambda i: self.parts[i][1])
        parts = [self.parts[i] for i in order]
        samples = [sample for sample, _, _ in parts]
        batch: dict[str, Any] = {"keys": [sample.key for sample in samples]}
        batch |= self._segments() if self.stage.layout == LAYOUTS[0] else self._touchnet()
        for of in dict.fromkeys(["", *(of for sample in samples for of in sample.chain.named)]):
            batch |= (found := audio_of(samples, of))
            if found and (not of or any(f"{of}_places" in sample.fields for sample in samples)):
                name, (_, lengths) = next(iter(found)), found.values()
                batch[f"{name}_places"] = places_of(parts, of, len(lengths))
            batch |= target_of(samples, of) if of else {}
        return with_kept(batch, samples, self.stage.name, self.stage.keep)

    def _segments(self) -> dict[str, Any]:
        ends = [0]
        for row, bounds in enumerate(self.bounds):
            ends += [row * self.width + end for end in bounds]
            if ends[-1] < (row + 1) * self.width:
                ends.append((row + 1) * self.width)
        return {
            "tokens": torch.from_numpy(self.tokens),
            "labels": torch.from_numpy(self.labels),
            "position_ids": torch.from_numpy(self.positions),
            "segment_ids": torch.from_numpy(self.segments),
            "cu_seqlens": torch.tensor(ends, dtype=torch.int32),
            "max_seqlen": int(np.diff(ends).max()),
        }

    def _touchnet(self) -> dict[str, Any]:
        lens = np.zeros_like(self.tokens)
        for row, bounds in enumerate(self.bounds):
            for first, end in zip([0, *bounds], bounds, strict=False):
                lens[row, first:end] = end - first
        return {
            "input_ids": torch.from_numpy(self.tokens),
            "labels": torch.from_numpy(self.labels),
            "position_ids": torch.from_numpy(self.positions),
            "sentence_lens": torch.from_numpy(lens),
        }
