"""Utterances that ``loader.exclude`` leaves out from some step on.

A state holds them as a journal: the utterances of each call, with its epoch and step. Lanes plan them as ever, so that
batches, their order and all positions stay as they are; what is excluded is left out of its batch when that is made.
With which batch of a lane each call came is a mark in the lane's state (see :mod:`uio_pipes.core.schedule`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.core.schedule import Schedule, Settings
from uio_pipes.formats.lists.quarantine import home, read_quarantine
from uio_pipes.run.state import Meta, Where

ANYWHERE = ""  # in place of a shard or list
Since = Mapping[str, Mapping[str, int]]  # key → shard or list → number of the call that named it


@dataclass(frozen=True)
class Exclusions:
    """Each entry of the ``journal`` is ``{"epoch": …, "step": …, "ranks": …, "keys": {shard or list: keys}}``."""

    journal: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, meta: Meta) -> Exclusions:
        """Return the exclusions in a state."""
        return cls(tuple(meta.excluded or ()))

    @property
    def saved(self) -> list[dict[str, Any]] | None:
        """The part of a state; None if nothing was ever excluded."""
        return list(self.journal) or None

    def added(self, given: Iterable[str] | os.PathLike[str], where: Where) -> Exclusions:
        """Return these exclusions and the given utterances: keys, or a file of keys. Raises: UioError."""
        known, new = _since(self.journal), dict[str, list[str]]()
        for place, key in dict.fromkeys(_named(given)):
            if not {ANYWHERE, place} & known.get(key, {}).keys():
                new.setdefault(place, []).append(key)
        return Exclusions((*self.journal, {**where._asdict(), "keys": new})) if new else self

    def of_epoch(self, epoch: int, goes_on: bool) -> Excluding | None:
        """Return what lanes leave out in ``epoch``. ``goes_on``: it is a stream, to which later epochs belong."""
        entries = [one for one in self.journal if one["epoch"] <= epoch or goes_on]
        if not entries:
            return None
        before = sum(one["epoch"] < epoch for one in entries)
        return Excluding(Schedule(tuple(range(before, len(entries) + 1)), None), _since(entries))


@dataclass(frozen=True)
class Excluding:
    """What the lanes of an epoch leave out. ``calls``: how many have come, at first and later on."""

    calls: Schedule
    since: Since

    def follow(self, settings: Settings, pass_: int) -> Callable[[str, str], bool]:
        """Return whether an utterance, by its URL and key, is left out of the batch that a lane makes now."""
        setting = settings.follow("exclude", self.calls, pass_)
        setting.node = settings

        def left_out(url: str, key: str) -> bool:
            if (places := self.since.get(key)) is None:
                return False
            calls = setting.at(settings.position)
            return any(places.get(place, calls) < calls for place in (ANYWHERE, home(url)))

        return left_out


def _since(journal: Iterable[Mapping[str, Any]]) -> Since:
    found: dict[str, dict[str, int]] = {}
    for number, entry in enumerate(journal):
        for place, keys in entry["keys"].items():
            for key in keys:
                found.setdefault(key, {}).setdefault(place, number)
    return found


def _named(given: object) -> list[tuple[str, str]]:
    """Return (shard or list, key) of the utterances that are given. Raises: UioError."""
    if isinstance(given, str) and not os.path.exists(given) and "/" not in given:
        raise ListError(
            f'exclude: there is no file {given}; if it is the key of an utterance, write exclude(["{given}"])'
        )
    if isinstance(given, (str, os.PathLike)):
        return [(home(one.get("url", ANYWHERE)), one["key"]) for one in read_quarantine(given) if one.get("key")]
    keys = list(given) if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)) else [None]
    if wrong := [key for key in keys if not isinstance(key, str) or not key]:
        rule = "give keys of utterances, or the path of a list that `uio worst --exclude` or `uio verify` wrote"
        raise PipelineError(f'exclude: {rule}, not {(wrong[0] or given)!r}; as in exclude(["utt1", "utt2"])')
    return [(ANYWHERE, str(key)) for key in keys]
