"""``segments``: cuts utterances out of long recordings during training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from uio_pipes.audio.containers import Declared
from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.length import audio_info, check_no_features, segment_samples
from uio_pipes.audio.recording import Timed, of_channels
from uio_pipes.base.checks import check_names, is_number, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import Connects, Upstream
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, must_be, one_of
from uio_pipes.formats.expressions import lookup
from uio_pipes.formats.touchdataset import StoredRecord
from uio_pipes.io.references import AudioInfo, Ref
from uio_pipes.stages.utterances.flat_map import Expanding
from uio_pipes.stages.utterances.segment_runs import (
    SegmentRun,
    merged,
    milliseconds,
    parse_segments,
    pieces,
    random_piece,
)

_TOUCHED = frozenset(["wav", "start", "end", "txt", "*"])


@dataclass(frozen=True)
class Segments(Connects, Flow):
    """Cut utterances out of long recordings, at the times of their segments or at random.

    The result has the fields of the recording except for its list of segments, then ``start``, ``end``, ``txt`` and
    the other fields of the segment (of joined segments: those that agree), and as ``key`` the segment's own, or
    ``KEY-START-END`` in milliseconds. Of a supervision of Lhotse's, ``id`` becomes ``key`` and ``text`` becomes
    ``txt``; ``speaker``, ``language`` and custom fields are fields; if it overlaps the edge of the cut, the audio is
    what lies inside. Custom arrays and recordings of Lhotse's cuts are cut along. The audio is that of the segment's
    ``channel``, if it is a number or a list of numbers, counted from 0. A segment that cannot be used is counted
    (``bad_segment``, ``missing_text``, ``no_such_channel``); the others stay. Times may be numbers or text. Of
    TouchDatasets and 16-bit PCM wav only the bytes of the segment are read. Put this stage before ``decode_audio`` and
    before everything that works on text.

    Args:
        pick: "all" gives every segment of a recording in turn, "random" gives one of them. Default: "all".
        field: name of the field that lists the segments as ``{"start", "end", "txt", …}``, in seconds from the
            beginning of the recording, or as Lhotse's supervisions (``"supervisions"``: ``start``, ``duration``,
            ``text``); dots lead into nested fields. Default: "info.segments".
        of: what to cut: the "segments", or the whole "recording", which needs ``cut_seconds``. Default: "segments".
        merge_seconds: seconds; neighbouring segments are joined as long as the result, pauses included, is not
            longer. Segments of different channels are not joined. Default: None, segments are not joined.
        random_first: begin to join at a random segment, so that other segments are joined in each epoch; otherwise
            at the first. Needs ``merge_seconds``. Default: False.
        separator: text between joined transcripts. Default: None, which means a blank, except between scripts that
            are written without blanks (Chinese, Japanese, Thai, …).
        cut_seconds: (minimum, maximum) in seconds; each segment, run of joined segments or recording is cut into
            pieces of random lengths between the two, or with ``pick="random"`` gives one such piece from anywhere
            in it. What is shorter than the minimum is left out and counted as ``too_short``. A piece that is not
            the whole has the transcript "", because it is not known what is said in it (``tokenize`` and ``filter``
            would leave it out as ``too_few_tokens``). One number instead: pieces of that many seconds, one after the
            other, of which the last is what is left, however short. Default: None, nothing is cut further.
        texts: names of the segment's transcripts, such as ("txt", "whisper"), of which it must have at least one;
            each that all joined segments have is joined by itself. ``choose_text`` chooses one of them afterwards.
            None if segments need none, as for pre-training: ``txt`` is then there where a segment has it. Default:
            ("txt",).
    """

    name: ClassVar[str] = "segments"
    reasons = ("too_short",)
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "by times: nothing is decoded"

    pick: str = one_of(("all", "random"), "all")
    field: str = must_be("info.segments", "the name of a field", bool, 'try "info.segments"')
    of: str = one_of(("segments", "recording"), "segments")
    merge_seconds: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "try 20")
    random_first: bool = False
    separator: str | None = must_be(None, "a string or None", lambda s: isinstance(s, str | None), 'try " "')
    cut_seconds: tuple[float, float] | float | None = None
    texts: Sequence[str] | None = ("txt",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts is not None:
            check_names(self.name, "texts", self.texts)
            object.__setattr__(self, "texts", tuple(self.texts))
        self._check_cuts()

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.TEXTLESS if self.texts is None else Trait.NONE

    @property
    def named(self) -> Sequence[str]:
        """The fields of transcripts."""
        return ("txt",) if self.texts is None else self.texts

    def _check_cuts(self) -> None:
        cut = self.cut_seconds
        if self.of == "recording":
            require(cut is not None, self.name, 'of="recording" needs cut_seconds', cut, "try (5, 20)")
            sentence = 'merge_seconds and random_first cannot be combined with of="recording"'
            refuse(self.merge_seconds is not None or self.random_first, self.name, sentence, "leave them out")
        alone = self.random_first and self.merge_seconds is None
        refuse(alone, self.name, "random_first needs merge_seconds", "try merge_seconds=20")
        bounds: Any = (cut, cut) if is_number(cut) else cut
        pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2 and all(map(is_number, bounds))
        ok = cut is None or (pair and 0.001 <= bounds[0] <= bounds[1])
        require(ok, self.name, "cut_seconds must be seconds, or (minimum, maximum), above 0", cut, "try (5, 20)")

    def check(self, before: Sequence[Stage]) -> None:
        for stage in before:
            if isinstance(stage, Op) and not stage.of and not _TOUCHED.isdisjoint([*stage.reads, *stage.writes]):
                rule = f"segments cuts recordings before anything works on their audio or text, but {stage.name} does"
                raise PipelineError(f"{rule}: put segments before {stage.name}")

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return self.build(upstream(replace(lane, needs_text=False)), lane, site)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SegmentsNode(source, lane, self, site)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return counts if self.pick == "random" and self.cut_seconds is None else None


class _SegmentsNode(Expanding):
    item: Sample

    def __init__(self, source: Node, lane: Lane, stage: Segments, site: Site) -> None:
        super().__init__(source, lane, site)
        self.stage = stage
        self.path = stage.field.split(".")
        cut: Any = stage.cut_seconds
        self.even = is_number(cut)
        self.bounds = tuple(round(1000 * s) for s in ((0.001, cut) if self.even else cut or ()))

    def expand(self) -> Iterator[Sample]:
        self.info, seconds = _length(self.item)
        draws = self.item.draws(self.site.salt)
        for run in self._cuts(self._runs(seconds, draws), draws):
            try:
                utterance = self._utterance(run)
            except DataError as error:
                self._fail(error)
            else:
                yield utterance

    def _runs(self, seconds: float | None, draws: Draws) -> list[SegmentRun]:
        """Return the runs to deliver, or to cut into pieces."""
        stage = self.stage
        if stage.of == "recording":
            if seconds is None:
                message = "only decoding shows how long the recording is; convert it to wav, flac or a TouchDataset"
                raise DataError("unknown_length", message)
            fields = self.item.fields
            said = {name: fields[name] for name in stage.named if isinstance(fields.get(name), str)}
            return [SegmentRun(0.0, seconds, said or ({} if stage.texts is None else {"txt": ""}), {})]
        needed = stage.texts is not None
        fields, declared = self.item.fields, Declared.of(self.item.fields)
        beyond = float("inf") if declared.trim else declared.seconds(TOLERANCE)
        runs = parse_segments(lookup(fields, stage.field), seconds, self._fail, stage.named, needed, beyond)
        if not runs:
            raise DataError("missing_segments", "the recording has no segment that can be used")
        if stage.merge_seconds is not None:
            first = draws.below(len(runs)) if stage.random_first else 0
            start = runs[first].start
            runs = merged(runs, stage.merge_seconds, first, stage.separator)
            if stage.pick == "random" and stage.random_first:
                return [run for run in runs if run.start >= start][:1]
        return runs if stage.pick == "all" else [runs[draws.below(len(runs))]]

    def _cuts(self, runs: list[SegmentRun], draws: Draws) -> Iterator[SegmentRun]:
        if not self.bounds:
            yield from runs
            return
        low, high = self.bounds
        for run in runs:
            least = min(high, max(low, milliseconds(run))) if self.even else low
            one = random_piece(run, least, high, draws) if self.stage.pick == "random" else None
            cuts = pieces(run, low, high, draws, self.even) if self.stage.pick == "all" else iter([one] if one else [])
            found = False
            for piece in cuts:
                found = True
                yield piece
            if not found:
                self.lane.ledger.count("too_short")

    def _utterance(self, run: SegmentRun) -> Sample:
        parent = self.item
        base = parent.fields.get("start") or 0.0
        gone = {"duration", *self.stage.named}
        fields = {n: v for n, v in _without(parent.fields, self.path).items() if n not in gone}
        name = f"{parent.key}-{round(run.start * 1000):07d}-{round(run.end * 1000):07d}"
        start, end = base + run.start, base + run.end
        fields |= {n: v.between(start, end) for n, v in fields.items() if isinstance(v, Timed) and n != "wav"}
        if run.channel is not None and "wav" in fields:
            fields["wav"] = of_channels(fields["wav"], run.channel, self.info)
        fields.update(run.fields, **run.texts, start=start, end=end)
        fields["key"] = str(run.fields.get("key", name))
        sample = Sample(fields, parent.origin, self.run_key, parent.chain, parent.url)
        sample.done = parent.done
        return sample

    def _fail(self, error: DataError) -> None:
        self.lane.ledger.handle(self.item.failure(error, self.site.name), self.site.name)


def _length(sample: Sample) -> tuple[AudioInfo | None, float | None]:
    """Return what the recording's header says, read once, and its seconds; None if only decoding shows it."""
    fields = sample.fields
    check_no_features(fields, "segments")
    wav = fields.get("wav")
    if wav is None and any(type(value) is StoredRecord for value in fields.values()):
        return None, None  # a video, which is not opened to plan
    if wav is None or hasattr(wav, "shape"):
        what = "no audio" if wav is None else "samples in memory, which are not cut"
        raise DataError("missing_audio", f"the recording has {what}; segments cuts audio files and TouchDatasets")
    info = audio_info(wav, fields)
    if info is None:
        return None, None
    if isinstance(wav, Ref) and wav.info is None:
        wav.info = info
    return info, segment_samples(info, fields.get("start"), fields.get("end")) / info.sample_rate


def _without(fields: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return a copy of ``fields`` without the field that ``path`` names."""
    out = dict(fields)
    if len(path) == 1:
        out.pop(path[0], None)
    elif isinstance(inner := out.get(path[0]), dict):
        out[path[0]] = _without(inner, path[1:])
    return out
