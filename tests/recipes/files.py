"""Files under a folder, and archives like those that corpora are published in."""

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_server import FaultServer

from recipes.common import unpack
from recipes.common.corpus import OtherCorpus
from recipes.common.fetch import Remote


def digests(root: Path) -> dict[str, str]:
    """The SHA-1 of each file under ``root``, by its path."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha1(path.read_bytes()).hexdigest() for path in files}


def tgz(members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar.gz of these files; a name that ends in / is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), tarfile.DIRTYPE if name.endswith("/") else kind
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def published(server: FaultServer, name: str, data: bytes) -> Remote:
    """A file on the server, as a recipe knows it."""
    return Remote(server.add(name, data), len(data), hashlib.md5(data).hexdigest())


class Killed(BaseException):
    """Stands for a kill."""


@contextlib.contextmanager
def killed_at_write(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever unpacks files is killed at that one."""
    write_bytes: Callable[[Path, bytes], None] = unpack.write_bytes
    written: list[Path] = []

    def killed(path: Path, content: bytes) -> None:
        if len(written) == number:
            raise Killed
        written.append(path)
        write_bytes(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(unpack, "write_bytes", killed)
        yield


def check_stays(corpus: Path, make_mini: Callable[..., object], settings: object, other: object) -> None:
    """A mini corpus that is there is made no second time, and no other one in its place."""
    before = digests(corpus)
    assert not make_mini(corpus, settings)
    with pytest.raises(OtherCorpus, match="Choose another folder"):
        make_mini(corpus, other)
    assert digests(corpus) == before
