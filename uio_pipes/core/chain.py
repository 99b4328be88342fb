"""Streams, and the deferred stages of a sample that each field depends on.

A stream is a field with a name of its own. A stage that is given ``of="prompt"`` works on a view of the utterance in
which that field is ``wav`` or ``txt``, so that no stage knows of streams. What it makes is named after the stream:
``prompt_sample_rate``, ``prompt_feat``, ``prompt_label``. An audio stream may have several recordings, as a
conversation has: the field is a list then, the stage works on one after the other, and what it makes are lists, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

from uio_pipes.audio.containers import TRIMMED
from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require

StreamNames = Mapping[str, str]  # by usual names, those of a stream
_MADE = ("sample_rate", "feat", "start", "end", "duration", TRIMMED, "tokens", "label")
_TAKEN = frozenset(["key", "wav", "txt", *_MADE])


@cache
def audio_names(of: str) -> StreamNames:
    """Return the fields of the audio stream ``of`` by their usual names."""
    return {"wav": of, **{name: f"{of}_{name}" for name in _MADE[:6]}}


@cache
def token_names(of: str) -> StreamNames:
    """Return the fields of the token stream ``of`` by their usual names."""
    return {"txt": of, **{name: f"{of}_{name}" for name in _MADE[6:]}}


def recordings(fields: Mapping[str, Any], names: StreamNames) -> int | None:
    """Return how many recordings the stream with the fields ``names`` has; None if it is not a list."""
    for name in ("wav", "feat"):
        value = fields.get(names.get(name, ""))
        if isinstance(value, list):
            return None if value and isinstance(value[0], (int, float, list)) else len(value)
    return None


def check_stream(stage: str, of: object) -> None:
    """Raises: PipelineError unless ``of`` can be the name of a stream, or is "" for the usual one."""
    ok = isinstance(of, str) and (not of or (of.isidentifier() and of not in _TAKEN))
    require(ok, stage, "of must name a field that is not one of the standard ones", of, 'as in of="prompt"')


TIMELINE = "timeline"  # the field of what happens when in an utterance
ANY = frozenset(["*"])
_WAV = frozenset(["wav"])


class Link(Protocol):
    """One deferred stage. ``reads`` and ``writes`` name fields; ``{"*"}`` stands for all fields.

    ``of``: the stream that it works on, "" for the usual one.

    ``sample``: the :class:`~uio_pipes.core.sample.Sample` that it works on.
    """

    @property
    def name(self) -> str: ...
    @property
    def of(self) -> str: ...
    @property
    def reads(self) -> frozenset[str]: ...
    @property
    def writes(self) -> frozenset[str]: ...
    def plan(self, plan: Plan | None, sample: Any) -> Plan | None: ...
    def apply(self, sample: Any) -> None: ...


def _meet(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a and b) and ("*" in a or "*" in b or not a.isdisjoint(b))


class Chain:
    """The deferred stages of a sample in their order, shared by all samples of a lane.

    ``named``: the streams that they work on beside the usual one; ``streams``: those of audio among them; ``rules``:
    those that may change the usual length, by their numbers;
    ``takes_pcm``: whether all of them take the usual audio as 16-bit samples, too; ``measured``: gives the length that
    the first of them makes, if it knows without that of what it takes; ``found``: whether it knows what it makes, too;
    ``timed``: whether one of them makes a timeline.
    """

    __slots__ = ("_bits", "_then", "found", "links", "measured", "named", "needs", "rules", "streams", "takes_pcm",
                 "timed")  # fmt: skip

    def __init__(self, links: tuple[Link, ...] = ()) -> None:
        self.links = links
        self.measured: Callable[[Any], Plan | None] | None = getattr(links[0], "measured", None) if links else None
        self.rules = [
            (i, link) for i, link in enumerate(links) if not link.of and getattr(link, "changes_length", True)
        ]
        self.named = tuple(dict.fromkeys(link.of for link in links if link.of))
        audio = {of: {audio_names(of)[name] for name in ("sample_rate", "feat")} for of in self.named}
        on_audio = (one for one in links if one.of and not audio[one.of].isdisjoint(one.reads | one.writes))
        self.streams = tuple(dict.fromkeys(link.of for link in on_audio))
        self.found: Callable[[Any], bool] | None = getattr(links[0], "found", None) if links else None
        on_wav = [link for link in links if _meet(link.reads | link.writes, _WAV)]
        self.takes_pcm = all(getattr(link, "takes_pcm", False) for link in on_wav)
        self.timed = any(TIMELINE in link.writes for link in links)
        self._then: dict[int, Chain] = {}
        self._bits: dict[tuple[str, bool], int] = {}
        # needs[j]: bits of the links that must have run before link j, itself included
        self.needs: list[int] = []
        for j, link in enumerate(links):
            bits = 1 << j
            for i, before in enumerate(links[:j]):
                if _meet(before.writes, link.reads | link.writes) or _meet(before.reads, link.writes):
                    bits |= self.needs[i]
            self.needs.append(bits)

    def then(self, link: Link) -> Chain:
        """Return this chain with ``link`` added at its end."""
        chain = self._then.get(id(link))
        if chain is None:
            chain = self._then[id(link)] = Chain((*self.links, link))
        return chain

    def names(self, name: str) -> bool:
        """True if a link writes field ``name``. A link that may write any field does not count."""
        return any(name in link.writes for link in self.links)

    def writers(self, name: str) -> int:
        """Return the bits of the links that must run before field ``name`` has its value."""
        return self._find(name, reading=False)

    def users(self, name: str) -> int:
        """Return the bits of the links that must run before field ``name`` may be overwritten."""
        return self._find(name, reading=True)

    def _find(self, name: str, reading: bool) -> int:
        bits = self._bits.get((name, reading))
        if bits is None:
            wanted = frozenset([name])
            bits = 0
            for link, needs in zip(self.links, self.needs, strict=True):
                if _meet(link.writes, wanted) or (reading and _meet(link.reads, wanted)):
                    bits |= needs
            self._bits[name, reading] = bits
        return bits
