"""Files under a folder, and archives like those that corpora are published in."""

import hashlib
import io
import tarfile
from pathlib import Path


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
