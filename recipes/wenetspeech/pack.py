"""Pack segments into shards: ``python -m recipes.wenetspeech.pack DATA --jobs 40``.

::

    DATA/train/shards/10_500/data-00000.tar …     grouped by length (CAT's pack_data), 2000 utterances each
    DATA/{dev,test_net,test_meeting}/shards/data-00000.tar …      all of them, whatever their length
    DATA/…/shards.list                            written when all of a set's shards are complete
    DATA/…/shards/failed.jsonl                    the segments that could not be cut, and why

Each recording is opened and decoded once. If it is killed, the same command continues.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.tools.data.pack import LengthGroup, OtherPacking, Packing, PackingFailed, PackSettings, pack, parse_group
from uio_pipes.tools.data.writing.cutting import Form

from ..common.problems import told
from .layout import TEST_SUBSETS

GROUPS = ("10:500", "500:800", "800:1000", "1000:1200")  # frames; above 1200, WenetSpeech's recipes do not train


def pack_all(
    data: Path, groups: tuple[LengthGroup, ...], size: int, form: Form, jobs: int, touch: bool = False
) -> dict[str, Packing]:
    """Pack the training set in ``groups`` and the held-out sets whole, into shards or (``touch``) into TouchDatasets.

    Raises: OtherPacking, PackingFailed, ListError.
    """
    results = {}
    for name in ("train", *TEST_SUBSETS.values()):
        folder = data.resolve() / name
        settings = PackSettings(size, groups if name == "train" else (), form)
        target = "shards"
        if touch:
            settings, target = replace(settings, form="wav", to="indexed"), "indexed"
        results[name] = pack(folder / "data.list", folder / target, folder / f"{target}.list", settings, jobs)
    return results


def selected(base: str, groups: tuple[LengthGroup, ...]) -> str:
    """Return the training shards of some of the groups, as braces and a glob for ``--train-data``.

    ``base``: the data folder, or its URL.
    """
    names = [group.folder for group in groups]
    return f"{base}/train/shards/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}/*.tar"


def main(
    data: Annotated[Path, typer.Argument(help="Folder that `prepare` wrote.")],
    groups: Annotated[list[str] | None, typer.Option("--group", help="LOW:HIGH in frames of 10 ms; repeat.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Utterances in a shard.")] = 2000,
    flac: Annotated[bool, typer.Option("--flac", help="58 % of the size of wav, and 0.6 ms more to decode.")] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Pack WenetSpeech's segments into shards, grouped by length."""
    with told(OtherPacking, PackingFailed, ListError, ValueError):
        chosen = tuple(map(parse_group, groups or GROUPS))
        packed = pack_all(data, chosen, size, "flac" if flac else "wav", jobs or multiprocessing.cpu_count())
        for name, one in packed.items():
            typer.echo(f"{data / name / 'shards.list'}: {one}")


if __name__ == "__main__":
    typer.run(main)
