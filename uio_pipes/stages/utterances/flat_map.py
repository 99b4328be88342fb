"""``flat_map``: any number of utterances from each one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, PipelineError, StateError, UioError
from uio_pipes.core.buffer import MARK_EVERY, changed
from uio_pipes.core.capabilities import Uncountable
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import wants
from uio_pipes.core.stage import Node, Trait


@dataclass(frozen=True)
class FlatMap(Uncountable, Flow):
    """Apply your function that turns each utterance into any number of utterances.

    Each result gets an origin of its own, so that later stages draw random numbers of their own for it. Directly
    after ``open_files`` the function gets files (with ``file.open()`` and ``file.url``): that is how to read other
    archive formats. It must give the same results for the same input, because a resumed run calls it again and
    skips what was delivered already.

    Args:
        function: gets the sample, or the file, and returns or yields samples or mappings. It runs where it stands;
            what it touches is computed there. If it has a parameter ``rng``, it also gets the sample's own
            ``numpy.random.Generator``.
    """

    name: ClassVar[str] = "flat_map"
    traits: ClassVar[Trait] = Trait.SILENT | Trait.OPAQUE
    takes: ClassVar[tuple[str, ...]] = ("sample", "file", "item")
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "runs here; audio that it touches is decoded here"

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(callable(self.function), self.name, "the argument must be a function", self.function, "pass one")

    def uncountable_reason(self, kind: str) -> str:
        return "" if kind == "sample" else f"what the user's own {self.name} gives shows only when it runs"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _FlatMapNode(source, lane, self, site)


class Expanding(Node):
    """Gives the utterances that :meth:`expand` yields for each item; they must be the same for the same item.

    State: the source's from before the current item, or from up to ``MARK_EVERY`` items earlier (the state of a source
    that holds many samples costs too much to be taken for each item), how many items to skip from there, those of them
    (as bits) of which nothing came through, and how many results of the current item have been delivered.
    """

    def __init__(self, source: Node, lane: Lane, site: Site) -> None:
        super().__init__(source)
        self.lane, self.site = lane, site
        self.chain, self.run_key = Chain(), lane.run_key

    def expand(self) -> Iterator[Any]:
        """Yield the samples or mappings made of ``self.item``."""
        raise NotImplementedError

    def start(self) -> None:
        self.mark: dict[str, Any] | None = None  # the source's state
        self.passed = 0  # items taken since then
        self.fruitful = 0  # those of them of which something came through, as bits: an endless source goes by it
        self.before = self.lane.stall_guard.arrived
        self.under_way = False  # an item is being expanded
        self.item: Any = None
        self.results: Iterator[Any] = iter(())
        self.delivered = 0

    def next(self) -> Sample:
        while True:
            if not self.under_way:
                self._advance()
            try:
                PULSE.at(self.site.name, self.item, self.delivered)
                result = next(self.results)
            except StopIteration:
                self.under_way = False
                continue
            except Exception as error:
                self.under_way = False
                self.lane.ledger.handle(self._failure(error), self.site.name)
                continue
            self.lane.ledger.succeeded(self.site.name)
            self.delivered += 1
            return self._child(result)

    def _advance(self) -> None:
        if self.mark is None or self.passed == MARK_EVERY:
            self._mark()
        try:
            self.item = self._take()
        except StopIteration:
            self._mark()  # what failed after the last item has been counted
            raise
        self.under_way, self.delivered = True, 0
        self.results = self.expand()

    def _take(self) -> Any:
        self._look()
        item = self.source.next()
        self.passed, self.before = self.passed + 1, self.lane.stall_guard.arrived
        return item

    def _look(self) -> None:
        """Note if something came of the last item."""
        if self.passed and self.lane.stall_guard.arrived > self.before:
            self.fruitful |= 1 << (self.passed - 1)

    def _mark(self) -> None:
        self.mark, self.passed, self.fruitful = self.source.get_state(), 0, 0

    def _failure(self, error: Exception) -> Any:
        if isinstance(self.item, Sample):
            return self.item.failure(error, self.site.name)
        if isinstance(error, (DataError, PipelineError)):
            return error
        return DataError("flat_map_failed", f"{type(error).__name__}: {error}", url=self.item.key)

    def _child(self, result: Any) -> Sample:
        number = self.delivered - 1
        if isinstance(result, Sample):
            return result.child(number)
        if not isinstance(result, Mapping):
            raise PipelineError(f"flat_map: the function must yield utterances (mappings), not {type(result).__name__}")
        origin: Origin = self.item.origin
        origin = origin._replace(sub=(*origin.sub, number))
        url = self.item.url if isinstance(self.item, Sample) else self.item.key
        return Sample(dict(result), origin, self.run_key, self.chain, url)

    def get_state(self) -> dict[str, Any]:
        if self.mark is None:
            self._mark()
        self._look()
        state: dict[str, Any] = {"source": self.mark, "passed": self.passed - self.under_way}
        if fruitless := (1 << self.passed) - 1 - self.fruitful:
            state["fruitless"] = fruitless
        return state | {"delivered": self.delivered} if self.under_way else state

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is None:
            return
        fruitless = initial_state.get("fruitless", 0)
        self.mark = initial_state["source"]
        try:
            for _ in range(initial_state["passed"]):
                self._take()
                self._came(fruitless)
        except StopIteration:
            raise StateError(changed(self.site.name, "the data ended early")) from None
        if "delivered" in initial_state:
            delivered = initial_state["delivered"]
            try:
                self._advance()
                for _ in range(delivered):
                    next(self.results)
            except UioError:
                raise
            except Exception as error:
                what = f"an item gave {delivered} utterances then, and fewer now"
                raise StateError(changed(self.site.name, what)) from error
            self.delivered = delivered
            self._came(fruitless)

    def _came(self, fruitless: int) -> None:
        """Let something have come of the last item, as it did when the state was saved."""
        self.lane.stall_guard.arrived += not fruitless >> (self.passed - 1) & 1


class _FlatMapNode(Expanding):
    def __init__(self, source: Node, lane: Lane, stage: FlatMap, site: Site) -> None:
        super().__init__(source, lane, site)
        self.function, self.rng = stage.function, wants(stage.function, "rng")

    def expand(self) -> Iterator[Any]:
        given: dict[str, Any] = {}
        if self.rng:
            if not isinstance(self.item, Sample):
                raise PipelineError("flat_map: a function with a rng parameter works on utterances, not on files")
            given["rng"] = self.item.draws(self.site.salt).generator()
        yield from self.function(self.item, **given)
