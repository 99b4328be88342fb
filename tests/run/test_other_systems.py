"""What of Linux's is missing on macOS: imitated, since there is no such machine."""

import subprocess
import sys
from pathlib import Path

from helpers_bad import members, shard, shard_list
from processes import environment

LIKE_MACOS = """
import multiprocessing, os, sys

ONLY_LINUX = ("copy_file_range", "eventfd", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate", "splice")
for name in (*ONLY_LINUX, "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)

def without_proc(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "there is no /proc", arguments[0])

sys.addaudithook(without_proc)
multiprocessing.set_start_method("spawn", force=True)
"""
TRAIN = """
import importlib, multiprocessing, os, pkgutil, sys

import uio_pipes as uio
import uio_pipes.core.statistics

if __name__ == "__main__":
    assert not hasattr(os, "memfd_create") and uio_pipes.core.statistics.memory() == 0
    for module in pkgutil.walk_packages(uio.__path__, "uio_pipes."):
        importlib.import_module(module.name)
    pipeline = uio.from_shard_list(sys.argv[1], shuffle=True).decode_audio().fbank().shuffle(5).batch(2).pad()
    loader = uio.Loader(pipeline, num_workers=2, lanes=2)
    keys = []
    for batch in loader:
        keys += batch["keys"]
        state = loader.state_dict()
    assert multiprocessing.get_start_method() == "spawn"
    loader.load_state_dict(state)
    assert list(loader) == []
    print(*sorted(keys))
"""


def test_a_loader_with_workers_runs_without_what_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIKE_MACOS)  # workers are started with it, too
    (tmp_path / "train.py").write_text(TRAIN)
    listed = shard_list(tmp_path / "list", [shard(tmp_path / f"{i}.tar", members(3, 3 * i)) for i in range(3)])
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    command = [sys.executable, str(tmp_path / "train.py"), listed]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"K00{i}" for i in range(9)]
