"""``through``: a node of the user's own."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import refused


@dataclass(frozen=True, init=False)
class Through(Stage):
    """Add a node of your own: ``node(source, *args, **kwargs)``, where ``source`` is the node before.

    Args:
        node: a subclass of :class:`Node`, or any ``torchdata.nodes.BaseNode``. Its state must consist of ints,
            strings, lists and dicts with string keys, and describe the first item that is not delivered yet.
        *args: further positional arguments for ``node``.
        **kwargs: keyword arguments for ``node``.
    """

    name: ClassVar[str] = "through"
    silent: ClassVar[bool] = True
    opaque: ClassVar[bool] = True
    own_node: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = ("any",)
    gives: ClassVar[str] = "any"

    node: type[BaseNode[Any]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, node: type[BaseNode[Any]], *args: Any, **kwargs: Any) -> None:
        ok = isinstance(node, type) and issubclass(node, BaseNode)
        require(ok, self.name, "the first argument must be a Node class", node, "for a function, use .map or .flat_map")
        for name, value in (("node", node), ("args", args), ("kwargs", kwargs)):
            object.__setattr__(self, name, value)

    def uncountable_reason(self, kind: str) -> str:
        return f"what the user's own {self.name} gives shows only when it runs"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ThroughNode(self.node(_NotEmpty(source, lane), *self.args, **self.kwargs))


class _NotEmpty(Node):
    """Leaves out empty batches, of which every utterance failed."""

    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane

    def next(self) -> Any:
        while True:
            item = self.source.next()
            if not isinstance(item, (list, dict)) or item:
                self.lane.pulse.arrived += 1
                return item


class _ThroughNode(Node):
    """Runs a node of the user's, and copies its states, which may be live objects."""

    def next(self) -> Any:
        return next(self.source)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        if initial_state is None:
            self.source.reset(None)
            return
        with refused(f"the node {type(self.source).__name__} given to .through(…)"):
            self.source.reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = copy.deepcopy(self.source.state_dict())
        return state
