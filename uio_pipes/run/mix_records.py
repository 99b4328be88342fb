"""The records of mixes in a saved state, and their checks. Reading a state imports this, and no torch."""

from __future__ import annotations

from typing import Any, NamedTuple

from uio_pipes.base.checks import is_weight
from uio_pipes.core.state_kinds import whole

MixRecord = dict[str, Any]  # of a mix in a state: "weights" by source, and "journal"


class Where(NamedTuple):
    """Where a rank stands: epoch and step, and of how many ranks."""

    epoch: int
    step: int
    ranks: int


def fits(records: object) -> bool:
    """Return whether these can be the mixes of a state."""

    def are_weights(value: object) -> bool:
        return isinstance(value, dict) and any(value.values()) and all(map(is_weight, value.values()))

    def is_entry(value: object) -> bool:
        if not isinstance(value, dict):
            return False
        return all(whole().fits(value.get(name)) for name in Where._fields) and are_weights(value.get("weights"))

    return isinstance(records, dict) and all(
        isinstance(one, dict)
        and are_weights(one.get("weights"))
        and isinstance(one.get("journal"), list)
        and len(one["journal"]) != 1
        and all(is_entry(entry) and entry["weights"].keys() <= one["weights"].keys() for entry in one["journal"])
        for one in records.values()
    )
