"""``uio cmvn``: sums the features for their global mean and variance."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, cores, keep_inputs, local_file, print_json, read_conf_block, verdict


class ListType(str, Enum):
    """WeNet's ``data_type``."""

    raw = "raw"
    shard = "shard"


def cmvn(
    data_list: Annotated[
        str, typer.Argument(metavar="LIST", help="A list, or any data that `uio inspect` knows. Path or URL.")
    ],
    out: Annotated[Path, typer.Argument(help="The file to write: WeNet's global_cmvn.")],
    data_type: Annotated[
        ListType | None, typer.Option(help="What LIST is, of WeNet's; if not given, its first line decides.")
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(help="A WeNet YAML: its dataset_conf says which features. If not given, 80 bins at 16 kHz."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    json: Json = False,
) -> None:
    """Sum the features of a list for global CMVN: the same bits on any number of processes, resumed if killed."""
    local_file(out)
    keep_inputs([data_list, conf], [out, f"{out}.journal"])
    features = None
    if conf is not None:
        features = read_conf_block(conf, "--conf")
    from uio_pipes.prep.cmvn import CmvnSettings, compute_cmvn
    from uio_pipes.prep.reading.data_list import wenet_type_of

    kind = wenet_type_of(data_list) if data_type is None else data_type.value
    sums = compute_cmvn(data_list, out, CmvnSettings(conf=features), jobs or cores(), data_type=kind)
    report = {"cmvn": str(out), "frames": sums.frame_num, "utterances": sums.utterances, "failures": sums.failures,
              "bins": len(sums.mean_stat)}  # fmt: skip
    if json:
        print_json(report)
    else:
        failed = f"; {counted(sums.failures, 'failure')}" if sums.failures else ""
        typer.echo(f"{out}: {counted(sums.frame_num, 'frame')} of {counted(sums.utterances, 'utterance')}{failed}")
    verdict(not sums.failures)
