"""``chunks``: batches for streaming models, in whose rows recordings go on from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from math import ceil
from typing import Any, ClassVar

from uio_pipes.audio.length import TICKS
from uio_pipes.base.checks import check_names, is_number, refuse, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.capabilities import ChecksNext, MakesBatches
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import MAKING
from uio_pipes.core.realize import origin_of, realize, wanted
from uio_pipes.core.roles import Flow, check_there
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, least, must_be
from uio_pipes.stages.batches.chunk_rows import OF_CHUNK, PART, ChunkRows, OpenRecording, outline
from uio_pipes.stages.batches.pad import Pad
from uio_pipes.stages.batches.rows import mixed_rates
from uio_pipes.stages.features.grid import USUAL, grid_of

_CONTEXT = "0 seconds or more"


@dataclass(frozen=True)
class Chunks(MakesBatches, ChecksNext, Flow):
    """Make batches for streaming models: each row carries one recording after another, chunk after chunk.

    A model keeps the state of a row from batch to batch, and begins anew where ``reset`` is true. When a recording
    ends, the next one that comes takes its row. ``pad`` makes the tensors, as of any other batch, and adds
    ``chunk_lengths`` (B,), the frames of each chunk, 0 in a row that has none; ``reset`` (B,) bool; ``position`` (B,),
    the number of the chunk's first frame in its recording; and ``lane``, a number: states of the model belong to it, as
    each lane has rows of its own. Without features, all this is in samples of audio. A row of ``feats`` is always as
    long as the chunk with its context.

    Audio is decoded in parts of 30 s as chunks come, after a resume, too, if its header has its length (wav, flac,
    ogg, …) and only ``mono``, ``fbank``, ``mfcc`` (both without dither), ``global_cmvn`` and labels of frames come
    between. Otherwise a recording is decoded as a whole, and held while in a row: 115 MB an hour for 80 bins, or for
    16-bit audio of 16 kHz. A part that fails is counted and masked, and its row is reset behind it. If that is the
    first one, or the whole, the row is masked for as long as it was planned to be.

    Args:
        seconds: seconds of a chunk, above 0.
        left: seconds of context before each chunk in ``feats`` or ``pcm``; zeros before the beginning. Default: 0.0.
        right: seconds of context behind it, as far as the recording goes. Default: 0.0.
        rows: recordings side by side, at least 1. Default: 8.
        along: names of other fields that have an entry for each frame, such as ``["activity"]``, and are cut alike,
            without context; or a mapping to their entries a second, ``{"codes": 12.5}``. The batch has them without
            being told. ``timeline`` is always cut; ``label`` is in a chunk only if it is among these. Default: (),
            none.
        shift: seconds from frame to frame, for features that no stage of the pipeline makes. Default: None, that of
            the stages.
    """

    name: ClassVar[str] = "chunks"
    gives: ClassVar[str] = "batch"
    note: ClassVar[str] = "by the plan; recordings are decoded as they come, in parts where that can be"
    traits: ClassVar[Trait] = Trait.CONTINUES

    seconds: float = must_be(MISSING, "above 0", lambda n: n > 0, "try 1.0")
    left: float = must_be(0.0, _CONTEXT, lambda n: n >= 0, "try 0.5")
    right: float = must_be(0.0, _CONTEXT, lambda n: n >= 0, "try 0.5")
    rows: int = least(1, 8, "8 is usual")
    along: Sequence[str] | Mapping[str, float] = field(default=(), hash=False)
    shift: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "try 0.01")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.along != ():
            check_names(self.name, "along", [*self.along])
        for name, rate in self.rates.items():
            ok = rate is None or (is_number(rate) and rate > 0)
            require(ok, self.name, f"along must give entries a second of {name!r}, above 0", rate, "as in 12.5")
        if not isinstance(self.along, Mapping):
            object.__setattr__(self, "along", tuple(self.along))

    @property
    def rates(self) -> Mapping[str, float | None]:
        """The entries a second of each field in ``along``; None: as many as frames."""
        return self.along if isinstance(self.along, Mapping) else dict.fromkeys(self.along)

    @property
    def per(self) -> int:
        """The chunks that are computed at once."""
        return ceil(PART / self.seconds)

    def padded(self, lengths: Sequence[int], batch: Any) -> int:
        return self.rows * max(lengths, default=0)

    def check(self, before: Sequence[Stage]) -> None:
        check_there(self.name, {*self.rates}, before)

    def check_next(self, stage: Stage) -> None:
        sentence = "chunks has waveforms only where there are no features"
        refuse(isinstance(stage, Pad) and stage.pcm, self.name, sentence, "leave out pcm=True, or the features")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ChunksNode(source, lane, self, site)


class _ChunksNode(Buffer):
    """Holds the recordings in its rows. State, beside a buffer's: of each row, the number of the next chunk (-1: there
    is none), and whether its recording has been opened, so that a failure of it has been counted; and the sample rate
    of the first one."""

    state_fields = ("upcoming", "opened", "rate")

    def __init__(self, source: Node, lane: Lane, stage: Chunks, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage = stage

    def start(self) -> None:
        self.upcoming = [-1] * self.stage.rows
        self.opened = [0] * self.stage.rows
        self.rate = 0
        self.open: dict[int, OpenRecording | None] = {}  # by arrival number; None: it failed

    def order(self) -> list[int]:
        return [number for number in self.numbers if number >= 0]

    def rebuild(self, order: list[int]) -> None:
        held = iter(order)
        self.numbers = [-1 if upcoming < 0 else next(held) for upcoming in self.upcoming]  # of arrival, by row

    def next(self) -> ChunkRows:
        for row in range(self.stage.rows):
            if self.numbers[row] < 0:
                self._begin(row)
        rows = [row for row, number in enumerate(self.numbers) if number >= 0]
        if not rows:
            raise StopIteration
        batch = ChunkRows(map(self._planned, rows)) if self.lane.mode.skimming else self._made(rows)
        for row in rows:
            number = self.numbers[row]
            length, size = self._lengths(self.held[number])
            self.upcoming[row] += 1
            if round(self.upcoming[row] * size) >= length:
                self.open.pop(number, None)
                self.release(number)
                self.numbers[row] = self.upcoming[row] = -1
        return batch

    def _begin(self, row: int) -> None:
        """Put the next recording into a row, if there is one."""
        while True:
            try:
                number, item = self.pull()
            except StopIteration:
                return
            if self.length(item) is not None and wanted([item], self.lane):
                self.hold(number, item)
                self.numbers[row], self.upcoming[row], self.opened[row] = number, 0, 0
                return

    def _lengths(self, item: Sample) -> tuple[int, float]:
        """Return the planned frames of a recording, or samples without features, and how many a chunk has."""
        plan = item.plan
        if plan.frames is None:
            return plan.samples, self.stage.seconds * plan.sample_rate
        rate = plan.sample_rate if plan.samples and plan.sample_rate != TICKS else USUAL
        return plan.frames, self.stage.seconds / grid_of(self.stage, item, self.stage.shift, rate).shift

    def _planned(self, row: int) -> Sample:
        """Return the next chunk of a row with nothing but its planned length."""
        if self.lane.ledger.quiet:  # it is being restored, and what failed has been counted
            self.opened[row] = self.upcoming[row] // self.stage.per + 1
        item, number = self.held[self.numbers[row]], self.upcoming[row]
        length, size = self._lengths(item)
        count = min(length, round((number + 1) * size)) - round(number * size)
        plan = item.plan
        part: Sample = item.child(number)
        part.done = (1 << len(part.chain.links)) - 1
        part.settle(plan._replace(samples=count) if plan.frames is None else plan.with_frames(count))
        return part

    def _made(self, rows: list[int]) -> ChunkRows:
        opened = {row: one for row in rows if (one := self._opened(row)) is not None}
        chunks = {row: chunk for row, one in opened.items() if (chunk := self._chunk(row, one)) is not None}
        batch = ChunkRows()
        if chunks:
            like = opened[next(iter(chunks))]
            batch.extend(chunks[row] if row in chunks else like.masked() for row in range(self.stage.rows))
            batch.kept = (*OF_CHUNK, *(name for name in self.stage.rates if name != "label"))  # which is target
            batch.widths = like.widths
        if self.lane.origins is not None:
            self.lane.origins.extend(origin_of(chunk, chunk.fields["chunk_lengths"]) for chunk in chunks.values())
        return batch

    def _chunk(self, row: int, one: OpenRecording) -> Sample | None:
        """Return the next chunk of a row; None if its part fails, which is counted once, or behind the end. The first
        chunk after a part that fails is a beginning."""
        part, within = divmod(self.upcoming[row], one.per)
        reset = not within and (not part or one.load(part - 1) is not None)
        if (error := one.load(part)) is not None and part >= self.opened[row]:
            self.lane.ledger.fail(error, MAKING)
        self.opened[row] = max(self.opened[row], part + 1)
        return one.chunk(self.upcoming[row], reset) if error is None else None

    def _opened(self, row: int) -> OpenRecording | None:
        """Return the recording in a row, of which all but audio in parts is computed now, once; None if that fails,
        which is counted at the first time."""
        number = self.numbers[row]
        if number not in self.open:
            with self.lane.ledger.quietly(bool(self.opened[row])):  # it was opened, and counted, before
                self._open(row, number)
        return self.open[number]

    def _open(self, row: int, number: int) -> None:
        item = self.held[number]
        lane = replace(self.lane, key_filters=(), excluded=None, origins=None)
        self.opened[row], self.open[number] = self.opened[row] or 1, None
        if (sample := outline(item)) is None:
            sample, item = item.copy(), None
            sample.as_stored = sample.chain.takes_pcm
        for made, _ in realize([sample], lane, read=[*self.stage.rates]):
            rate, first = made.fields.get("sample_rate", 0), self.held[self.order()[0]].key
            self.rate = self.rate or rate
            try:
                if rate not in (0, self.rate):
                    raise mixed_rates(rate, self.rate, first)
                self.open[number] = OpenRecording(made, self.stage, self.lane.index, item)
                self.held[number] = made if item is None else item
            except DataError as error:
                self.lane.ledger.handle(made.failure(error, self.name), self.name)
