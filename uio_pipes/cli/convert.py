"""``uio convert``: converts data to a TouchDataset, shards, a raw list or Lhotse's cuts."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated

import typer

from uio_pipes.cli.common import Compress, Fields, Json, Rate, cores, field_names, keep_inputs, print_json, verdict


class ConvertTarget(str, Enum):
    """The form of data that is written."""

    indexed = "indexed"
    shards = "shards"
    raw = "raw"
    cuts = "cuts"


class AudioFormat(str, Enum):
    """The format of audio files in shards, raw lists and cuts."""

    wav = "wav"
    flac = "flac"


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="List, shard, index, manifest (NeMo, Lhotse), Parquet file, YAML mix, folder. Path or URL."
        ),
    ],
    out: Annotated[str, typer.Argument(help="Folder to write to. Path or URL.")],
    to: Annotated[
        ConvertTarget,
        typer.Option(help="indexed: a TouchDataset; shards: WeNet's; raw: audio files; cuts: Lhotse's manifest."),
    ] = ConvertTarget.indexed,
    list_path: Annotated[
        str, typer.Option("--list", help="The list to write; OUT/data.list, or OUT/cuts.jsonl.gz, if not given.")
    ] = "",
    per_part: Annotated[int, typer.Option(min=1, help="Utterances in a folder or shard.")] = 5000,
    resample: Rate = None,
    form: Annotated[
        AudioFormat, typer.Option("--format", help="Format of audio files in shards, raw lists and cuts.")
    ] = AudioFormat.wav,
    compress: Compress = False,
    fields: Fields = None,
    text: Annotated[str, typer.Option(help="'' if utterances need no transcript; its name is for --fields.")] = "txt",
    allow_pipes: Annotated[bool, typer.Option("--allow-pipes", help="Run a Kaldi folder's commands.")] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Threads that decode; 0: one for each core.")] = 0,
    json: Json = False,
) -> None:
    """Convert data of any kind to a TouchDataset (true random access), shards, a raw list or Lhotse's cuts.

    Audio becomes mono, 16 bits. But cuts refer to audio that is a file of its own; only other audio is written.

    If it was killed, the same command goes on. What cannot be converted is counted and listed in OUT/failed.jsonl; the
    exit code is then 1.
    """
    from uio_pipes.prep import convert as prep

    if text not in ("", "txt"):
        raise typer.BadParameter(f"the transcript's name goes to --fields txt={text}", param_hint="--text")
    if compress and to is not ConvertTarget.shards:
        raise typer.BadParameter("only shards are compressed: add --to shards", param_hint="--compress")
    target = list_path or os.path.join(out, prep.list_name(to.value))
    failed = os.path.join(out, "failed.jsonl")
    keep_inputs([source], [target, f"{target}.manifest", failed])
    done = prep.convert(
        source,
        out,
        to=to.value,
        per_part=per_part,
        resample=resample,
        form=form.value,
        compress=compress,
        list_path=list_path or None,
        fields=field_names(fields),
        needs_text=bool(text),
        allow_pipes=allow_pipes,
        jobs=jobs or cores(),
    )
    if json:
        print_json({"list" if n == "data_list" else n: v for n, v in vars(done).items()})
    else:
        typer.echo(f"{done.data_list}: {done}")
        if done.failed:
            typer.echo(f"what failed: {failed}")
    verdict(not done.failed)
