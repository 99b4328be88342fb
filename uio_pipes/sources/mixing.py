"""Pipelines that mix or interleave several others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uio_pipes.base.checks import is_number, is_weight, require
from uio_pipes.base.hints import keyword_hints
from uio_pipes.core.schedule import Schedule, changed
from uio_pipes.pipeline import Pipeline
from uio_pipes.stages.order.mix import Interleave, Mix
from uio_pipes.stages.order.mix_node import Stop

Pipelines = Mapping[str, Pipeline] | Sequence[Pipeline]


@keyword_hints
def mix(
    pipelines: Pipelines,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    *,
    stop: Stop = "all",
    temperature: float = 1.0,
) -> Pipeline:
    """Start a pipeline from several others: each utterance comes from one of them, chosen at random.

    A source that begins again is shuffled and augmented anew: it has epochs of its own. Each lane mixes its own
    share of the sources. If a source has fewer list items than there are lanes, some lanes have nothing of it and
    its weight does not hold there (the loader warns). ``.sharding_filter()`` after the mix, instead of in the
    sources, deals utterances: weights then hold in every lane, but every lane reads all headers.

    Args:
        pipelines: the sources, as a dict by name or as a list; any number. All of them give utterances, or all give
            batches. One that ends in ``.through(…)`` may give either: what it gives is looked at when it runs.
        weights: how often each source is chosen, in proportion; a dict by name or a list. A source of weight 0 is not
            read, until ``loader.reweight`` gives it another one. Weights may follow the step (``uio.by_step``).
            Default: None, equally often.
        stop: when the mix ends. "all": a source that has ended is left out until all have ended, so that each
            utterance comes once. "first": with the first source that ends. "cycle": a source that has ended begins
            again until each has ended once. "endless": the same for ever; ``Loader(steps_per_epoch=…)`` cuts it
            into epochs. Default: "all".
        temperature: t makes each weight w into w^t, as in a data file: with hours as weights, 0.5 lets small sources
            come more often, and 0 all of them equally often. Default: 1.0.

    Raises:
        PipelineError: an argument breaks a rule, or the sources do not fit together.
    """
    named = _named("mix", pipelines)
    ok = is_number(temperature) and temperature >= 0
    require(
        ok,
        "mix",
        "temperature must be a number, 0 or more",
        temperature,
        "1 changes nothing, 0 makes all sources equal",
    )
    rule = "temperature changes weights, such as hours, but no weights are given"
    require(weights is not None or temperature in (0, 1), "mix", rule, temperature, "give weights")
    given = changed(_weights(named, weights), lambda of: tuple(tempered(weight, temperature) for weight in of))
    return Pipeline((Mix(named, given, stop),))


def tempered(weight: Any, temperature: float) -> Any:
    """Return a weight, which may follow the step, by a temperature; one of 0 stays 0."""
    return changed(weight, lambda w: w if temperature == 1 or not w else w**temperature)


@keyword_hints
def interleave(pipelines: Pipelines, *, stop: Stop = "all") -> Pipeline:
    """Start a pipeline from several others that take turns. Otherwise it works like :func:`mix`.

    Args:
        pipelines: the sources, as a dict by name or as a list; any number. All of them give utterances, or all give
            batches.
        stop: when it ends: "all", "first", "cycle" or "endless", as for :func:`mix`. Default: "all".

    Raises:
        PipelineError: an argument breaks a rule, or the sources do not fit together.
    """
    return Pipeline((Interleave(_named("interleave", pipelines), stop),))


def _named(stage: str, given: Pipelines) -> dict[str, Pipeline]:
    several = isinstance(given, (Mapping, Sequence)) and len(given) > 0 and not isinstance(given, str)
    require(several, stage, "give pipelines, by name or in a list", given, 'as in {"read": …, "meetings": …}')
    named = dict(given) if isinstance(given, Mapping) else {str(i): p for i, p in enumerate(given)}
    for name, pipeline in named.items():
        ok = isinstance(name, str) and isinstance(pipeline, Pipeline)
        require(ok, stage, f"source {name!r} must be a Pipeline", pipeline, "begin with uio.from_shard_list(…)")
        require(name != "", stage, "each source needs a name", name, "give it one")
    return named


def _weights(named: Mapping[str, Any], given: Mapping[str, float] | Sequence[float] | None) -> Any:
    if given is None:
        return (1.0,) * len(named)
    if isinstance(given, Schedule):
        return changed(given, lambda weights: _weights(named, weights))
    if isinstance(given, Mapping):
        same = set(given) == set(named)
        require(same, "mix", "weights must name the sources", sorted(given), f"they are {sorted(named)}")
        given = [given[name] for name in named]
    ok = isinstance(given, Sequence) and len(given) == len(named)
    for weights in Schedule.of(given).values if ok else ():
        ok = ok and all(map(is_weight, weights)) and any(weights)
    require(
        ok,
        "mix",
        f"weights must be {len(named)} numbers above 0",
        given,
        "0 pauses a source, but at least one must be above 0",
    )
    return tuple(given)
