"""A recipe's ``main`` called in this process."""

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Result(NamedTuple):
    """The exit code, and all that was printed."""

    exit_code: int
    output: str


def invoked(main: Callable[[Sequence[str]], None], options: Sequence[object]) -> Result:
    """Call ``main(options)``; return its exit code and its output."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            main([str(option) for option in options])
        except SystemExit as end:
            return Result(int(end.code or 0), told.getvalue())
    return Result(0, told.getvalue())
