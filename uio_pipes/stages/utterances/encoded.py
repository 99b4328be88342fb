"""``encoded``: reads the fields that ``uio.encode`` has computed from the audio with a frozen model.

Two kinds of links take the place of all that works on the audio. In training, one reads the fields, and fails where
there are none. Under ``uio.encode``, another one gives the audio of the utterances that have none yet, and with it what
the main process needs to keep what the model makes of it. Which these are is settled when the run begins, so that
what is kept meanwhile moves no batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import check_names, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.urls import redact
from uio_pipes.core.capabilities import with_branches
from uio_pipes.core.chain import Chain
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait
from uio_pipes.io.shelf import ABOUT, PlanNumbers, RecordKey
from uio_pipes.stages.utterances.cache import (
    CachedLink,
    CacheNode,
    check_before,
    checked_folder,
    numbers_of,
    numbers_of_plan,
)

MISS = "__miss__"  # the field of an utterance that is to be encoded, with its :class:`Miss`
ENCODED = "encoded"  # the reason under which those are counted that need not be
UNLIMITED = 1 << 62  # bytes


@dataclass(frozen=True)
class Encoded(Flow):
    """Read fields that ``uio.encode`` has stored, such as the codes of a codec, in place of the audio.

    A frozen model makes them, once and for ever: ``uio.encode(loader, model)`` runs it over whole batches of a pipeline
    that ends in ``.encoded(…)``, a batch stage and ``pad``. From then on pipelines with the same stages before
    ``encoded`` have the fields; audio and features are gone, and neither read nor decoded. The planned length stays
    that of the audio. Nothing before may draw random numbers.

    An utterance that has not been encoded is the failure ``not_encoded``; if none has, that is an error.

    Args:
        folder: path or URL of the cache; any number of pipelines may share it, with ``cache``, too.
        fields: names of the fields that the model makes, as in ``["codes"]``.
        by: name of the model. Another model, or other weights, need another name.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    name: ClassVar[str] = "encoded"
    gives: ClassVar[str] = "sample"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    note: ClassVar[str] = "uio.encode fills it"

    folder: str | os.PathLike[str] = field(metadata=NO_IDENTITY)
    fields: Sequence[str]
    by: str

    size: ClassVar[int] = UNLIMITED
    read_only: ClassVar[bool] = True
    before: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "folder", checked_folder(self.name, self.folder))
        check_names(self.name, "fields", self.fields)
        ok = isinstance(self.by, str) and bool(self.by)
        require(ok, self.name, "by must be the name of the model", self.by, 'as in by="hubert-base-km500"')

    @property
    def also(self) -> tuple[str, ...]:
        """What a record depends on, besides the stages before it."""
        return (f"{', '.join(self.fields)} by {self.by}",)

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if a stage before makes something that no model can have been given."""
        check_before(self.name, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return CacheNode(source, lane, site, self, EncodedLink)


@dataclass(frozen=True)
class _Missing(Encoded):
    """In place of :class:`Encoded` under ``uio.encode``: gives the audio of what had not been encoded at ``before``.

    ``model``: a hash of the model, with its weights.
    """

    traits: ClassVar[Trait] = Trait(0)
    reasons = (ENCODED,)

    before: str = ""  # type: ignore[misc]
    model: str = ""

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return CacheNode(source, lane, site, self, MissingLink)


@dataclass(frozen=True)
class Miss:
    """What is needed to keep what a model makes of an utterance.

    ``gone``: fields that the utterance does not have any more with what is kept.
    """

    folder: str
    mark: str
    about: str
    key: RecordKey
    lengths: PlanNumbers
    gone: list[str]


class EncodedLink(CachedLink):
    """Reads what has been encoded. Raises: PipelineError if nothing has been."""

    uses_audio = True

    def __init__(self, inner: Chain, node: CacheNode) -> None:
        super().__init__(inner, node)
        if self.shelf.is_empty:
            stage = self.stage
            raise PipelineError(
                f"encoded: {redact(stage.folder)} has no {', '.join(stage.fields)} of the data and stages before it "
                f"by {stage.by!r}: run uio.encode(loader, model) first, and again after changing the stages"
            )

    def _computed(self, *_: Any) -> tuple[dict[str, Any], Plan | None]:
        message = f"it has not been encoded by {self.stage.by!r}: run uio.encode(loader, model) again, which goes on"
        raise DataError("not_encoded", message)


class MissingLink(CachedLink):
    """Makes what the model gets of utterances that have not been encoded. Raises: PipelineError if another one did."""

    uses_audio = True

    def __init__(self, inner: Chain, node: CacheNode) -> None:
        super().__init__(inner, node)
        self.about += f"\nmodel {self.stage.model}"
        self.lane.shared(("encoded", self.mark), self._check)

    def _check(self) -> None:
        folder = self.shelf.folder
        if folder.exists(ABOUT) and folder.read([ABOUT])[0].decode() != self.about:
            raise PipelineError(
                f"encode: {redact(folder.url)} was filled by another model, or by other weights, under the name "
                f"{self.stage.by!r}: give this one a name of its own in .encoded(by=…), or remove that folder"
            )

    def wants(self, sample: Sample) -> bool:
        if self._found(sample, self._key(sample)) is None:
            return True
        self.lane.ledger.count(ENCODED)
        return False

    def apply(self, sample: Sample) -> None:
        self._put(sample, *self._computed(sample, self._key(sample), *self._within(sample)))

    def _kept(
        self, sample: Sample, key: bytes, inner: Sample, found: dict[str, Any], plan: Plan | None
    ) -> dict[str, Any]:
        if inner.has_drawn:
            raise PipelineError(
                "encoded: a stage before it is random, so its results differ in each epoch and cannot be stored: "
                "put that stage after .encoded(…), or remove it"
            )
        place = self.stage.folder, self.mark.hex(), self.about
        miss = Miss(*place, numbers_of(key), numbers_of_plan(plan), found[""])
        return {**inner.fields, MISS: miss, "": [name for name in sample.fields if name not in inner.fields]}


def encoders_in(graph: Graph) -> list[Encoded]:
    """Return the stages of a pipeline that take what a model has made, those within mixes included."""
    return [stage for stage in graph._every_stage() if isinstance(stage, Encoded)]


def without_encoded(graph: Graph, *args: str) -> Graph:
    """Return the pipeline that gives the audio of what has not been encoded; ``args``: the last of ``_Missing``."""

    def changed(stage: Stage) -> Stage:
        if isinstance(stage, Encoded):
            return _Missing(stage.folder, stage.fields, stage.by, *args)
        return with_branches(stage, lambda _, branch: without_encoded(branch, *args))

    return type(graph)(tuple(map(changed, graph.stages)))
