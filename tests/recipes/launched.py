"""The program that ``test_launch`` starts: it notes its start and its end. ``python -m launched FOLDER STATUS``."""

import os
import signal
import sys
import time
from pathlib import Path

folder, status = Path(sys.argv[1]), int(sys.argv[2])
rank = os.environ.get("RANK", "0")


def save(*_: object) -> None:
    (folder / f"saved.{rank}").touch()
    sys.exit(143)


signal.signal(signal.SIGTERM, save)
(folder / f"ready.{rank}").touch()
if status < 0:
    time.sleep(60)
sys.exit(status)
