"""The description of a graph in its functional form.

A :class:`Pipeline` is an immutable chain of stages: a source, and what is done with its items. Describing does no I/O;
:meth:`Pipeline.build` makes the nodes that run it in one lane. Each stage is one file in ``stages/`` or ``sources/``
and one line in this class.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

from uio_pipes.base.checks import is_number, nearest, refuse, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import answer, unexpected
from uio_pipes.core.graph import Graph
from uio_pipes.core.schedule import scheduled
from uio_pipes.core.stage import Stage
from uio_pipes.stages.audio.decode import DecodeAudio, DecodeVideo, Mono
from uio_pipes.stages.audio.effects import (
    Clip,
    Codec,
    Loudness,
    Lowpass,
    PitchShift,
    Resample,
    SpeedPerturb,
    VolumePerturb,
)
from uio_pipes.stages.audio.noise import AddNoise, Reverberate
from uio_pipes.stages.batches.bucket_batch import bucket_batch
from uio_pipes.stages.batches.chunks import Chunks
from uio_pipes.stages.batches.dynamic import Batch, DynamicBatch
from uio_pipes.stages.batches.pack import Pack
from uio_pipes.stages.batches.pad import Pad
from uio_pipes.stages.features.fbank import FbankFeatures, LogMelSpectrogram, MfccFeatures
from uio_pipes.stages.features.frame_labels import Activity, TurnEnd
from uio_pipes.stages.features.frames import Delay, Deltas, GlobalCmvn, SpecAug, SpecSub, SpecTrim, Stack
from uio_pipes.stages.order.balance import Balance, BalancedBatch
from uio_pipes.stages.order.repeat import Repeat, Skip, Take
from uio_pipes.stages.order.shuffle import Shuffle, Sort
from uio_pipes.stages.reading.load_from_tar import LoadFromTar
from uio_pipes.stages.reading.loading import Declare, LoadFromRaw, LoadRecords, Resampled, ShardingFilter
from uio_pipes.stages.reading.open_files import OpenFiles
from uio_pipes.stages.text.align import Align
from uio_pipes.stages.text.chat import Chat
from uio_pipes.stages.text.tokenize import ChooseText, CtcFilter, Language, NormalizeText, Tokenize
from uio_pipes.stages.utterances.cache import Cache
from uio_pipes.stages.utterances.concat import Concat
from uio_pipes.stages.utterances.encoded import Encoded
from uio_pipes.stages.utterances.filter import Exclude, Filter, Keep
from uio_pipes.stages.utterances.flat_map import FlatMap
from uio_pipes.stages.utterances.labels import Overlay, Speaker, Tag
from uio_pipes.stages.utterances.map import Map, Through
from uio_pipes.stages.utterances.mixture import Mixture
from uio_pipes.stages.utterances.segment_runs import RandomCrop
from uio_pipes.stages.utterances.segments import Segments
from uio_pipes.stages.utterances.timeline import ReadTimeline

if TYPE_CHECKING:
    from uio_pipes.inspect.peek import Peek
    from uio_pipes.integrations.torch_loaders import PipelineDataPipe, PipelineDataset

__all__ = ["Pipeline"]

P = ParamSpec("P")


def functional(stage: Callable[P, Stage]) -> Callable[Concatenate[Pipeline, P], Pipeline]:
    """Return the method ``pipeline.name(…)`` that adds ``stage``, with its signature, documentation and code."""
    shown = inspect.signature(stage)
    name: str = getattr(stage, "name", "") or stage.__name__

    def add(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pipeline:
        try:
            given = shown.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(shown.parameters) or "nothing"
            hint = unexpected(name, kwargs, shown.parameters)
            raise PipelineError(f"{name}: {error}; it takes {names}{hint}") from None
        return self.then(scheduled(stage, given))

    add.__name__, add.__qualname__, add.__doc__ = name, f"Pipeline.{name}", stage.__doc__
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [p.replace(annotation=_Plain(p.annotation)) for p in shown.parameters.values()]
    signature = shown.replace(parameters=[own, *plain], return_annotation=_Plain("Pipeline"))
    add.__signature__ = signature  # type: ignore[attr-defined]
    add.__wrapped__ = stage  # type: ignore[attr-defined]  # whose source ``inspect.getsource`` and IPython's ?? show
    return add


class _Plain(str):
    """An annotation that ``help`` shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class Pipeline(Graph):
    """An immutable, picklable description of a graph: a source and the stages chained on it.

    Begin with ``uio.from_shard_list(…)`` or another ``uio.from_…``, add stages by the methods named after them, and
    run it by ``uio.Loader(pipeline)``. Describing opens no file. ``print(pipeline)`` draws the graph and says what
    happens where.

    Args:
        stages: the stages in their order; the methods make them.
    """

    def _begun(self, start: str, resampled: Any = False, tolerance: Any = None, longer: Any = "fail") -> Pipeline:
        """Return it as the function ``start`` was asked for it, by :class:`AccessOptions`. Raises: PipelineError."""
        require(isinstance(resampled, bool), start, "resampled must be True or False", resampled, "choose one")
        ok = tolerance is None or (is_number(tolerance) and tolerance >= 0)
        require(ok, start, "tolerance must be seconds, 0 or more, or None", tolerance, "as in tolerance=0.5")
        known = ("fail", "trim")
        require(longer in known, start, "longer must be 'fail' or 'trim'", longer, "choose one")
        first, *others = self.stages
        begun = Pipeline((first, Resampled(), *others)) if resampled else self
        if tolerance is None and longer == "fail":
            return begun
        sentence = f"tolerance and longer are about audio, which {start} does not read"
        refuse(self._kind != "sample", start, sentence, "give them to from_raw_list or from_shard_list")
        return begun.then(Declare(tolerance, longer))

    # the list and its files
    sharding_filter = functional(ShardingFilter)
    open_files = functional(OpenFiles)
    load_from_tar = functional(LoadFromTar)
    load_from_raw = functional(LoadFromRaw)
    load_records = functional(LoadRecords)
    # how much of what comes
    balance = functional(Balance)
    repeat = functional(Repeat)
    take = functional(Take)
    skip = functional(Skip)
    keep = functional(Keep)
    exclude = functional(Exclude)
    # one utterance at a time
    overlay = functional(Overlay)
    tag = functional(Tag)
    timeline = functional(ReadTimeline)
    segments = functional(Segments)
    decode_audio = functional(DecodeAudio)
    decode_video = functional(DecodeVideo)
    resample = functional(Resample)
    speed_perturb = functional(SpeedPerturb)
    mono = functional(Mono)
    volume_perturb = functional(VolumePerturb)
    add_noise = functional(AddNoise)
    reverberate = functional(Reverberate)
    lowpass = functional(Lowpass)
    codec = functional(Codec)
    clip = functional(Clip)
    loudness = functional(Loudness)
    pitch_shift = functional(PitchShift)
    random_crop = functional(RandomCrop)
    concat = functional(Concat)
    mixture = functional(Mixture)
    choose_text = functional(ChooseText)
    normalize_text = functional(NormalizeText)
    tokenize = functional(Tokenize)
    align = functional(Align)
    chat = functional(Chat)
    language = functional(Language)
    speaker = functional(Speaker)
    filter = functional(Filter)
    ctc_filter = functional(CtcFilter)
    fbank = functional(FbankFeatures)
    mfcc = functional(MfccFeatures)
    log_mel_spectrogram = functional(LogMelSpectrogram)
    deltas = functional(Deltas)
    delay = functional(Delay)
    global_cmvn = functional(GlobalCmvn)
    spec_aug = functional(SpecAug)
    spec_sub = functional(SpecSub)
    spec_trim = functional(SpecTrim)
    stack = functional(Stack)
    activity = functional(Activity)
    turn_end = functional(TurnEnd)
    map = functional(Map)
    flat_map = functional(FlatMap)
    through = functional(Through)
    cache = functional(Cache)
    encoded = functional(Encoded)
    # order and batches
    shuffle = functional(Shuffle)
    sort = functional(Sort)
    batch = functional(Batch)
    dynamic_batch = functional(DynamicBatch)
    bucket_batch = functional(bucket_batch)
    balanced_batch = functional(BalancedBatch)
    pack = functional(Pack)
    chunks = functional(Chunks)
    pad = functional(Pad)

    def split(self, fraction: float) -> tuple[Pipeline, Pipeline]:
        """Return two pipelines, as of training and validation: together they have every utterance, each in one of them.

        A hash of its key decides, whatever the order, the file, the seed or the rank: an utterance stays where it is
        when data are added. Both read the same list and headers, and count what they leave out as ``other_share``. A
        part may be split again. Split before ``segments`` and ``flat_map``, whose pieces have keys of their own.

        Args:
            fraction: about this share of the utterances is in the first part; above 0 and below 1.

        Raises:
            PipelineError: ``fraction`` breaks that rule, or batches or files come out instead of utterances.
        """
        ok = is_number(fraction) and 0 < fraction < 1
        require(ok, "split", "fraction must be above 0 and below 1", fraction, "as in train, valid = data.split(0.95)")
        used = {stage.salt for stage in self._every_stage() if isinstance(stage, Filter) and stage.share is not None}
        salt = next(text for text in ("", *map(str, range(len(used)))) if text not in used)  # a part is split anew
        return self.filter(share=(0, fraction), salt=salt), self.filter(share=(fraction, 1), salt=salt)

    def as_dataset(self, **options: Any) -> PipelineDataset:
        """Wrap the pipeline for torch's ``DataLoader`` and torchdata's ``StatefulDataLoader``.

        Give it to them with ``batch_size=None``, since batches come ready; see :class:`PipelineDataset`.

        Args:
            **options: those of :class:`Loader`, except for ``num_workers``, ``prefetch_factor``, ``pin_memory``,
                ``uneven`` and ``steps_per_epoch``, which belong to the other loader or to its trainer.

        Raises:
            PipelineError: an option breaks a rule.
        """
        from uio_pipes.integrations.torch_loaders import PipelineDataset

        return PipelineDataset(self, **options)

    def as_datapipe(self, **options: Any) -> PipelineDataPipe:
        """Wrap the pipeline as an ``IterDataPipe``, for graphs of torch's own datapipes.

        Args:
            **options: as for :meth:`as_dataset`.

        Raises:
            PipelineError: an option breaks a rule.
        """
        from uio_pipes.integrations.torch_loaders import PipelineDataPipe

        return PipelineDataPipe(self.as_dataset(**options))

    def peek(self) -> Peek:
        """Run one utterance, and return a table of it after every stage: fields, shapes, planned length, time."""
        from uio_pipes.inspect.peek import peek

        return peek(self)

    def plot(self, path: str | os.PathLike[str], count: int = 3) -> None:
        """Draw waveform, features and masks of the first utterances to a PNG. Needs ``pip install 'uio_pipes[plot]'``.

        One with a ``timeline`` is drawn on an axis in seconds: channels with their words, activity and text stream.

        Args:
            path: the file to write.
            count: how many utterances to draw, at least 1. Default: 3.

        Raises:
            PipelineError: ``count`` is below 1, there is neither audio nor features, or matplotlib is missing.
        """
        from uio_pipes.inspect.plot import plot

        plot(self, path, count)

    if not TYPE_CHECKING:  # else everything would seem to be a stage

        def __getattr__(self, name: str) -> Any:  # called for what is not there
            message = f"a Pipeline has no {name!r}"
            if not name.startswith("_"):
                near, here = nearest(name, (own for own in dir(type(self)) if own[0] != "_")), answer("Pipeline", name)
                message += f"; {here}" if here else f"; did you mean {near!r}?" if near else ""
            raise AttributeError(message, name=name, obj=None)

    # A description holds no data. These errors say what does.

    def __iter__(self) -> NoReturn:
        raise TypeError(f"a Pipeline only describes a graph and gives no batches by itself. {RUN}")

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"a Pipeline only describes a graph and has no length; len(uio.Loader(pipeline)) counts batches. {RUN}"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"a Pipeline only describes a graph and cannot be indexed. {RUN}")

    def __bool__(self) -> bool:
        return True


RUN = (
    "To run it: for batch in uio.Loader(pipeline), or, in a loader of torch's, "
    "DataLoader(pipeline.as_dataset(), batch_size=None)"
)
