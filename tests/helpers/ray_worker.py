"""In place of Ray's ``setup_worker.py``: a worker is a fork of a process that has imported torch and this package.

``FORKS`` says where that process listens; the fork runs this script, too, and then what the arguments say, which is
Ray's ``default_worker.py``. Environments for workers alone are not set up: no test has any.
"""

import os
import runpy
import sys
from pathlib import Path

from call import call


def main(address: str | None, command: list[str]) -> None:
    if address is None:
        os.setpgid(0, 0)  # Ray kills the process group of a worker that has ended
        sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")
        return
    told = call(address, [__file__, *command], os.getcwd(), dict(os.environ), [0, 1, 2]).recv(9)
    sys.exit(int(told) % 256 if told else 1)


if __name__ == "__main__":
    ours = ("--serialized-runtime-env-context=", "--language=")  # and not default_worker.py's
    main(os.environ.pop("FORKS", None), [one for one in sys.argv[1:] if not one.startswith(ours)])
