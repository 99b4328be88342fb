"""Processes of a pool: what Ctrl-C does to them."""

from __future__ import annotations

import os
import signal

import pytest

from uio_pipes.processes import uninterrupted


def test_ctrl_c_is_raised_behind_what_must_not_be_interrupted() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # CI may run with it ignored
    done = False
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012 (it is raised at the end)
            os.kill(os.getpid(), signal.SIGINT)
            done = True
        assert done
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
