"""The differences between a saved state and the loader that it is loaded into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from uio_pipes.base.errors import DataError, StateError
from uio_pipes.base.redact import HIDDEN, redact
from uio_pipes.core.graph import Graph
from uio_pipes.core.state_kinds import DAMAGED
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, stamp
from uio_pipes.run.mixes import Mixes, arranged
from uio_pipes.run.options import RunOptions
from uio_pipes.run.state import Meta, first_difference, shard_stamps, without_modules

REMEDY = 'Use the old value, or begin the epoch again with Loader(on_change="restart")'


def fitted(meta: Meta, options: RunOptions, fingerprints: Mapping[str, Any]) -> tuple[RunOptions, list[str]]:
    """Return the options to go on with, whose mixes are those of the state, and the differences, each as a sentence.

    If only mixes were edited since, the options have them as they are now, their sources in the state's order; that is
    a difference only if it is not to be adopted. Raises: StateError if the state contradicts itself.
    """
    records = meta.mixes or {}
    found = _differences(meta, options, fingerprints)
    if not found or not records:
        mixes = Mixes.of(options.pipeline, records)
        if not found and any(mixes.weights.get(path) != record["weights"] for path, record in records.items()):
            raise StateError(f"meta: the weights of mixes are not those of the graph in the same state; {DAMAGED}")
        return replace(options, mixes=mixes), found
    try:
        before = arranged(options.pipeline, records, edited=False)
    except KeyError as gone:
        remedy = f"keep it, with the weight 0, as utterances of it may still wait in buffers. {REMEDY}"
        return options, [f"a mix has no source {gone} any more, which the state has: {remedy}"]
    if _differences(meta, options, {"graph": before.fingerprint(), "list": before._list_fingerprint()}):
        return options, found
    graph = arranged(options.pipeline, records, edited=True)
    options = replace(options, pipeline=graph, mixes=Mixes.of(graph, records))
    edits = options.mixes.edits(records)
    if options.on_change != "adopt" or not edits:
        return options, [
            f'{text}. Go on from here with the new ones by Loader(on_change="adopt"). {REMEDY}' for text in edits
        ]
    options.mixes.check_dealt(graph, records)
    return options, []


def _differences(meta: Meta, options: RunOptions, fingerprints: Mapping[str, Any]) -> list[str]:
    out = []
    if (meta.stream is not None) != options.in_steps:
        was = "with" if meta.stream is not None else "without"
        steps = options.steps_per_epoch
        out.append(f"the state was saved {was} steps_per_epoch, this loader has {steps}. {REMEDY}")
    saved = meta.saved()
    for name, new in {"seed": options.seed, **fingerprints}.items():
        old = saved[name]
        if old == new:
            continue
        if name == "graph":
            old, new = without_modules(old), without_modules(new)
            if old == new:
                continue
            old, new = first_difference(old, new)
        out.append(f"{name} changed since the state was saved: {old!r} then, {new!r} now. {REMEDY}")
    return out


def changed_shards(state: Mapping[str, Any], graph: Graph) -> list[str]:
    """Return the shards that were open in the state and have changed since, each as a sentence."""
    out = []
    for url, old in shard_stamps(state).items():
        try:
            new = stamp(*(_reached(graph, url) if is_local(url) is None else (url,)))
        except DataError as error:
            new = error.message
        if new != old:
            out.append(
                f"{url} changed since the state was saved: {old} then, {new} now. Restore the shard, or begin the "
                'epoch again with Loader(on_change="restart")'
            )
    return out


def _reached(graph: Graph, url: str) -> tuple[str, Access]:
    """Return the URL with its credentials, which a state does not contain, and the options to open it with.

    Lists are read again only if these are not clear without them.
    """
    known = graph._files()
    different = any(one.access != known[0].access for one in known)
    if HIDDEN not in url and not different:
        return url, known[0].access if known else Access()
    for one in known:
        lines = one.lines()
        for number in range(len(lines)):
            if redact(lines[number]) == redact(url):
                return lines[number], one.access
    return url, Access()
