"""What ``uio convert`` does, in this process."""

from collections.abc import Mapping
from typing import Literal

from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.pack import Packing, PackSettings, pack
from uio_pipes.tools.data.placement import To


def convert(
    source: str,
    out: str,
    *,
    to: To = "indexed",
    per_part: int = 5000,
    resample: int | None = None,
    form: Literal["wav", "flac"] = "wav",
    list_path: str | None = None,
    fields: Mapping[str, str] | None = None,
    jobs: int = 1,
) -> Packing:
    name = "shards_{:09d}.tar" if to == "shards" else ""
    settings = PackSettings(per_part, (), "wav" if to == "indexed" else form, resample, name, to=to)
    listed = list_path or Folder(out).join("cuts.jsonl.gz" if to == "cuts" else "data.list")
    return pack(source, out, listed, settings, jobs, texts=None if to == "cuts" else (), fields=fields)
