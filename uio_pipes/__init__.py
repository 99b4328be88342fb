"""Functional datapipes on torchdata for speech training and decoding: sharded, batched by frames, exactly resumable.

A :class:`Pipeline` describes a graph; a :class:`Loader` runs it, in this process or in workers, alone or under
torchrun. It can be stopped at any batch and go on from there, on the same machines or on others.

The names are those of ``uio_pipes.api``. They are imported when first used: torch takes seconds to start, and the
``uio`` command and the processes that pack audio do without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

if TYPE_CHECKING:
    from uio_pipes.api import *  # noqa: F403
    from uio_pipes.api import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        try:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(name)
            value = getattr(import_module("uio_pipes.api"), name)
        except AttributeError:
            message = f"module {__name__!r} has no attribute {name!r}"
            if not name.startswith("_"):
                known = import_module("uio_pipes.api").__all__
                message += import_module("uio_pipes.base.hints").unexpected("uio", {name: None}, known)
            # Without obj Python adds no guess of its own, which goes by letters.
            raise AttributeError(message, name=name, obj=None) from None
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("uio_pipes.api").__all__})


def load_ipython_extension(shell: Any) -> None:
    """Have notebooks show batches as tables, and other dicts as before: ``%load_ext uio_pipes``."""
    shown = import_module("uio_pipes.inspect.peek").batch_html
    shell.display_formatter.formatters["text/html"].for_type(dict, shown)
