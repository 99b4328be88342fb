"""A disk that hangs: a file system (FUSE) that shows a folder, but never answers where a file is said to hang.

A process that waits for it can be neither interrupted nor killed. ``FILE.hangs`` beside a file says from which of its
bytes on it hangs; without one it is read as it is. Only root may mount it.
"""

import contextlib
import ctypes
import errno
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from uio_pipes.io import local

INIT, LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INTERRUPT, BATCH_FORGET = 26, 1, 2, 3, 14, 15, 18, 25, 36, 42
LIBC = ctypes.CDLL(None, use_errno=True)


def can_hang() -> bool:
    """Whether this process may mount such a disk."""
    return os.geteuid() == 0 and Path("/dev/fuse").exists() and hasattr(LIBC, "mount")


@contextlib.contextmanager
def hung_disk(real: Path, shown: Path) -> Iterator[Path]:
    """Show the folder ``real`` at ``shown``. At the end all that waits for it gets an error."""
    shown.mkdir()
    if not (pid := os.fork()):
        try:
            _serve(str(real), str(shown))
        finally:
            os._exit(0)
    try:
        until = time.monotonic() + 10
        while not os.path.ismount(shown):
            assert time.monotonic() < until, "the disk cannot be mounted"
            time.sleep(0.01)
        yield shown
    finally:
        local._descriptors.clear()  # while they can be closed
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        LIBC.umount2(os.fsencode(shown), 2)  # lazily


def _serve(real: str, shown: str) -> None:
    disk = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={disk},rootmode=40000,user_id=0,group_id=0".encode()
    if LIBC.mount(b"hung", os.fsencode(shown), b"fuse.hung", 6, options):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    nodes, numbers = {1: real}, {real: 1}
    while True:
        data = os.read(disk, 1 << 20)
        _, code, unique, node, *_ = struct.unpack_from("<IIQQIIII", data)
        body, path = data[40:], nodes.get(node, "")
        if code in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        error, reply = 0, b""
        try:
            if code == INIT:
                reply = struct.pack("<IIIIHHIIHHII6I", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 32, 0, 0, 0, *[0] * 6)
            elif code == LOOKUP:
                path = os.path.join(path, os.fsdecode(body.rstrip(b"\0")))
                attributes = _attributes(path)
                number = numbers.setdefault(path, len(numbers) + 1)
                nodes[number] = path
                reply = struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + attributes
            elif code == GETATTR:
                reply = struct.pack("<QII", 0, 0, 0) + _attributes(path)
            elif code == OPEN:
                reply = struct.pack("<QII", 0, 1, 0)  # every read comes here, as it was asked for
            elif code == READ:
                _, offset, size = struct.unpack_from("<QQI", body)
                if os.path.exists(f"{path}.hangs") and offset + size > int(Path(f"{path}.hangs").read_text()):
                    continue
                with open(path, "rb") as file:
                    reply = os.pread(file.fileno(), size, offset)
            elif code not in (RELEASE, FLUSH):
                error = errno.ENOSYS
        except OSError as failure:
            error = failure.errno or errno.EIO
        os.write(disk, struct.pack("<IiQ", 16 + len(reply), -error, unique) + reply)


def _attributes(path: str) -> bytes:
    of = os.stat(path)
    times = (int(of.st_atime), int(of.st_mtime), int(of.st_ctime), 0, of.st_mtime_ns % 10**9, 0)
    owner = (of.st_mode, of.st_nlink, of.st_uid, of.st_gid, 0, 4096, 0)
    return struct.pack("<QQQQQQIIIIIIIIII", of.st_ino, of.st_size, of.st_blocks, *times, *owner)
