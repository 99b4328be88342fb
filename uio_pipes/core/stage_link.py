"""The link of an ``Op`` at its place in a graph: runs it on an utterance, or on a view of its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uio_pipes.audio.length import Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import DataError, PipelineError, UioError
from uio_pipes.core.chain import TIMELINE, StreamNames, audio_names, token_names
from uio_pipes.core.lane import Site
from uio_pipes.core.origin import MAKERS
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Trait
from uio_pipes.formats.advice import shown
from uio_pipes.io.references import Ref

if TYPE_CHECKING:
    from uio_pipes.core.roles import Op


def decodes(stage: Op) -> bool:
    """True if a stage makes samples of audio as it is stored."""
    return "sample_rate" in stage.writes and "sample_rate" not in stage.reads


def decoder(of: str) -> str:
    """Return the stage that decodes the stream ``of``, as it is written."""
    return f".decode_audio({f'of={of!r}' if of else ''})"


def own_names(stage: Op) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fields that a stage reads and writes, by the names that they have in its stream."""
    if not stage.of:
        return frozenset(stage.reads), frozenset(stage.writes)
    names = stream_names(stage)
    rows = {stage.of} if "feat" in stage.reads else ()  # features may be the stream itself: codes
    reads, writes = (frozenset([*(names.get(n, n) for n in s), *rows]) for s in (stage.reads, stage.writes))
    return reads, writes


def stream_names(stage: Op) -> StreamNames:
    """Return the fields of the stream that a stage works on by their usual names; {} of the usual one."""
    if not stage.of:
        return {}
    return token_names(stage.of) if "txt" in stage.reads else audio_names(stage.of)


class StageLink:
    """The link of an :class:`Op` at its place in a graph."""

    __slots__ = ("changes_length", "name", "names", "of", "reads", "salt", "stage", "takes_pcm", "writes")

    def __init__(self, stage: Op, site: Site) -> None:
        self.stage, self.of = stage, stage.of
        self.name = site.name
        self.salt = site.salt
        self.takes_pcm = Trait.TAKES_PCM in stage.traits
        self.changes_length = stage.changes_length
        self.names = stream_names(stage)
        self.reads, self.writes = own_names(stage)

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return self.stage.plan(plan, sample, sample.draws(self.salt)) if self.changes_length else plan

    def apply(self, sample: Sample) -> None:
        if not self.of:
            self._try(sample)
            return
        for view in sample.views(self.of, self.names):
            try:
                self._try(view)
            except DataError as error:
                raise view.named(error)  # noqa: B904
            view.put_back()

    def _try(self, sample: Sample) -> None:
        try:
            self.run(sample)
        except UioError:
            raise
        except Exception as error:
            if (unmet := self._unmet(error, sample)) is None:
                raise
            raise unmet from error

    def _unmet(self, error: Exception, sample: Sample) -> UioError | None:
        """Return what explains an ``error``, if what the stage reads is not there, or still to be decoded."""
        stage, fields = self.stage, sample.fields
        if "wav" in stage.reads and not decodes(stage) and isinstance(fields.get("wav"), (str, bytes, Ref)):
            rule = f"{self.name} needs decoded audio, but the audio of {sample.key!r} is not decoded"
            return PipelineError(f"{rule}: put {decoder(self.of)} before {self.name}")
        name = error.args[0] if isinstance(error, KeyError) and error.args else None
        if not isinstance(name, str) or name not in stage.reads or name in fields:
            return None
        hint = f"is {MAKERS[name]} missing before it?" if name in MAKERS else f"it has {shown(fields)}"
        problem = f"the utterance has no {self.names.get(name, name)!r}, which {self.name} reads"
        return DataError("missing_field", f"{problem}: {hint}")

    def run(self, sample: Sample) -> None:
        """Do the work of the stage. ``sample``: the utterance, or the view of its stream."""
        self.stage.apply(sample, sample.draws(self.salt))


class MovingLink(StageLink):
    """The link that moves the timeline of an utterance as its stage is about to change the time."""

    __slots__ = ()

    def __init__(self, stage: Op, site: Site) -> None:
        super().__init__(stage, site)
        self.changes_length = False
        self.reads, self.writes = frozenset([TIMELINE, *(stage.moves or ())]), frozenset([TIMELINE])

    def run(self, sample: Sample) -> None:
        if isinstance(timeline := sample.fields.get(TIMELINE), Timeline):
            sample.fields[TIMELINE] = self.stage.move(timeline, sample, sample.draws(self.salt))
