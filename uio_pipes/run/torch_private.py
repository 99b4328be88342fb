"""All that we use of the inside of torch's ``DataLoader``, in one place: names that its documentation does not promise.

``tests/run/test_torch_private.py`` pins each of them, and says what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data._utils.collate import default_collate_fn_map

# ``batches``: the iterator of a DataLoader with workers.


def close_our_writer(batches: Any) -> None:
    """Leave the workers alone in holding the writing end of the queue of results.

    Whoever waits for a result, in a thread perhaps, then learns at once that the last worker has ended.
    """
    batches._worker_result_queue._writer.close()


def worker_pids(batches: Any) -> list[int]:
    return [worker.pid for worker in batches._workers]


def shut_down(batches: Any) -> None:
    """End the worker processes now, not when the iterator is collected."""
    batches._shutdown_workers()


def collate_by(kind: type, function: Callable[..., Any]) -> None:
    """Have torch's ``default_collate`` call ``function`` for batches of ``kind``."""
    default_collate_fn_map[kind] = function
