"""AISHELL-1 from OpenSLR: ``python -m recipes.aishell.download ROOT``.

Downloads two archives (15.6 GB), checks length and MD5, and unpacks them and the 400 archives of speakers in them. If
it is killed, the same command continues. Archives that are in ROOT already are used.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.processes import in_order
from uio_pipes.io.files import write_bytes
from uio_pipes.tools.data.common import follow

from ..common.fetch import FetchFailed, Remote, bring, mirrored
from ..common.problems import told
from ..common.unpack import UnpackFailed, read_members, unpack
from .layout import SPLITS, corpus_dir, transcript_path

__all__ = ["OPENSLR", "REMOTES", "download"]

OPENSLR = "https://www.openslr.org/resources/33"
# OpenSLR publishes no checksums. The lengths are those in Kaldi's recipe, the MD5s those in PaddleSpeech's.
SPEECH = Remote(f"{OPENSLR}/data_aishell.tgz", 15_582_913_665, "2f494334227864a8a8fec932999db9d8")
RESOURCE = Remote(f"{OPENSLR}/resource_aishell.tgz", 1_246_920, "957d480a0fcac85fc18e550756f624e5")
REMOTES = (RESOURCE, SPEECH)


def download(root: Path, remotes: tuple[Remote, ...] = REMOTES, jobs: int = 0) -> bool:
    """Download the corpus to ``root``; return False if it is there. Raises: FetchFailed, UnpackFailed, OSError."""
    begun = root / ".unpacking"
    new = begun.exists() or not transcript_path(corpus_dir(root)).is_file()
    if new:
        for remote in remotes:
            bring(remote, root / remote.name)
        begun.touch()
        for remote in remotes:
            _unpack_outer(root, root / remote.name)
        begun.unlink()
    return _unpack_speakers(root, jobs) or new


def _unpack_outer(root: Path, archive: Path) -> None:
    """Unpack the files of ``archive`` that are not there yet."""
    typer.echo(f"unpacking {archive}")
    for leftover in root.glob("*/wav/.*.tar.gz.*"):
        leftover.unlink()  # of a run that was killed
    there = {path.name for split in SPLITS for path in (corpus_dir(root) / "wav" / split).glob("*")}

    def wanted(name: str) -> bool:
        speaker = Path(name).name.removesuffix(".tar.gz")
        return not (root / name).exists() and speaker not in there

    unpack(archive, root, wanted)


def _unpack_speakers(root: Path, jobs: int) -> bool:
    archives = sorted((corpus_dir(root) / "wav").glob("*.tar.gz"))
    if not archives:
        return False
    killed = UnpackFailed("a process that unpacks was killed; start again: speakers that are whole are kept")
    work = ((path, (path,)) for path in archives)
    unpacked = in_order(_unpack_speaker, work, jobs or os.cpu_count() or 1, ["recipes.common.unpack"], killed)
    for _ in follow(((path, 1) for path, _ in unpacked), "unpacking speakers", len(archives)):
        pass
    return True


def _unpack_speaker(archive: Path) -> Path:
    """Unpack ``wav/S0002.tar.gz``, which holds ``train/S0002/….wav``. The folder appears when it is complete, and then
    the archive is deleted."""
    wav, speaker = archive.parent, archive.name.removesuffix(".tar.gz")
    partial = wav / f".{speaker}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    for name, content in _speaker_files(archive, speaker):
        write_bytes(partial / name, content)
    folders = [folder for split in SPLITS for folder in partial.glob(f"{split}/{speaker}")]
    if len(folders) != 1:
        raise UnpackFailed(f"{archive} holds no folder {{train,dev,test}}/{speaker}; it is not AISHELL-1's")
    target = wav / folders[0].relative_to(partial)
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        folders[0].rename(target)
    shutil.rmtree(partial)
    archive.unlink()
    return target


def _speaker_files(archive: Path, speaker: str) -> Iterator[tuple[str, bytes]]:
    return read_members(archive, lambda name: name.endswith(".wav") and f"/{speaker}/" in name)


def main(
    root: Annotated[Path, typer.Argument(help="Folder that gets `data_aishell` and `resource_aishell`.")],
    mirror: Annotated[str, typer.Option(help="OpenSLR's address of the resource, or a mirror's.")] = OPENSLR,
    jobs: Annotated[int, typer.Option(help="Processes that unpack; 0: one for each core.")] = 0,
) -> None:
    """Download and unpack AISHELL-1 (15 GB, Apache-2.0); continue where an earlier run was interrupted."""
    with told(FetchFailed, UnpackFailed, OSError):
        new = download(root, mirrored(REMOTES, mirror), jobs)
    typer.echo(f"{corpus_dir(root)}: {'complete' if new else 'there already'}")


if __name__ == "__main__":
    typer.run(main)
