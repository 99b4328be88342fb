"""Utterances joined to one, whose fields are computed from its parts when touched.

Each part keeps the chain that it came with: touching the joined label tokenizes the parts and decodes none of them. The
first links of the joined utterance (:mod:`uio_pipes.stages.concat_links`) join the fields of its parts; stages after
``concat`` add theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import Chain
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Origin, Sample

T = TypeVar("T")


class Joined(Sample):
    """Several utterances as one. ``changed``: a function of the user's has set one of its fields."""

    __slots__ = ("changed", "parts")
    parts: list[Sample]
    changed: bool

    def __setitem__(self, name: str, value: Any) -> None:
        self.changed = True
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self.changed = True
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        for link in self.chain.links:
            if getattr(link, "decides", False):  # only its values show which fields there are
                self.compute(link)
        return super().__iter__()

    def _like(self, origin: Origin) -> Sample:
        like = Joined(dict(self.fields), origin, self._run_key, self.chain, self.url)
        like.done, like.parts, like.changed = self.done, list(self.parts), self.changed
        return like

    def gather(self, get: Callable[[Sample], T], ledger: Ledger) -> list[T]:
        """Return ``get(part)`` for each part. A part that fails is counted and removed.

        Raises: DataError if no part is left, or if the user has changed fields that were joined from all parts.
        """
        values, good, errors = [], [], []
        for part in self.parts:
            try:
                values.append(get(part))
            except Exception as error:
                failure = part.failure(error, "concat")
                if not isinstance(failure, DataError):
                    raise failure from error
                errors.append(failure)
            else:
                good.append(part)
                ledger.fine("concat")
        if errors:
            self._leave(good, errors, ledger)
        return values

    def _leave(self, good: list[Sample], errors: list[DataError], ledger: Ledger) -> None:
        last = errors.pop() if not good else None
        if self.changed and last is None:
            first = errors[0]
            message = f"{first.message}; all of {self.key} is left out: a function after concat has changed it"
            raise DataError(first.reason, message, url=first.url, member=first.member, offset=first.offset)
        for error in errors:
            ledger.fail(error, "concat")
        if last is not None:
            raise last
        self.parts = good
        self.fields["key"] = join_keys(good)
        done, self.done = self.done, 0  # compute again, in the order of the chain, what was made with the removed parts
        self._run(done)


def join(parts: list[Sample], chain: Chain) -> Joined:
    """Join ``parts`` to one utterance with the ``chain`` of :func:`uio_pipes.stages.concat_links.joining`."""
    first = parts[0]
    origin = first.origin._replace(sub=(*first.origin.sub, -len(parts)))  # a number that flat_map never gives
    joined = Joined({"key": join_keys(parts)}, origin, first._run_key, chain, first.url)
    joined.parts, joined.changed = parts, False
    return joined


def join_keys(parts: list[Sample]) -> str:
    return "+".join(part.key for part in parts)
