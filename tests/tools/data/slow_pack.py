"""Packs slowly, to be killed: ``slow_pack.py LIST OUT``. Without torch: it starts in a fraction of a second."""

import os
import signal
import sys
import time
from pathlib import Path

from uio_pipes.tools.data.pack import LengthGroup, PackSettings, pack
from uio_pipes.tools.data.writing.shards import ShardWriter

SETTINGS = PackSettings(size=7, groups=(LengthGroup(10, 100), LengthGroup(100, 200)))


def kill_oneself(*_: object) -> None:
    """As the kernel does it when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    add_fast = ShardWriter.add

    def add(self: ShardWriter, *args: object) -> None:
        time.sleep(0.01)
        add_fast(self, *args)  # type: ignore[arg-type]

    ShardWriter.add = add  # type: ignore[method-assign, assignment]
    out = Path(sys.argv[2])
    pack(Path(sys.argv[1]), out, out.with_name("shards.list"), SETTINGS, jobs=2)
