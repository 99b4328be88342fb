"""Changes to a loader during a run, from the next batch on."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.run.epoch_end import EpochLength
from uio_pipes.run.epoch_run import EpochRun
from uio_pipes.run.lanes import LISTENERS
from uio_pipes.run.options import RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import Where
from uio_pipes.run.tracing import Tracing


class Steered:
    """The part of a loader whose options can change during a run."""

    _options: RunOptions
    _progress: EpochProgress
    _lengths: EpochLength
    _active: weakref.ref[EpochRun] | None
    _fingerprints: dict[str, Any] | None

    def skip(self, what: int | range | Callable[[str], bool]) -> None:
        """Skip batches of this rank, for example after a loss spike, or leave utterances out of them.

        It takes effect with the next batch; in the middle of an epoch the workers are started again for it. Nothing is
        decoded of what is left out, and all else stays as it is, batch for batch. Where ranks step together, each of
        them calls it at the same step.

        Args:
            what: how many batches to pass over next, 0 or more, added to those that are still to be passed over. Or a
                range of steps of this epoch, as ``batch_at`` counts them; those that have passed are ignored. A state
                remembers both; another epoch forgets them, so call ``set_epoch`` first between two epochs. Or a
                function of an utterance's key that is true if the utterance is to be left out, such as
                ``bad_keys.__contains__``. It holds for this loader, in later epochs, too. No state can hold it: give it
                again after a resume. Such utterances are counted in ``stats().skipped["skip"]``.

        Raises:
            PipelineError: ``what`` is none of these, or below 0.
        """
        if callable(what):
            self._follow(replace(self._options, key_filters=(*self._options.key_filters, what)))
        else:
            self._progress.pass_over(what, self._options)
            self._follow(self._options)

    def reweight(self, weights: Mapping[str, float]) -> None:
        """Change the weights of a mix's sources, from the next batch that is made on.

        In the middle of an epoch the workers are started again for it. Utterances that wait in buffers were drawn by
        the weights before, and come first. No source loses its position; a weight of 0 lets one rest. States hold the
        change, and what changed when (``uio state``). Where ranks step together, each of them calls it at the same
        step.

        Args:
            weights: new weights by the names of sources, ``group/name`` for those of a mix within a mix; sources that
                are not named keep theirs.

        Raises:
            PipelineError: there is no such source, a weight is not a number or below 0, no weight is left, or the mix
                stands before ``sharding_filter``.
        """
        options = self._options
        if (mixes := options.mixes.reweighted(weights, options.pipeline, self._where)) is not options.mixes:
            self._follow(replace(options, mixes=mixes))

    def exclude(self, utterances: Iterable[str] | os.PathLike[str]) -> None:
        """Leave utterances out from the next batch on, in this epoch and in all later ones.

        In the middle of an epoch the workers are started again for it. Nothing of these utterances is decoded. Their
        batches get smaller, and all else stays as it is, as with a function given to ``skip``; but states hold them,
        and from which step on (``uio state``). They are counted in ``stats().skipped["excluded"]``. Where ranks
        step together, each of them calls it at the same step.

        Args:
            utterances: keys; or the path of a list as ``uio worst --exclude`` and ``uio verify --quarantine`` write
                it, whose utterances are recognized by shard (or list) and key. Joined utterances go by the key of any
                of them, or by their own (``u2+u3``) wherever the same ones are joined.

        Raises:
            PipelineError: it is neither.
            ListError: the list cannot be read, or is damaged.
        """
        if (excluded := self._options.excluded.added(utterances, self._where)) is not self._options.excluded:
            self._follow(replace(self._options, excluded=excluded))

    def trace(self, path: str | os.PathLike[str], *, batches: int = 200) -> None:
        """Write what each process does during the next batches to a file that Perfetto opens (https://ui.perfetto.dev).

        Each process has its tracks: reading, decoding and every other stage, handing over, waiting for the trainer; in
        that of the trainer, waiting for a batch, and its own step. What takes less than 20 µs is a part of what called
        it. In the middle of an epoch the workers are started again for it.

        Args:
            path: the file, in Chrome's JSON. Of several ranks, each writes its own: ``trace-3.json`` that of rank 3.
            batches: how many batches of this rank are traced, over the end of an epoch, too. Default: 200.

        Raises:
            PipelineError: the file cannot be written, ``batches`` is below 1, another trace is under way in this
                process, or the workers are Ray's, whose clocks differ.
        """
        if self._options.fleet is not None:
            raise PipelineError("trace: workers on a Ray cluster have clocks of their own: use num_workers=2 for it")
        tracing = Tracing(path, batches, self._options.ranks)
        LISTENERS.add(tracing)
        self._follow(replace(self._options, tracing=tracing))

    @property
    def _where(self) -> Where:
        return Where(self._progress.epoch, self._progress.step, self._options.world_size)

    @property
    def _run(self) -> EpochRun | None:
        return None if self._active is None else self._active()

    def _follow(self, options: RunOptions) -> None:
        """Go by other options from the next batch on."""
        if options.pipeline is not self._options.pipeline:
            self._fingerprints = None
        if options.mixes is not self._options.mixes:
            self._lengths = EpochLength(options)
        self._options = options
        if (run := self._run) is not None and not run.closed:
            run.follow(options)
