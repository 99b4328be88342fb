"""Data of any kind as a TouchDataset, WeNet's shards, a raw list or Lhotse's cuts."""

from __future__ import annotations

from collections.abc import Mapping

from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.pack import Packing, PackSettings, pack
from uio_pipes.tools.data.placement import To
from uio_pipes.tools.data.writing.cutting import FileForm


def convert(
    source: str,
    out: str,
    *,
    to: To = "indexed",
    per_part: int = 5000,
    resample: int | None = None,
    form: FileForm = "wav",
    compress: bool = False,
    list_path: str | None = None,
    fields: Mapping[str, str] | None = None,
    needs_text: bool = True,
    allow_pipes: bool = False,
    jobs: int = 1,
) -> Packing:
    """Convert the data of ``source``, all that has audio, to ``out``.

    Mono, 16 bits, the first channel; but cuts refer to audio that is a file of its own, and only other audio is
    written (all of it with ``resample``). ``resample``: to that rate in Hz, otherwise each keeps its own. ``form``: of
    audio files in shards, raw lists and cuts. ``compress``: shards, with zstd and checksums. ``list_path``: the list
    written at the end, by default :func:`list_name` in OUT. ``fields``: names that fields have in the data, by ours.
    ``needs_text``: False if utterances may have no transcript; those of cuts may have none anyway. ``jobs``: processes
    that decode. ``allow_pipes``: run the commands in a Kaldi folder's ``wav.scp``.

    Raises: ListError, OtherPacking, PackingFailed.
    """
    settings = settings_of(to, per_part, resample, form, compress)
    texts = () if needs_text and to != "cuts" else None
    target = list_path or Folder(out).join(list_name(to))
    return pack(source, out, target, settings, jobs, texts=texts, fields=fields, allow_pipes=allow_pipes)


def settings_of(to: To, per_part: int, resample: int | None, form: FileForm, compress: bool) -> PackSettings:
    """Return the settings of a conversion."""
    name = f"shards_{{:09d}}.tar{'.zst' if compress else ''}" if to == "shards" else ""
    return PackSettings(per_part, (), "wav" if to == "indexed" else form, resample, name, to=to)


def list_name(to: To) -> str:
    """Return the usual name of the list that is written."""
    return "cuts.jsonl.gz" if to == "cuts" else "data.list"
