"""LibriSpeech from OpenSLR: ``python -m recipes.librispeech.download ROOT --part train-clean-100``.

Downloads an archive for each part (61 GB for all), checks length and MD5, and unpacks it. If it is killed, the same
command continues. Archives and parts that are in ROOT already are used.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ..common.fetch import FetchFailed, Remote, bring, mirrored
from ..common.problems import told
from ..common.unpack import UnpackFailed, unpack
from .layout import DEV_PARTS, TEST_PARTS, TRAIN_PARTS, corpus_dir, part_dir

__all__ = ["OPENSLR", "REMOTES", "download"]

OPENSLR = "https://www.openslr.org/resources/12"
# The MD5s are those of OpenSLR's md5sum.txt, the lengths those in Kaldi's recipe.
_PUBLISHED = {
    "train-clean-100": (6_387_309_499, "2a93770f6d5c6c964bc36631d331a522"),
    "train-clean-360": (23_049_477_885, "c0e676e450a7ff2f54aeade5171606fa"),
    "train-other-500": (30_593_501_606, "d1a0fd59409feb2c614ce4d30c387708"),
    "dev-clean": (337_926_286, "42e2234ba48799c1f50f24a7926300a1"),
    "dev-other": (314_305_928, "c8d0bcc9cca99d4f8b62fcc847357931"),
    "test-clean": (346_663_984, "32fa31d27d2e1cad72775fee3f4849a9"),
    "test-other": (328_757_843, "fb5a50374b501bb3bac4815ee91d3135"),
}
REMOTES = {part: Remote(f"{OPENSLR}/{part}.tar.gz", *known) for part, known in _PUBLISHED.items()}


def download(root: Path, remotes: Mapping[str, Remote] = REMOTES) -> bool:
    """Download the parts to ``root``, each from its archive; return False if all are there. A part appears when it is
    complete. Raises: FetchFailed, UnpackFailed, OSError."""
    missing = {part: remote for part, remote in remotes.items() if not part_dir(root, part).is_dir()}
    for part, remote in missing.items():
        bring(remote, root / remote.name)
        _unpack(root / remote.name, root, part)
    for part in remotes:
        shutil.rmtree(_partial(root, part), ignore_errors=True)  # what is left there has no use
    return bool(missing)


def _partial(root: Path, part: str) -> Path:
    return root / f".{part}.partial"


def _unpack(archive: Path, root: Path, part: str) -> None:
    """Unpack an archive of ``LibriSpeech/{PART/…,SPEAKERS.TXT,…}``; files that an earlier run has unpacked are kept."""
    typer.echo(f"unpacking {archive}")
    partial, corpus = _partial(root, part), corpus_dir(root)
    unpack(archive, partial, lambda name: not (partial / name).exists())
    inside = partial / "LibriSpeech"
    if not (inside / part).is_dir():
        raise UnpackFailed(f"{archive} holds no folder LibriSpeech/{part}; it is not LibriSpeech's")
    corpus.mkdir(exist_ok=True)
    for path in sorted(inside.iterdir(), key=Path.is_dir):  # the part itself last
        path.rename(corpus / path.name)


def main(
    root: Annotated[Path, typer.Argument(help="Folder that gets `LibriSpeech`.")],
    part: Annotated[
        list[str] | None, typer.Option(help="Part to train on, like train-clean-100; repeat for more. None: all.")
    ] = None,
    mirror: Annotated[str, typer.Option(help="OpenSLR's address of the resource, or a mirror's.")] = OPENSLR,
) -> None:
    """Download and unpack LibriSpeech (CC BY 4.0), its parts for tests included; continue where a run was
    interrupted."""
    parts = [*(part or TRAIN_PARTS), *DEV_PARTS, *TEST_PARTS]
    if unknown := set(parts) - REMOTES.keys():
        typer.echo(f"there is no part {min(unknown)}; take some of {', '.join(TRAIN_PARTS)}", err=True)
        raise typer.Exit(2)
    remotes = mirrored((REMOTES[name] for name in parts), mirror)
    with told(FetchFailed, UnpackFailed, OSError):
        new = download(root, dict(zip(parts, remotes, strict=True)))
    typer.echo(f"{corpus_dir(root)}: {'complete' if new else 'there already'}")


if __name__ == "__main__":
    typer.run(main)
